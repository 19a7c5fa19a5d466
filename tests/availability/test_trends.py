"""Failures per 1,000 node-days: exact intervals, calendar buckets, exposure, and what counts."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from factories import make_fleet, make_incident, tell
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.availability.models import LedgerHead, StateInterval
from gpufleet.availability.trends import (
    TooManyBuckets,
    at_least,
    at_most,
    calendar,
    poisson_interval,
    rate,
    trends,
)

DAY = timedelta(days=1)
MONDAY = datetime(2026, 3, 9, tzinfo=UTC)


# Garwood 1936; the usual table of exact 95 % limits.
@pytest.mark.parametrize(
    ("count", "low", "high"),
    [
        (0, 0.0, 3.6889),
        (1, 0.0253, 5.5716),
        (2, 0.2422, 7.2247),
        (5, 1.6235, 11.6683),
        (10, 4.7954, 18.3904),
        (50, 37.1110, 65.9183),
        (100, 81.3640, 121.6272),
    ],
)
def test_the_table(count: int, low: float, high: float) -> None:
    found = poisson_interval(count)
    assert found == (pytest.approx(low, abs=5e-4), pytest.approx(high, abs=5e-4))


@given(st.integers(0, 20_000))
def test_the_ends_hold_the_tails(count: int) -> None:
    low, high = poisson_interval(count)
    assert low <= count <= high
    assert at_most(count, high) == pytest.approx(0.025, rel=1e-6)
    if count:
        assert at_least(count, low) == pytest.approx(0.025, rel=1e-6)


@given(st.integers(0, 300), st.floats(1e-3, 400))
def test_the_tails_are_sums_of_the_law(count: int, mean: float) -> None:
    law = [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(count + 1)]
    assert at_most(count, mean) == pytest.approx(math.fsum(law), abs=1e-9)
    assert at_most(count, mean) + at_least(count + 1, mean) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(("count", "confidence"), [(-1, 0.95), (3, 0.0), (3, 1.0)])
def test_no_such_interval(count: int, confidence: float) -> None:
    with pytest.raises(ValueError, match="a count is 0 or more"):
        poisson_interval(count, confidence)


def test_no_exposure_no_rate() -> None:
    assert rate(0, 0.0) == {"rate_per_1000_node_days": None, "rate_low": None, "rate_high": None}


@pytest.mark.parametrize(
    ("bucket", "start", "end", "edges"),
    [
        ("day", MONDAY + 6 * DAY / 24, MONDAY + DAY * 2, ["09 06", "10 00", "11 00"]),
        ("week", MONDAY + DAY * 2, MONDAY + DAY * 9, ["11 00", "16 00", "18 00"]),
        ("month", MONDAY, datetime(2026, 5, 2, tzinfo=UTC), ["09 00", "01 00", "01 00", "02 00"]),
    ],
)
def test_buckets(bucket: str, start: datetime, end: datetime, edges: list[str]) -> None:
    found = calendar(start, end, bucket)
    assert [f"{one.starts_at:%d %H}" for one in found] + [f"{found[-1].ends_at:%d %H}"] == edges
    assert all(one.ends_at == after.starts_at for one, after in zip(found, found[1:], strict=False))


def test_december_ends_in_january() -> None:
    found = calendar(datetime(2026, 12, 5, tzinfo=UTC), datetime(2027, 1, 2, tzinfo=UTC), "month")
    assert found[0].ends_at == datetime(2027, 1, 1, tzinfo=UTC)


def test_four_hundred_buckets_at_most() -> None:
    assert len(calendar(MONDAY, MONDAY + 400 * DAY, "day")) == 400
    with pytest.raises(TooManyBuckets):
        calendar(MONDAY, MONDAY + 401 * DAY, "day")


@pytest.mark.django_db
def test_failures_and_exposure_by_everything() -> None:
    """Three nodes in three racks, known for ten days; the third one out of service from the fifth day on."""
    now = MONDAY + 10 * DAY
    fleet = make_fleet(now, nodes=3)
    StateInterval.objects.all().delete()
    for node in fleet.nodes:
        tell(fleet, node, "healthy", MONDAY, now)
    tell(fleet, fleet.nodes[2], "out_of_service", MONDAY + 5 * DAY, now)
    LedgerHead.objects.update(told_until=now)
    day = 24 * 60
    make_incident(fleet, 0, now, slot=1, minutes=9 * day)
    make_incident(fleet, 0, now, kind="node_down", minutes=8 * day)
    make_incident(fleet, 1, now, slot=1, minutes=2 * day)
    make_incident(fleet, 1, now, slot=2, severity="warning", kind="thermal", minutes=2 * day)
    wrong = make_incident(fleet, 1, now, slot=3, minutes=2 * day)
    wrong.label = "false"
    wrong.save()

    def rows(by: str) -> list[dict[str, tuple[int, float]]]:
        found = trends(fleet.cluster, MONDAY, now, "week", by, now=now)
        return [
            {row["key"]: (row["failures"], round(row["node_days"], 6)) for row in bucket["rows"]} for bucket in found
        ]

    assert rows("kind") == [{"node_down": (1, 19.0), "xid": (1, 19.0)}, {"node_down": (0, 6.0), "xid": (1, 6.0)}]
    assert rows("node") == [
        {"gpu-001": (2, 7.0), "gpu-002": (0, 7.0), "gpu-003": (0, 5.0)},
        {"gpu-001": (0, 3.0), "gpu-002": (1, 3.0)},
    ]
    assert rows("rack") == [
        {"R01": (2, 7.0), "R02": (0, 7.0), "R03": (0, 5.0)},
        {"R01": (0, 3.0), "R02": (1, 3.0)},
    ]
    assert rows("model") == [{"NVIDIA B200": (2, 19.0)}, {"NVIDIA B200": (1, 6.0)}]
    first = trends(fleet.cluster, MONDAY, now, "week", "model", now=now)[0]["rows"][0]
    assert first["rate_per_1000_node_days"] == pytest.approx(2 / 19 * 1000)
    assert first["rate_low"] == pytest.approx(0.2422 / 19 * 1000, rel=1e-3)
    assert first["rate_high"] == pytest.approx(7.2247 / 19 * 1000, rel=1e-3)


@pytest.mark.django_db
def test_the_future_is_no_exposure() -> None:
    now = MONDAY + DAY
    fleet = make_fleet(now, nodes=1)
    found = trends(fleet.cluster, MONDAY, now + 30 * DAY, "day", "node", now=now)
    assert [bucket["ends_at"] for bucket in found] == [now]
    assert found[0]["rows"][0]["node_days"] == pytest.approx(1.0)
    assert trends(fleet.cluster, now, now + DAY, "day", "node", now=now) == []
