"""The ledger in the database, and the figures of a report: worked cases with their exact numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from shared import case

from gpufleet.availability.ledger import GpuTold, NodeTold, record
from gpufleet.availability.models import LedgerHead, StateInterval
from gpufleet.availability.queries import availability, cut, intervals
from gpufleet.fleet.models import Cluster, Gpu, Node, Placement, Rack

DAY = datetime(2026, 3, 10, tzinfo=UTC)
STEP = timedelta(seconds=15)


def make_node(name: str = "gpu-n01", gpus: int = 1, rack: str = "R01") -> tuple[Node, list[Gpu]]:
    cluster, _ = Cluster.objects.get_or_create(name="default")
    place, _ = Rack.objects.get_or_create(cluster=cluster, name=rack)
    node = Node.objects.create(cluster=cluster, name=name, rack=place)
    made = [
        Gpu.objects.create(cluster=cluster, uuid=f"GPU-{name}-{slot}", first_seen_at=DAY, last_seen_at=DAY)
        for slot in range(gpus)
    ]
    for slot, gpu in enumerate(made):
        Placement.objects.create(gpu=gpu, node=node, slot=slot, starts_at=DAY)
    return node, made


def tell_all(
    node: Node, gpus: list[Gpu], at: datetime, states: dict[int, str] | str, until: datetime | None = None
) -> int:
    """One scrape of a node: `states` by place of the GPU (healthy where it is not named), or one for all."""
    of = [states if isinstance(states, str) else states.get(place, "healthy") for place in range(len(gpus))]
    told = {gpu.pk: GpuTold(state) for gpu, state in zip(gpus, of, strict=True)}
    worst = "failed" if set(of) == {"failed"} else "healthy"
    return record(node.cluster, [NodeTold(node.pk, at, until or at + STEP, worst, gpus=told)], at)


def tell_at(node: Node, gpus: list[Gpu], changes: Iterable[tuple[datetime, str]], end: datetime) -> None:
    """The state of all GPUs from each moment on; told again at `end`, so that the time between is covered."""
    steps = [*changes]
    for (at, state), following in zip(steps, [*(at for at, _ in steps[1:]), end], strict=True):
        tell_all(node, gpus, at, state, until=following)
    tell_all(node, gpus, end, steps[-1][1])


def percent(ratio: float) -> float:
    return math.floor(ratio * 100 * 1e6) / 1e6


def down(ranges: list[list[str]]) -> list[tuple[datetime, str]]:
    found = []
    for start, end in ranges:
        found += [(datetime.fromisoformat(start), "failed"), (datetime.fromisoformat(end), "healthy")]
    return found


@pytest.mark.django_db
def test_nothing_new_costs_three_queries_and_writes_no_interval() -> None:
    node, gpus = make_node(gpus=8)
    tell_all(node, gpus, DAY, "healthy")
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert tell_all(node, gpus, DAY + STEP, "healthy") == 0
    asked = [query["sql"] for query in queries if "SAVEPOINT" not in query["sql"]]
    assert len(asked) == 3
    assert StateInterval.objects.count() == 9
    assert LedgerHead.objects.get().told_until == DAY + 2 * STEP


@pytest.mark.django_db
def test_same_word_twice_changes_nothing() -> None:
    node, gpus = make_node(gpus=2)
    tell_all(node, gpus, DAY, "healthy")
    assert tell_all(node, gpus, DAY + STEP, {1: "failed"}) == 1
    before = list(StateInterval.objects.order_by("pk").values())
    assert tell_all(node, gpus, DAY + STEP, {1: "failed"}) == 0
    assert list(StateInterval.objects.order_by("pk").values()) == before


@pytest.mark.django_db
def test_board_that_is_placed_nowhere_is_out_of_service_and_one_that_moved_is_told_by_its_new_node() -> None:
    node, gpus = make_node(gpus=2)
    other, _ = make_node("gpu-n02", gpus=0)
    tell_all(node, gpus, DAY, "healthy")
    Placement.objects.filter(gpu=gpus[0]).update(ends_at=DAY + STEP)
    Placement.objects.filter(gpu=gpus[1]).update(node=other)
    tell_all(node, [], DAY + STEP, "healthy")
    tell_all(other, gpus[1:], DAY + STEP, "healthy")
    assert StateInterval.objects.get(gpu=gpus[0], ends_at=None).state == "out_of_service"
    assert StateInterval.objects.get(gpu=gpus[1], ends_at=None).node == other


@pytest.mark.django_db
def test_case_037_planned_time_is_outside() -> None:
    _, expected = case("037")
    numbers = expected["numbers"]
    node, gpus = make_node()
    start, end = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC)
    changes = [
        (start, "healthy"),
        (datetime(2026, 3, 5, 2, tzinfo=UTC), "maintenance"),
        (datetime(2026, 3, 5, 6, tzinfo=UTC), "healthy"),
        *down([["2026-03-12T10:00:00Z", "2026-03-12T11:30:00Z"]]),
    ]
    tell_at(node, gpus, changes, end)
    (row,) = availability(node.cluster, start, end, "gpu", now=end)
    assert (row["planned_seconds"], row["down_seconds"], row["incidents"]) == (
        numbers["planned_s"],
        numbers["unplanned_s"],
        1,
    )
    assert percent(row["availability_ratio"]) == numbers["availability_percent"]
    assert (
        sum(row[f"{name}_seconds"] for name in ("up", "down", "planned", "unknown", "out_of_service"))
        == numbers["total_s"]
    )
    assert row["mttr_seconds"] == 5400


@pytest.mark.django_db
def test_case_038_days_of_23_and_25_hours() -> None:
    _, expected = case("038")
    zone, numbers = ZoneInfo("Europe/Berlin"), expected["numbers"]
    node, gpus = make_node()
    first = datetime(2026, 3, 1, tzinfo=UTC)
    ranges = [["2026-03-28T23:30:00Z", "2026-03-29T01:30:00Z"], ["2026-10-25T00:15:00Z", "2026-10-25T01:15:00Z"]]
    end = datetime(2026, 11, 1, tzinfo=UTC)
    tell_at(node, gpus, [(first, "healthy"), *down(ranges)], end)
    days = [(datetime(2026, 3, 29, tzinfo=zone), datetime(2026, 3, 30, tzinfo=zone)),
            (datetime(2026, 10, 25, tzinfo=zone), datetime(2026, 10, 26, tzinfo=zone))]  # fmt: skip
    rows = [availability(node.cluster, start, until, "gpu", now=end)[0] for start, until in days]
    assert [row["up_seconds"] + row["down_seconds"] for row in rows] == numbers["day_s"]
    assert [row["down_seconds"] for row in rows] == numbers["down_s"]
    # The case rounds; percentages here are cut.
    assert [percent(row["availability_ratio"]) for row in rows] == [91.304347, 96.0]


@pytest.mark.django_db
def test_case_039_outage_over_the_month_end() -> None:
    case("039")
    node, gpus = make_node()
    first, end = datetime(2026, 3, 31, tzinfo=UTC), datetime(2026, 6, 2, tzinfo=UTC)
    tell_at(node, gpus, [(first, "healthy"), *down([["2026-04-30T22:30:00Z", "2026-05-01T01:30:00Z"]])], end)
    figures, counted = {}, {}
    for name in ("UTC", "Asia/Tokyo"):
        zone = ZoneInfo(name)
        months = [datetime(2026, month, 1, tzinfo=zone) for month in (4, 5, 6)]
        rows = [
            availability(node.cluster, start, until, "fleet", now=end)[0]
            for start, until in zip(months, months[1:], strict=False)
        ]
        figures[name] = [percent(row["availability_ratio"]) for row in rows]
        counted[name] = [row["incidents"] for row in rows]
        assert sum(row["down_seconds"] for row in rows) == 10800
    assert figures == {"UTC": [99.791666, 99.798387], "Asia/Tokyo": [100.0, 99.596774]}
    assert counted == {"UTC": [1, 0], "Asia/Tokyo": [0, 1]}


@pytest.mark.django_db
def test_case_040_our_own_outage_is_unknown() -> None:
    _, expected = case("040")
    nodes = {name: make_node(name) for name in "ABC"}
    states: dict[str, Callable[[float], str]] = {
        "A": lambda hour: "healthy",
        "B": lambda hour: "failed" if 5.5 <= hour < 10 else "healthy",
        "C": lambda hour: "failed" if 12 <= hour < 12.5 else "healthy",
    }
    end = DAY + timedelta(days=1)
    at = DAY
    while at <= end:
        hour = (at - DAY).total_seconds() / 3600
        if not 6 <= hour < 9:
            for name, (node, gpus) in nodes.items():
                tell_all(node, gpus, at, states[name](hour), until=at + timedelta(seconds=300))
        at += timedelta(seconds=300)
    cluster = nodes["A"][0].cluster
    rows = {row["subject"]: row for row in availability(cluster, DAY, end, "node", now=end)}
    assert {name: row["unknown_seconds"] for name, row in rows.items()} == {"A": 10800, "B": 10800, "C": 10800}
    assert {name: row["down_seconds"] for name, row in rows.items()} == {"A": 0, "B": 5400, "C": 1800}
    figures = {name: percent(row["availability_ratio"]) for name, row in rows.items()}
    assert figures == {"A": 100.0, "B": 92.857142, "C": 97.619047}
    observed = rows["A"]["up_seconds"] + rows["A"]["down_seconds"]
    assert observed / 86400 * 100 == expected["numbers"]["coverage_percent"]


@pytest.mark.django_db
def test_case_041_time_counts_not_checks() -> None:
    _, expected = case("041")
    node, gpus = make_node()
    day, at = datetime(2026, 6, 2, tzinfo=UTC), datetime(2026, 6, 2, tzinfo=UTC)
    end = day + timedelta(days=1)
    while at < end:
        hour = (at - day).total_seconds() / 3600
        step = timedelta(seconds=60 if hour < 12 else 240)
        tell_all(node, gpus, at, "failed" if 18 <= hour < 19 else "healthy", until=at + step)
        at += step
    (row,) = availability(node.cluster, day, end, "gpu", now=end)
    assert percent(row["availability_ratio"]) == expected["numbers"]["availability_percent"]


@pytest.mark.django_db
def test_case_042_overlapping_causes_count_once() -> None:
    case("042")
    node, gpus = make_node(gpus=8)
    day = datetime(2026, 6, 3, tzinfo=UTC)
    end = day + timedelta(days=1)
    words: list[tuple[float, dict[int, str] | str, float]] = [
        (0, "healthy", 10), (10, "failed", 12), (12, {0: "failed"}, 13), (13, "healthy", 24),
    ]  # fmt: skip
    for hour, states, until in words:
        tell_all(node, gpus, day + timedelta(hours=hour), states, until=day + timedelta(hours=until))
    rows = availability(node.cluster, day, end, "gpu", now=end)
    assert [percent(row["availability_ratio"]) for row in rows] == [87.5, *([91.666666] * 7)]
    (whole,) = availability(node.cluster, day, end, "node", now=end)
    assert (percent(whole["availability_ratio"]), whole["gpu_count"]) == (91.145833, 8)


@pytest.mark.django_db
def test_period_ends_now_and_time_before_the_first_word_is_out_of_service() -> None:
    node, gpus = make_node()
    tell_all(node, gpus, DAY + timedelta(hours=1), "healthy", until=DAY + timedelta(hours=2))
    (row,) = availability(node.cluster, DAY, DAY + timedelta(days=30), "gpu", now=DAY + timedelta(hours=3))
    assert (row["out_of_service_seconds"], row["up_seconds"], row["unknown_seconds"]) == (3600, 3600, 3600)
    assert row["availability_ratio"] == 1.0


@pytest.mark.django_db
def test_without_up_and_down_there_is_no_ratio() -> None:
    node, gpus = make_node()
    tell_all(node, gpus, DAY, "unknown", until=DAY + timedelta(days=1))
    (row,) = availability(node.cluster, DAY, DAY + timedelta(days=1), "rack", now=DAY + timedelta(days=2))
    assert (row["subject"], row["availability_ratio"], row["mtbf_seconds"], row["mttr_seconds"]) == (
        "R01",
        None,
        None,
        None,
    )


@pytest.mark.django_db
def test_intervals_of_a_subject_are_read_in_order() -> None:
    node, gpus = make_node()
    tell_at(node, gpus, [(DAY, "healthy"), (DAY + STEP, "failed"), (DAY + 2 * STEP, "healthy")], DAY + 3 * STEP)
    found = intervals(gpu_id=gpus[0].pk, since=DAY + STEP, until=DAY + 2 * STEP)
    assert [(row.state, row.starts_at) for row in found] == [("failed", DAY + STEP)]


@pytest.mark.parametrize(("ratio", "shown"), [(1.0, 1.0), (1 - 1e-13, 0.999999999999), (2 / 3, 0.666666666666)])
def test_ratios_are_cut(ratio: float, shown: float) -> None:
    assert cut(ratio) == shown
