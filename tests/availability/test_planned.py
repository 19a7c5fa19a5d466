"""Announced maintenance in the ledger and in the figures: exact to the second, whatever the scrapes noticed."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from shared import case

from gpufleet.availability.ledger import GpuTold, NodeTold, record
from gpufleet.availability.models import StateInterval
from gpufleet.availability.queries import availability
from gpufleet.fleet.models import Cluster, Gpu, MaintenanceWindow, Node

pytestmark = pytest.mark.django_db
DAY = datetime(2026, 3, 10, tzinfo=UTC)
STEP = timedelta(seconds=15)


@pytest.fixture
def node(db: None) -> Node:
    return Node.objects.create(cluster=Cluster.objects.create(name="default"), name="gpu-n01")


@pytest.fixture
def gpu(node: Node) -> Gpu:
    return Gpu.objects.create(cluster=node.cluster, uuid="GPU-1", first_seen_at=DAY, last_seen_at=DAY)


def say(
    node: Node, gpu: Gpu, at: datetime, state: str, until: datetime | None = None, incident: int | None = None
) -> None:
    told = NodeTold(
        node.pk, at, until or at + STEP, state, incident_id=incident, gpus={gpu.pk: GpuTold(state, (), incident)}
    )
    record(node.cluster, [told], at)


def announce(node: Node, start: datetime, end: datetime) -> None:
    MaintenanceWindow.objects.create(
        node=node, starts_at=start, ends_at=end, reason="riser swap", created_by="ana", created_at=start
    )


def pieces(gpu: Gpu) -> list[tuple[str, float]]:
    rows = StateInterval.objects.filter(gpu=gpu).order_by("starts_at")
    return [(row.state, (row.starts_at - DAY).total_seconds()) for row in rows]


def figures(node: Node, start: datetime, end: datetime) -> dict[str, float]:
    (row,) = availability(node.cluster, start, end, "gpu", now=end)
    names = ("up", "down", "planned", "unknown", "out_of_service")
    found = {name: row[f"{name}_seconds"] for name in names if row[f"{name}_seconds"]}
    assert sum(found.values()) == (end - start).total_seconds()
    return {**found, "incidents": row["incidents"]}


def test_case_037_window_entered_the_day_after_counts_whole(node: Node, gpu: Gpu) -> None:
    """The outage in the window was told as failed; the window of 5 March is entered on the 6th."""
    _, expected = case("037")
    start, end = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
    outages = [(datetime(2026, 3, 5, 2, 10, tzinfo=UTC), datetime(2026, 3, 5, 5, 50, tzinfo=UTC), 1),
               (datetime(2026, 3, 12, 10, tzinfo=UTC), datetime(2026, 3, 12, 11, 30, tzinfo=UTC), 2)]  # fmt: skip
    before = start
    for down, up, incident in outages:
        say(node, gpu, before, "healthy", until=down)
        say(node, gpu, down, "failed", until=up, incident=incident)
        before = up
    say(node, gpu, before, "healthy", until=end)
    assert figures(node, start, end)["down"] == 13200 + 5400
    announce(node, datetime(2026, 3, 5, 2, tzinfo=UTC), datetime(2026, 3, 5, 6, tzinfo=UTC))
    numbers = expected["numbers"]
    up = numbers["total_s"] - numbers["planned_s"] - numbers["unplanned_s"]
    assert figures(node, start, end) == {
        "up": up, "down": numbers["unplanned_s"], "planned": numbers["planned_s"], "incidents": 1,
    }  # fmt: skip
    (row,) = availability(node.cluster, start, end, "fleet", now=end)
    assert math.floor(row["availability_ratio"] * 1e8) / 1e6 == numbers["availability_percent"]


def test_planned_time_begins_and_ends_between_two_scrapes(node: Node, gpu: Gpu) -> None:
    announce(node, DAY + timedelta(seconds=20), DAY + timedelta(seconds=50))
    for seconds, state in ((0, "healthy"), (15, "healthy"), (30, "maintenance"), (45, "maintenance"), (60, "healthy")):
        say(node, gpu, DAY + timedelta(seconds=seconds), state)
    assert pieces(gpu) == [("healthy", 0), ("maintenance", 20), ("healthy", 50)]
    assert figures(node, DAY, DAY + timedelta(seconds=75)) == {"up": 45, "planned": 30, "incidents": 0}


def test_collector_that_sleeps_over_the_end_of_a_window_knows_nothing_after_it(node: Node, gpu: Gpu) -> None:
    announce(node, DAY + timedelta(seconds=15), DAY + timedelta(seconds=100))
    for seconds, state in ((0, "healthy"), (15, "maintenance"), (300, "healthy")):
        say(node, gpu, DAY + timedelta(seconds=seconds), state)
    assert pieces(gpu) == [("healthy", 0), ("maintenance", 15), ("unknown", 100), ("healthy", 300)]


def test_collector_that_sleeps_over_the_begin_of_a_window(node: Node, gpu: Gpu) -> None:
    announce(node, DAY + timedelta(seconds=100), DAY + timedelta(seconds=400))
    say(node, gpu, DAY, "healthy")
    say(node, gpu, DAY + timedelta(seconds=300), "maintenance")
    assert pieces(gpu) == [("healthy", 0), ("unknown", 15), ("maintenance", 100)]


def test_outage_that_outlasts_its_window_is_one_outage(node: Node, gpu: Gpu) -> None:
    say(node, gpu, DAY, "failed", until=DAY + timedelta(hours=10))
    announce(node, DAY + timedelta(hours=2), DAY + timedelta(hours=4))
    assert figures(node, DAY, DAY + timedelta(hours=10)) == {"down": 8 * 3600, "planned": 7200, "incidents": 1}
    assert figures(node, DAY + timedelta(hours=3), DAY + timedelta(hours=10))["incidents"] == 0


def test_window_of_another_node_changes_nothing(node: Node, gpu: Gpu) -> None:
    announce(Node.objects.create(cluster=node.cluster, name="gpu-n02"), DAY, DAY + timedelta(hours=1))
    say(node, gpu, DAY, "failed", until=DAY + timedelta(hours=1))
    assert figures(node, DAY, DAY + timedelta(hours=1)) == {"down": 3600, "incidents": 1}


def test_board_that_moved_is_out_of_service_where_it_is_not(node: Node, gpu: Gpu) -> None:
    other = Node.objects.create(cluster=node.cluster, name="gpu-n02")
    say(node, gpu, DAY, "healthy", until=DAY + timedelta(hours=1))
    say(other, gpu, DAY + timedelta(hours=1), "healthy", until=DAY + timedelta(hours=3))
    rows = availability(node.cluster, DAY, DAY + timedelta(hours=3), "node", now=DAY + timedelta(hours=3))
    told = {row["subject"]: (row["gpu_count"], row["up_seconds"], row["out_of_service_seconds"]) for row in rows}
    assert told == {"gpu-n01": (1, 3600, 7200), "gpu-n02": (1, 7200, 3600)}
