"""Bodies of real exporters on healthy machines: the right number of GPUs, each with the values the body holds."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from shared import shared

from gpufleet.catalogue.devices import Device, identify, roll_call
from gpufleet.catalogue.meaning import resolve
from gpufleet.catalogue.values import SENTINEL_CODES, clean, count_missing
from gpufleet.scrape.exposition import SeriesCache, read


class Read(NamedTuple):
    boards: dict[str, Device]
    values: dict[str, dict[str, float]]
    missing: int
    impossible: int


def read_capture(name: str) -> Read:
    """Boards by key, and canonical values by board and metric, the whole board's only."""
    cache = SeriesCache()
    body = shared(f"data/real/exporters/{name}").read_bytes()
    parsed = read(body, cache, scraped_at=1e9, max_samples=10_000)
    assert parsed.rejected == 0
    series = [cache.series(ref) for ref in parsed.refs.tolist()]
    told = [(resolve(name, labels, ""), identify(labels, name)) for name, labels in series]
    scale, low, high = ([getattr(meaning, part) for meaning, _ in told] for part in ("scale", "low", "high"))
    codes = [SENTINEL_CODES[meaning.sentinels] for meaning, _ in told]
    canonical = clean(parsed.values, scale, low, high, codes)
    missing, impossible = count_missing(parsed.values, low, high, codes)
    called = roll_call(device for _, device in told if device is not None)
    values: dict[str, dict[str, float]] = {board.key: {} for board in called.values()}
    for (meaning, device), value in zip(told, canonical.tolist(), strict=True):
        if device is not None and not (device.mig and meaning.per_instance):
            values[called[device.key].key][meaning.metric] = value
    return Read({board.key: board for board in called.values()}, values, missing, impossible)


@pytest.mark.parametrize(
    ("name", "boards", "missing"),
    [
        ("dcgm/aicr-8xh100-2026-02-19.prom", 8, 0),
        ("dcgm/aicr-8xh100-2026-03-18.prom", 8, 0),
        ("dcgm/dcgm-exporter-readme-blank-sentinel.prom", 1, 1),
        ("dcgm/ericsson-tesla-t4-nohelp.prom", 1, 0),
        ("dcgm/kops-nvidia-l4.prom", 1, 0),
        ("dcgm/rafay-tesla-t4.prom", 1, 0),
        ("dcgm/upcloud-nvidia-l40s.prom", 1, 0),
        ("amd/docs-gpu_clock-xgmi.prom", 3, 0),
        ("amd/metrics_mini.txt", 1, 0),
        ("nvidia_gpu_exporter/demo__seeded.metrics", 2, 0),
        ("nvidia_gpu_exporter/linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04__idle.metrics", 1, 0),
        ("nvidia_gpu_exporter/linux-x86_64__nvidia-geforce-rtx-2080-super__610.57.04__load.metrics", 1, 0),
        ("nvidia_gpu_exporter/linux-x86_64__nvidia-geforce-rtx-4080-super__595.71.05__idle.metrics", 1, 0),
        ("nvidia_gpu_exporter/linux-x86_64__nvidia-geforce-rtx-4080-super__595.71.05__load.metrics", 1, 0),
        ("nvidia_gpu_exporter/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__idle.metrics", 1, 0),
        ("nvidia_gpu_exporter/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__load.metrics", 1, 0),
        ("nvidia_gpu_exporter/linux-x86_64__nvidia-h200-mig__590.48.01__idle.metrics", 1, 0),
        ("nvidia_gpu_exporter/linux-x86_64__nvidia-h200-mig__590.48.01__load.metrics", 1, 0),
        ("nvidia_gpu_exporter/linux-x86_64__nvidia-h200__590.48.01__idle.metrics", 1, 0),
        ("nvidia_gpu_exporter/linux-x86_64__nvidia-h200__590.48.01__load.metrics", 1, 0),
        ("nvidia_gpu_exporter/windows-x86_64__nvidia-geforce-rtx-2080-super__591.86__idle.metrics", 1, 0),
        ("nvidia_gpu_exporter/windows-x86_64__nvidia-geforce-rtx-2080-super__591.86__load.metrics", 1, 0),
        ("node_exporter/e2e-output-darwin.txt", 0, 0),
        ("node_exporter/e2e-output-dragonfly.txt", 0, 0),
        ("node_exporter/e2e-output-freebsd.txt", 0, 0),
        ("node_exporter/e2e-output-netbsd.txt", 0, 0),
        ("node_exporter/e2e-output.txt", 0, None),
    ],
)
def test_boards_of_a_capture(name: str, boards: int, missing: int | None) -> None:
    found = read_capture(name)
    assert len(found.boards) == boards
    assert found.impossible == 0
    assert missing in (None, found.missing)


