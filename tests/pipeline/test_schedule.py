"""The clock of the cycles: one tick in every wall-clock slot, however late each one is."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gpufleet.schedule import WallClock, beat_schedule

NOON = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


def schedule_at(seconds: int, now: datetime) -> WallClock:
    return WallClock(seconds, nowfun=lambda: now)


def test_due_at_the_beginning_of_the_next_slot() -> None:
    last = NOON + timedelta(seconds=14.9)
    early = schedule_at(15, NOON + timedelta(seconds=14.95)).is_due(last)
    assert (early.is_due, round(early.next, 3)) == (False, 0.05)
    due = schedule_at(15, NOON + timedelta(seconds=15)).is_due(last)
    assert (due.is_due, due.next) == (True, 15.0)


def test_a_clock_that_was_set_back_does_not_stop_the_ticks() -> None:
    assert schedule_at(15, NOON).is_due(NOON + timedelta(hours=1)).is_due


@given(st.lists(st.floats(0.0, 0.9), min_size=20, max_size=60), st.integers(1, 300))
def test_no_slot_is_missed_whatever_each_tick_is_late(delays: list[float], seconds: int) -> None:
    """Each run is late by a part of a slot; the wait until the next is what the schedule says."""
    now = last = NOON
    slots: list[int] = []
    for delay in delays:
        found = schedule_at(seconds, now).is_due(last)
        if found.is_due:
            slots.append(int(now.timestamp() // seconds))
            last = now
        now = datetime.fromtimestamp((now.timestamp() // seconds + 1) * seconds + delay * seconds, tz=UTC)
    assert slots == list(range(slots[0], slots[0] + len(slots)))


def test_it_survives_beats_memory() -> None:
    table = beat_schedule(15)
    assert pickle.loads(pickle.dumps(table)) == table  # noqa: S301 - our own bytes
    assert beat_schedule(5)["tick"]["schedule"] != table["tick"]["schedule"]
    assert table["tick"]["options"] == {"queue": "scrape", "expires": 15}
