"""Windows out of the store: what frames become, and that a lost cache is no loss."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

from gpufleet.core.times import from_unix
from gpufleet.detect.windows import Windows
from gpufleet.fleet.models import Cluster, Gpu, MaintenanceWindow, Node, Placement, Target
from gpufleet.pipeline.windows import ShardWindows, rebuilt, rolled
from gpufleet.pipeline.windows_subjects import subjects_of
from gpufleet.store.append import append_frames
from gpufleet.store.frames import Frame, SeriesSpec
from gpufleet.store.queries import read_cycle
from gpufleet.store.series import ensure_layout, ensure_series

pytestmark = pytest.mark.django_db

INTERVAL = 15.0
FIRST = 118_209_600  # number of the first cycle
START = FIRST * INTERVAL
GPU_SERIES = ("gpu_temperature_celsius", "gpu_energy_joules_total", "gpu_xid_code")


class Rig:
    """A node with a GPU exporter and a node exporter, and frames to order."""

    def __init__(self, gpus: int = 2) -> None:
        self.now = from_unix(START)
        self.cluster = Cluster.objects.create(name="rig")
        self.node = Node.objects.create(cluster=self.cluster, name="gpu-n01", expected_gpus=gpus)
        urls = (("gpu", "http://192.0.2.1:9400/metrics"), ("node", "http://192.0.2.1:9100/metrics"))
        self.targets = [
            Target.objects.create(cluster=self.cluster, node=self.node, url=url, kind=kind, created_at=self.now)
            for kind, url in urls
        ]
        self.gpus = [self.place(f"GPU-{slot:04d}", slot) for slot in range(gpus)]

    @property
    def target_ids(self) -> list[int]:
        return [target.id for target in self.targets]

    def place(self, uuid: str, slot: int) -> Gpu:
        gpu = Gpu.objects.create(
            cluster=self.cluster, uuid=uuid, model="NVIDIA B200", first_seen_at=self.now, last_seen_at=self.now
        )
        Placement.objects.create(gpu=gpu, node=self.node, slot=slot, pci_bus_id=f"00:{slot}", starts_at=self.now)
        return gpu

    def scrape(self, cycle: int, values: dict[int, dict[str, float]], reason: str = "", xids: Any = ()) -> None:
        """One cycle: `values` by GPU slot and metric; `xids`: (slot, code, count) of windowed counts."""
        at = cycle * INTERVAL
        specs = [
            (spec(metric, self.gpus[slot].id, {"slot": str(slot)}), value)
            for slot, of_gpu in values.items()
            for metric, value in of_gpu.items()
        ]
        specs += [
            (spec("gpu_xid_window_count", self.gpus[slot].id, {"slot": str(slot), "xid": str(code)}), float(count))
            for slot, code, count in xids
        ]
        boot = [(spec("node_boot_time_seconds", None, {}), START - 86_400.0)]
        frames = [frame(self.targets[0].id, at, cycle, [] if reason else specs, reason)]
        append_frames([*frames, frame(self.targets[1].id, at, cycle, boot, "")], from_unix(at))


def spec(metric: str, gpu_id: int | None, labels: dict[str, str]) -> SeriesSpec:
    return SeriesSpec(
        metric.upper(), metric, labels, gpu_id, "gauge", "", 1.0, None, 150.0 if "celsius" in metric else None, ""
    )


def frame(target_id: int, at: float, cycle: int, specs: list[tuple[SeriesSpec, float]], reason: str) -> Frame:
    layout_id, values = None, None
    if not reason:
        series = ensure_series(target_id, [one for one, _ in specs], from_unix(at))
        layout_id = ensure_layout(target_id, series, from_unix(at))
        values = np.array([value for _, value in specs])
    return Frame(target_id, at, cycle, reason, 0.05, 1000, len(specs), 0, 0, layout_id, values)


def well(cycle: int, slots: tuple[int, ...] = (0, 1), code: float = 0.0) -> dict[int, dict[str, float]]:
    return {
        slot: {"gpu_temperature_celsius": 60.0, "gpu_energy_joules_total": 1000.0 + cycle - FIRST, "gpu_xid_code": code}
        for slot in slots
    }


def eventful(rig: Rig, cycles: int) -> None:
    """A stretch in which a scrape fails, a GPU comes and goes, codes change and counts rise and fall."""
    for cycle in range(FIRST, FIRST + cycles):
        step = cycle - FIRST
        slots = (0,) if step % 17 in (5, 6) else (0, 1)
        code = 0.0 if step < 12 else 48.0 if step < 40 else 94.0
        xids = [(0, 31, step % 7)] if step % 5 and step % 7 else []
        rig.scrape(cycle, well(cycle, slots, code), "timeout" if step % 23 == 9 else "", xids)


def differences(left: Any, right: Any, name: str = "") -> list[str]:
    """Names of the parts in which two windows differ."""
    if is_dataclass(left):
        pairs = [(each.name, getattr(left, each.name), getattr(right, each.name)) for each in fields(left)]
    elif isinstance(left, dict) and left.keys() == right.keys():
        pairs = [(str(key), left[key], right[key]) for key in left]
    elif isinstance(left, np.ndarray):
        equal = np.array_equal(left, right, equal_nan=left.dtype.kind == "f")
        return [] if left.shape == right.shape and equal else [name]
    else:
        return [] if left == right else [name]
    return [found for part, one, other in pairs for found in differences(one, other, f"{name}.{part}")]


def windows_at(cached: ShardWindows | None, rig: Rig, cycle: int) -> tuple[ShardWindows, Windows]:
    rolling = rolled(cached, rig.target_ids, cycle, INTERVAL)
    assert rolling is not None
    return rolling, rolling.windows(INTERVAL, {})


def test_a_cycle_becomes_a_row() -> None:
    rig = Rig()
    rig.scrape(FIRST, {**well(FIRST), 1: {"gpu_temperature_celsius": 345.0, "gpu_energy_joules_total": 7.0}})
    _, windows = windows_at(None, rig, FIRST)
    assert windows.times.tolist() == [START]
    assert windows.nodes == ["gpu-n01"]
    assert windows.gpus.uuid == ["GPU-0000", "GPU-0001"]
    assert windows.gpus.target.tolist() == [0, 0]
    assert windows.gpus.listed.tolist() == [[True, True]]
    assert windows.metric("gpu_temperature_celsius")[0, 0] == 60.0
    assert np.isnan(windows.metric("gpu_temperature_celsius")[0, 1])
    assert windows.boot_at.tolist() == [[START - 86_400.0]]
    assert windows.targets.good.tolist() == [[True, True]]
    assert windows.before.seen.tolist() == [False, False]


def test_a_failed_scrape_lists_nothing_and_keeps_its_reason() -> None:
    rig = Rig()
    rig.scrape(FIRST, well(FIRST))
    rig.scrape(FIRST + 1, {}, "timeout")
    _, windows = windows_at(None, rig, FIRST + 1)
    assert windows.targets.reason.tolist() == [["", ""], ["timeout", ""]]
    assert windows.gpus.listed.tolist() == [[True, True], [False, False]]


def test_a_code_that_outlives_its_gpu_does_not_list_it() -> None:
    rig = Rig()
    rig.scrape(FIRST, well(FIRST))
    rig.scrape(FIRST + 1, {**well(FIRST + 1, (0,)), 1: {"gpu_xid_code": 79.0}})
    _, windows = windows_at(None, rig, FIRST + 1)
    assert windows.gpus.listed.tolist() == [[True, True], [True, False]]
    assert windows.metric("gpu_xid_code")[:, 1].tolist() == [0.0, 79.0]


def test_a_failure_of_our_own_is_no_scrape() -> None:
    rig = Rig()
    rig.scrape(FIRST, {}, "collector")
    _, windows = windows_at(None, rig, FIRST)
    assert windows.targets.scraped.tolist() == [[False, True]]


def test_a_cycle_that_brought_nothing_makes_no_windows() -> None:
    assert rolled(None, Rig().target_ids, FIRST, INTERVAL) is None


def test_a_lost_cache_is_rebuilt_with_the_same_result() -> None:
    rig = Rig()
    eventful(rig, 60)
    cached: ShardWindows | None = None
    for cycle in range(FIRST, FIRST + 60):
        cached, warm = windows_at(cached, rig, cycle)
        if (cycle - FIRST) % 6 == 5:
            _, cold = windows_at(None, rig, cycle)
            assert differences(warm, cold) == []
    assert cached is not None
    assert len(cached.cycles) == 33


def test_cycles_that_nobody_looked_at_are_taken_in_later() -> None:
    rig = Rig()
    eventful(rig, 20)
    cached, _ = windows_at(None, rig, FIRST + 5)
    _, warm = windows_at(cached, rig, FIRST + 15)
    _, cold = windows_at(None, rig, FIRST + 15)
    assert differences(warm, cold) == []


def test_a_new_gpu_makes_the_rows_anew() -> None:
    rig = Rig()
    eventful(rig, 38)
    cached: ShardWindows | None = None
    for cycle in range(FIRST, FIRST + 38):
        cached, _ = windows_at(cached, rig, cycle)
    rig.gpus.append(rig.place("GPU-0002", 2))
    rig.scrape(FIRST + 38, well(FIRST + 38, (0, 1, 2)))
    _, warm = windows_at(cached, rig, FIRST + 38)
    _, cold = windows_at(None, rig, FIRST + 38)
    assert warm.gpus.listed[-2:].tolist() == [[True, True, False], [True, True, True]]
    assert differences(warm, cold) == []


def test_planned_time_is_masked() -> None:
    rig = Rig()
    eventful(rig, 4)
    MaintenanceWindow.objects.create(
        node=rig.node,
        starts_at=from_unix(START + 15),
        ends_at=from_unix(START + 45),
        reason="new fans",
        created_by="m",
        created_at=rig.now,
    )
    _, windows = windows_at(None, rig, FIRST + 3)
    assert windows.maintenance.tolist() == [[False], [True], [True], [False]]


def test_the_last_code_is_known_after_a_long_silence() -> None:
    rig = Rig()
    rig.scrape(FIRST, well(FIRST, code=48.0))
    rig.scrape(FIRST + 1, {slot: {"gpu_temperature_celsius": 60.0} for slot in (0, 1)})
    rig.scrape(FIRST + 200, well(FIRST + 200, code=48.0))
    frames = read_cycle(rig.target_ids, FIRST + 200)
    rolling = rebuilt(subjects_of(rig.target_ids, START), FIRST + 200, frames, INTERVAL)
    windows = rolling.windows(INTERVAL, {})
    assert windows.times.tolist() == [START + 3000.0]
    assert windows.before.xid_code.tolist() == [48.0, 48.0]
    assert windows.before.seen.tolist() == [True, True]