@pytest.mark.parametrize(
    ("name", "key", "facts", "values"),
    [
        (
            "dcgm/aicr-8xh100-2026-02-19.prom",
            "GPU-22dbdd79-f55a-92a8-aa39-322198e72ed6",
            (0, "NVIDIA H100 80GB HBM3", "580.105.08", "0000:53:00.0"),
            {"gpu_temperature_celsius": 26, "gpu_power_watts": 67.268, "gpu_utilization_ratio": 0},
        ),
        (
            "dcgm/ericsson-tesla-t4-nohelp.prom",
            "GPU-6d5c0ac5-74d7-3130-46f1-e93ed57f469a",
            (0, "Tesla T4", "590.48.01", "0000:37:00.0"),
            {
                "gpu_temperature_celsius": 74,
                "gpu_power_watts": 68.244,
                "gpu_utilization_ratio": 0.91,
                "gpu_sm_clock_hertz": 660e6,
                "gpu_memory_used_bytes": 5120 * 2**20,
                "gpu_energy_joules_total": 15152422.938,
            },
        ),
        (
            "dcgm/dcgm-exporter-readme-blank-sentinel.prom",
            "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52",
            (0, "", "", ""),
            {
                "gpu_sm_clock_hertz": 139e6,
                "gpu_memory_clock_hertz": 405e6,
                "gpu_memory_temperature_celsius": float("nan"),
            },
        ),
        (
            "nvidia_gpu_exporter/linux-x86_64__nvidia-h100-80gb-hbm3__590.48.01__load.metrics",
            "0000:00:09.0",
            (0, "NVIDIA H100 80GB HBM3", "590.48.01", "0000:00:09.0"),
            {
                "gpu_temperature_celsius": 59,
                "gpu_memory_temperature_celsius": 54,
                "gpu_power_watts": 631.95,
                "gpu_utilization_ratio": 1,
                "gpu_sm_clock_hertz": 1.98e9,
                "gpu_memory_used_bytes": 20780679168,
                "gpu_memory_total_bytes": 85520809984,
            },
        ),
        (
            "nvidia_gpu_exporter/windows-x86_64__nvidia-geforce-rtx-2080-super__591.86__load.metrics",
            "0000:0c:00.0",
            (0, "NVIDIA GeForce RTX 2080 SUPER", "591.86", "0000:0c:00.0"),
            {"gpu_temperature_celsius": 45, "gpu_power_watts": 97.43, "gpu_utilization_ratio": 0.07},
        ),
        (
            "nvidia_gpu_exporter/demo__seeded.metrics",
            "GPU-1c67088e-9ecb-4564-bb97-6151ecc2ef64",
            (0, "NVIDIA H200", "590.48.01", "0000:01:00.0"),
            {"gpu_power_watts": 627.4, "gpu_memory_used_bytes": 33934016512, "gpu_memory_total_bytes": 150754820096},
        ),
        (
            "amd/metrics_mini.txt",
            "6699c0a8-4200-4242-037f-f97e6cae0f09",
            (None, "", "", ""),
            {"gpu_power_watts": 41, "gpu_utilization_ratio": 0, "gpu_memory_total_bytes": 68702 * 2**20},
        ),
        (
            "amd/docs-gpu_clock-xgmi.prom",
            "0",
            (0, "xxxx", "", ""),
            {"gpu_sm_clock_hertz": 132e6, "gpu_memory_clock_hertz": 900e6},
        ),
    ],
)
def test_facts_and_values_of_a_board(
    name: str, key: str, facts: tuple[int | None, str, str, str], values: dict[str, float]
) -> None:
    found = read_capture(name)
    board = found.boards[key]
    assert (board.index, board.model, board.driver_version, board.pci_bus_id) == facts
    told = found.values[key]
    np.testing.assert_allclose([told[metric] for metric in values], list(values.values()), rtol=1e-12)
