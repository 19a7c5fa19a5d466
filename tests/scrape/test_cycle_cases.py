"""Identity and semantics as flows: bodies go in over HTTP, frames and the inventory come out of PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest
from serving import Handler, Server, Wire
from shared import case

from gpufleet.fleet.actions import import_targets
from gpufleet.fleet.models import LIVE, Assignment, Cluster, Gpu, Node, NodeEvent, Placement, Target
from gpufleet.fleet.queries import active_targets
from gpufleet.fleet.specs import TargetSpec
from gpufleet.scrape.actions import store_shard
from gpufleet.scrape.collector import Collector
from gpufleet.scrape.cycle import CycleResult
from gpufleet.scrape.models import TargetStatus
from gpufleet.store.frames import Frame
from gpufleet.store.layouts import forget_layouts, layout_table
from gpufleet.store.models import Series
from gpufleet.store.queries import read_frames

pytestmark = pytest.mark.django_db(transaction=True)

Serve = Callable[[Handler], Server]
START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


class Flow:
    """One target, scraped in virtual time; what it answers is set from outside."""

    def __init__(self, serve: Serve, collector: Collector, node: str) -> None:
        forget_layouts()
        self.body = b""
        self.content_type = "text/plain; version=0.0.4"
        self.collector = collector
        server = serve(self._answer)
        spec = TargetSpec(url=server.url(), node=node, cluster=LIVE, job="dcgm")
        import_targets([spec], source="test", actor="test", now=START, trusted=True)
        self.cluster = Cluster.objects.get(name=LIVE)
        self.cycle = 0

    async def _answer(self, wire: Wire) -> None:
        await wire.answer(self.body, Content_Type=self.content_type)

    def scrape(self, body: bytes, seconds: int) -> CycleResult:
        self.body = body
        self.cycle += 1
        now = START + timedelta(seconds=seconds)
        result = self.collector.scrape_at(self.cluster, active_targets(self.cluster.id), self.cycle, now)
        assert store_shard(None, 0, result, now)
        return result

    def frames(self) -> list[Frame]:
        target_id = Target.objects.get().id
        return read_frames([target_id], START.timestamp(), START.timestamp() + 86_400)

    def values(self, metric: str, uuid: str = "") -> list[float]:
        """The cleaned values of a metric, of one GPU or all, scrape by scrape."""
        gpu_id = Gpu.objects.get(uuid=uuid).id if uuid else None
        found: list[float] = []
        for frame in self.frames():
            if frame.values is None or frame.layout_id is None:
                continue
            table = layout_table(frame.layout_id)
            clean = table.clean(frame.values)
            places = [p for p in table.places_of(metric).tolist() if gpu_id in {None, int(table.gpu_ids[p])}]
            found += clean[places].tolist()
        return found


def bodies(number: str, *names: str) -> tuple[list[bytes], dict[str, Any]]:
    folder, facts = case(number)
    return [(folder / name).read_bytes() for name in names], facts["numbers"]


@pytest.fixture
def flow(serve: Serve, collector: Collector, settings: object) -> Callable[[str], Flow]:
    return lambda node: Flow(serve, collector, node)


def seats(node: str) -> dict[str, tuple[int, str]]:
    rows = Placement.objects.filter(node__name=node, ends_at=None).select_related("gpu")
    return {row.gpu.uuid: (row.slot, row.pci_bus_id) for row in rows}


def test_case_007_a_sign_in_page(flow: Callable[[str], Flow]) -> None:
    folder, numbers = case("007")
    raw = (folder / "input.txt").read_bytes()
    body = raw.partition(b"\r\n\r\n")[2] or raw.partition(b"\n\n")[2]
    one = flow("gpu-n07")
    for content_type in ("text/html", "text/plain"):
        one.content_type = content_type
        result = one.scrape(body, 15 * one.cycle)
        assert [(s.reason, s.accepted) for s in result.statuses] == [("not an exposition", 0)]
    assert [frame.values for frame in one.frames()] == [None, None]
    assert TargetStatus.objects.get().failures_in_a_row == 2


def test_case_008_an_answer_without_gpus_is_a_failed_scrape(flow: Callable[[str], Flow]) -> None:
    parts, numbers = bodies("008", "t000.prom", "t015.prom", "t030.prom", "t045.prom")
    one = flow("gpu-n08")
    results = [one.scrape(body, 15 * n) for n, body in enumerate(parts)]
    assert [r.statuses[0].reason for r in results] == ["", *["no GPU samples"] * 3]
    assert results[0].statuses[0].accepted == numbers["samples_accepted"]
    status = TargetStatus.objects.get()
    assert status.failures_in_a_row == numbers["failed_scrapes"]
    assert status.last_good_at == START
    assert Gpu.objects.count() == 8
    assert Placement.objects.filter(ends_at=None).count() == 8


def test_case_013_index_shift_after_reboot(flow: Callable[[str], Flow]) -> None:
    parts, numbers = bodies("013", "t000.prom", "t600.prom", "t1200.prom")
    one = flow("gpu-n16")
    one.scrape(parts[0], 0)
    before = seats("gpu-n16")
    assert sorted(slot for slot, _ in before.values()) == list(range(8))
    by_slot = {slot: uuid for uuid, (slot, _) in before.items()}
    one.scrape(parts[1], 600)
    after = seats("gpu-n16")
    # Board 3 is missing, not moved; the others count on past it.
    assert after[by_slot[3]][0] == 3
    assert [after[by_slot[n]][0] for n in (0, 1, 2, 4, 5, 6, 7)] == [0, 1, 2, 3, 4, 5, 6]
    one.scrape(parts[2], 1200)
    assert seats("gpu-n16")[by_slot[3]][0] == 7
    assert Gpu.objects.count() == numbers["gpu_records"]
    assert one.values("gpu_temperature_celsius", by_slot[5]) == numbers["board5_values"]
    assert list(
        Placement.objects.filter(gpu__uuid=by_slot[5]).order_by("starts_at").values_list("slot", flat=True)
    ) == [
        5,
        4,
    ]
    assert Node.objects.get().expected_gpus == 8
    intervals = Placement.objects.filter(gpu__uuid=by_slot[5]).order_by("starts_at")
    assert intervals[0].ends_at == intervals[1].starts_at == START + timedelta(seconds=600)


def test_case_014_four_pods_share_a_gpu(flow: Callable[[str], Flow]) -> None:
    (body,), numbers = bodies("014", "input.prom")
    one = flow("gpu-n17")
    result = one.scrape(body, 0)
    (status,) = result.statuses
    assert (status.accepted, status.rejected, status.disagreeing) == (numbers["lines"], 0, 0)
    watts = one.values("gpu_power_watts")
    assert len(watts) == numbers["values_stored"]
    assert sum(watts) == numbers["node_power_w"]
    pods: dict[int, set[str]] = {}
    for row in Assignment.objects.filter(ends_at=None):
        pods.setdefault(row.gpu_id, set()).add(row.workload["pod"])
    assert sorted(map(sorted, pods.values())) == [["a", "b", "c", "d"], ["e", "f", "g", "h"]]
    assert all(set(row.workload) <= {"pod", "namespace", "container"} for row in Assignment.objects.all())


def test_case_014_lines_that_disagree_are_counted(flow: Callable[[str], Flow]) -> None:
    (body,), _ = bodies("014", "input.prom")
    one = flow("gpu-n17")
    result = one.scrape(body.replace(b"70.000000", b"71.500000", 1), 0)
    assert sorted(one.values("gpu_power_watts")) == [65.5, 71.5]
    assert result.statuses[0].disagreeing == 3
    assert TargetStatus.objects.get().samples_disagreeing == 3


def test_case_015_mig(flow: Callable[[str], Flow]) -> None:
    parts, numbers = bodies("015", "t000.prom", "t015.prom")
    one = flow("gpu-n18")
    one.scrape(parts[0], 0)
    assert sum(one.values("gpu_power_watts")) == numbers["node_power_w"]
    one.scrape(parts[1], 15)
    assert Gpu.objects.count() == numbers["gpu_records"]
    instances = Series.objects.filter(labels__has_key="GPU_I_ID").values_list("gpu_id", "labels__GPU_I_ID").distinct()
    assert instances.count() == numbers["instance_records"]
    first = one.frames()[0]
    assert first.layout_id is not None
    assert first.values is not None
    table = layout_table(first.layout_id)
    told = [place for place in range(len(table)) if "GPU_I_ID" in table.labels[place]]
    assert int(np.count_nonzero(~np.isnan(table.clean(first.values)[told]))) == numbers["instance_values"]
    per_gpu: dict[int, list[float]] = {}
    for frame in one.frames():
        assert frame.layout_id is not None
        assert frame.values is not None
        energy = layout_table(frame.layout_id)
        for place in energy.places_of("gpu_energy_joules_total").tolist():
            per_gpu.setdefault(int(energy.gpu_ids[place]), []).append(float(energy.clean(frame.values)[place]))
    assert all(len(values) == 2 and values[1] >= values[0] for values in per_gpu.values())


def test_case_016_pod_labels_come_and_go(flow: Callable[[str], Flow]) -> None:
    parts, numbers = bodies("016", "t000.prom", "t015.prom", "t030.prom", "t045.prom", "t060.prom")
    one = flow("gpu-n19")
    for n, body in enumerate(parts):
        one.scrape(body, 15 * n)
    assert Series.objects.count() == numbers["series"]
    assert one.values("gpu_utilization_ratio") == [0.97] * numbers["values"]
    rows = Assignment.objects.order_by("starts_at")
    assert [row.job for row in rows] == numbers["jobs"]
    assert [(row.starts_at, row.ends_at) for row in rows] == [
        (START, START + timedelta(seconds=60)),
        (START + timedelta(seconds=60), None),
    ]


def test_a_pod_that_stays_away_ended_when_its_labels_did(flow: Callable[[str], Flow]) -> None:
    parts, _ = bodies("016", "t000.prom", "t030.prom")
    one = flow("gpu-n19")
    one.scrape(parts[0], 0)
    ends: list[datetime | None] = []
    for n in (1, 2, 3, 4):
        one.scrape(parts[1], 15 * n)
        ends.append(Assignment.objects.get().ends_at)
    assert ends == [None, None, START + timedelta(seconds=15), START + timedelta(seconds=15)]
    one.scrape(parts[0], 75)
    assert Assignment.objects.count() == 2


def test_case_017_the_host_label_lies(flow: Callable[[str], Flow]) -> None:
    parts, numbers = bodies("017", "t000.prom", "t015.prom", "t030.prom", "t045.prom")
    one = flow("gpu-n20")
    results = [one.scrape(body, 15 * n) for n, body in enumerate(parts)]
    assert [r.statuses[0].reason for r in results] == [""] * 4
    assert Node.objects.count() == numbers["nodes"]
    assert Gpu.objects.count() == numbers["gpu_records"]
    assert sum(frame.values.size for frame in one.frames() if frame.values is not None) == numbers["values"]
    assert Series.objects.count() == 1


def test_case_018_a_driver_upgrade(flow: Callable[[str], Flow]) -> None:
    parts, numbers = bodies("018", "t000.prom", "t600.prom", "t1200.prom", "t1800.prom")
    one = flow("gpu-n21")
    for n, body in enumerate(parts):
        one.scrape(body, 600 * n)
    assert Gpu.objects.count() == numbers["gpu_records"]
    assert Series.objects.count() == numbers["series"]
    assert sum(frame.values.size for frame in one.frames() if frame.values is not None) == numbers["values"]
    history = NodeEvent.objects.filter(kind="driver").order_by("at").values_list("text", flat=True)
    assert list(history) == ["driver 550.127.08", "driver 550.127.08 to 570.86.15"]
    assert len(history) == numbers["driver_history"]
    assert NodeEvent.objects.exclude(kind="driver").count() == 0
    assert one.values("gpu_xid_code") == [0.0] * 4


def test_case_019_numbers_that_are_no_values(flow: Callable[[str], Flow]) -> None:
    (body,), numbers = bodies("019", "input.prom")
    result = flow("gpu-n22").scrape(body, 0)
    (status,) = result.statuses
    assert (status.accepted, status.rejected, status.missing) == (numbers["samples"], 0, numbers["missing"])


def test_case_012_our_clock_steps_back(flow: Callable[[str], Flow]) -> None:
    parts, numbers = bodies("012", "t000.prom", "t015.prom", "t030.prom", "t045.prom")
    one = flow("gpu-n12")
    for body, seconds in zip(parts, (60, 75, 0, 15), strict=True):
        one.scrape(body, seconds)
    frames = one.frames()
    assert [frame.scraped_at - START.timestamp() for frame in frames] == [0, 15, 60, 75]
    assert sum(frame.accepted for frame in frames) == numbers["samples_accepted"]
