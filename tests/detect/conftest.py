"""Windows to order: everything well, for a test to break."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from gpufleet.detect.engine import evaluate
from gpufleet.detect.findings import Finding
from gpufleet.detect.rules import load_rules
from gpufleet.detect.windows import (
    GPU_METRICS,
    KIND_GPU,
    KIND_NODE,
    Before,
    Gpus,
    OpenKey,
    Targets,
    Windows,
    XidCounts,
)

START = 1_773_144_000.0  # 2026-03-10T12:00:00Z
Build = Callable[..., Windows]


def healthy(cycles: int = 8, nodes: int = 1, gpus: int = 4, interval: float = 15.0, exporters: int = 2) -> Windows:
    """`nodes` nodes with `gpus` GPUs and one or two targets (GPU exporter, node exporter), all of them well."""
    times = START + interval * np.arange(cycles, dtype=np.float64)
    shape, count = (cycles, nodes * exporters), nodes * gpus
    targets = Targets(
        ids=np.arange(1, nodes * exporters + 1),
        node=np.repeat(np.arange(nodes), exporters),
        kind=np.tile(np.array([KIND_GPU, KIND_NODE][:exporters]), nodes),
        scraped=np.ones(shape, dtype=np.bool_),
        good=np.ones(shape, dtype=np.bool_),
        reason=np.full(shape, "", dtype=object),
        at=np.repeat(times[:, None], shape[1], axis=1),
        duration_seconds=np.full(shape, 0.05),
        bytes=np.full(shape, 1000, dtype=np.int64),
        signature=np.arange(1, cycles + 1, dtype=np.uint64)[:, None] * np.ones((1, shape[1]), dtype=np.uint64),
    )
    values = {metric: np.full((cycles, count), np.nan) for metric in GPU_METRICS}
    values["gpu_temperature_celsius"][:] = 60.0
    values["gpu_power_watts"][:] = 400.0
    values["gpu_clock_event_reasons"][:] = 0.0
    values["gpu_xid_code"][:] = 0.0
    values["gpu_energy_joules_total"][:] = 1e6 + 400.0 * interval * np.arange(cycles)[:, None]
    return Windows(
        times=times,
        interval_seconds=interval,
        nodes=[f"gpu-n{node + 1:02d}" for node in range(nodes)],
        expected_gpus=np.full(nodes, gpus),
        maintenance=np.zeros((cycles, nodes), dtype=np.bool_),
        boot_at=np.full((cycles, nodes), START - 86400.0),
        targets=targets,
        gpus=Gpus(
            uuid=[f"GPU-{node:04d}-{slot}" for node in range(nodes) for slot in range(gpus)],
            model=["NVIDIA B200"] * count,
            pci_bus_id=[f"0000:{slot:02X}:00.0" for _ in range(nodes) for slot in range(gpus)],
            slot=np.tile(np.arange(gpus), nodes),
            node=np.repeat(np.arange(nodes), gpus),
            target=np.repeat(np.arange(nodes) * exporters, gpus),
            listed=np.ones((cycles, count), dtype=np.bool_),
            values=values,
        ),
        xids=no_counts(cycles),
        before=Before(
            seen=np.ones(count, dtype=np.bool_),
            xid_code=np.zeros(count),
            energy_joules=np.full(count, 1e6 - 1.0),
            xid_count=np.zeros(0),
            xid_count_at=np.zeros(0),
            boot_at=np.full(nodes, START - 86400.0),
        ),
    )


def no_counts(cycles: int) -> XidCounts:
    empty = np.zeros(0, dtype=np.int64)
    return XidCounts(empty, empty, [], np.zeros(0), np.zeros((cycles, 0)))


def fail(windows: Windows, target: int, rows: slice, reason: str = "refused") -> None:
    """The scrapes `rows` of a target fail: no GPU of it is listed, no value is there."""
    windows.targets.good[rows, target] = False
    windows.targets.reason[rows, target] = reason
    for gpu in np.flatnonzero(windows.gpus.target == target):
        vanish(windows, int(gpu), rows)


def vanish(windows: Windows, gpu: int, rows: slice) -> None:
    """The GPU is not listed in the scrapes `rows`."""
    windows.gpus.listed[rows, gpu] = False
    for values in windows.gpus.values.values():
        values[rows, gpu] = np.nan


def first_rows(windows: Windows, count: int) -> Windows:
    """The windows as they were `count` rows after their begin."""
    return windows.until(count)


def judge(windows: Windows) -> list[Finding]:
    return evaluate(windows, load_rules(), float(windows.times[-1]) + 1.0)


def said(windows: Windows) -> list[tuple[str, str, str]]:
    return [(finding.kind, finding.subject, finding.status.value) for finding in judge(windows)]


def opened(windows: Windows, kind: str, subject: str, at: float, recovered_at: float | None = None) -> None:
    windows.open[kind, subject] = OpenKey(kind, subject, at, at, at, recovered_at)


class Kit:
    """What tests of the engine need, as one fixture."""

    START = START
    healthy = staticmethod(healthy)
    fail = staticmethod(fail)
    vanish = staticmethod(vanish)
    first_rows = staticmethod(first_rows)
    judge = staticmethod(judge)
    said = staticmethod(said)
    opened = staticmethod(opened)


@pytest.fixture(scope="session")
def kit() -> type[Kit]:
    return Kit
