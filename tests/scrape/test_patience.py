"""Sick targets are asked less often, the others are not, and nobody is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import Server, Wire

from gpufleet.fleet.actions import import_targets
from gpufleet.fleet.models import LIVE, Cluster
from gpufleet.fleet.queries import active_targets
from gpufleet.fleet.specs import TargetSpec
from gpufleet.scrape.collector import Collector
from gpufleet.scrape.patience import Patience


def asked(patience: Patience, reasons: Callable[[int], str], cycles: int) -> list[int]:
    """The cycles in which target 1 was asked; `reasons` says how each went."""
    found = []
    for cycle in range(100, 100 + cycles):
        if not patience.resting(1, cycle):
            patience.note(1, reasons(cycle), 0.0, cycle)
            found.append(cycle - 100)
    return found


def test_a_target_that_hangs_is_asked_less_and_less_often() -> None:
    assert asked(Patience(15), lambda _: "timeout", 24) == [0, 1, 2, 3, 4, 6, 10, 14, 18, 22]
    assert asked(Patience(5), lambda _: "cut off", 40) == [0, 1, 2, 3, 4, 6, 10, 18, 30]


@pytest.mark.parametrize("reason", ["", "refused", "http status", "no GPU samples", "dns"])
def test_others_are_asked_at_the_full_pace(reason: str) -> None:
    assert asked(Patience(15), lambda _: reason, 12) == list(range(12))


def test_one_good_answer_is_health() -> None:
    found = asked(Patience(15), lambda cycle: "" if cycle == 106 else "timeout", 13)
    assert found == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]


def test_a_clock_that_is_set_back_keeps_nobody_waiting() -> None:
    patience = Patience(15)
    for cycle in range(1000, 1010):
        patience.note(1, "timeout", 10.0, cycle)
    assert patience.resting(1, 1010) == "timeout"
    assert patience.resting(1, 500) == ""


def test_the_others_do_not_wait_long_for_one_that_hung() -> None:
    patience = Patience(15)
    waited = []
    for cycle in range(9):
        waited.append(patience.seconds(1, 10.0))
        patience.note(1, "timeout", waited[-1], cycle)
    assert waited == [10, 2, 2, 2, 10, 2, 2, 2, 10]
    patience.note(1, "", 3.0, 20)
    assert patience.seconds(1, 10.0) == 10
    patience.note(1, "timeout", 10.0, 21)
    assert patience.seconds(1, 10.0) == 6, "twice of what its last good answer took"
    patience.note(1, "refused", 0.0, 22)
    assert patience.seconds(1, 10.0) == 10


@given(st.lists(st.sampled_from(["", "timeout", "cut off", "refused"]), min_size=1, max_size=60), st.integers(1, 300))
def test_nobody_rests_longer_than_a_minute(reasons: list[str], interval: int) -> None:
    patience = Patience(interval)
    cycles = asked(patience, lambda cycle: reasons[(cycle - 100) % len(reasons)], 300)
    longest = max(1, 60 // interval)
    assert all(later - earlier <= longest for earlier, later in zip(cycles, cycles[1:], strict=False))


@pytest.mark.django_db
def test_a_resting_target_has_its_failed_frame_and_costs_nothing(
    serve: Callable[..., Server], make_collector: Callable[..., Collector]
) -> None:
    async def handler(wire: Wire) -> None:
        if wire.path == "/hangs":
            await asyncio.sleep(30)
        await wire.answer(b"node_load1 1\n")

    server = serve(handler)
    now = datetime.now(tz=UTC)
    specs = [TargetSpec(server.url(path), path[1:], LIVE, job="node") for path in ("/hangs", "/well")]
    import_targets(specs, source="test", actor="test", now=now, trusted=True)
    cluster = Cluster.objects.get()
    targets = {target.node: target for target in active_targets(cluster.id)}
    collector = make_collector(interval_seconds=0.3)
    told: list[Any] = []
    for cycle in range(8):
        result = collector.scrape(cluster, list(targets.values()), cycle, now)
        frames = {frame.target_id: frame for frame in result.frames}
        assert frames[targets["well"].id].reason == ""
        assert frames[targets["hangs"].id].reason == "timeout"
        told.append(len(result.statuses))
    assert told == [2, 2, 2, 2, 2, 1, 2, 1]
    assert (server.requests.count("/hangs"), server.requests.count("/well")) == (6, 8)
