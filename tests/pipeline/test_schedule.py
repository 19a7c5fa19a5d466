"""The clock of the cycles: one tick in every wall-clock slot, however late each one is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from celery import Celery
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.schedule import Beat, WallClock, beat_schedule

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


def test_the_table() -> None:
    table = beat_schedule(15)
    assert table["tick"] == {
        "task": "pipeline.tick",
        "schedule": WallClock(15),
        "options": {"queue": "scrape", "expires": 15},
    }
    assert table.keys() > {"tick", "sweep", "keep_partitions"}
    assert beat_schedule(5)["tick"]["schedule"] != table["tick"]["schedule"]


def test_a_new_beat_sends_at_once_what_the_one_before_may_not_have_sent(tmp_path: Path) -> None:
    file = tmp_path / "beat-schedule"
    sent: list[str] = []

    class Told(Beat):
        def apply_async(self, entry: Any, producer: Any = None, advance: bool = True, **kwargs: Any) -> None:
            sent.append(entry.task)
            self._do_sync()

        producer = None

    table = beat_schedule(15)
    app = Celery(set_as_current=False)
    app.conf.update(beat_schedule=table, result_expires=None)
    beat = Told(app, schedule_filename=str(file))
    assert not file.exists()
    # One task a tick, as Celery's beat goes on; the slots of the table are too long to come again within this test.
    for _ in table:
        assert beat.tick() == 0
    assert sorted(sent) == sorted(job["task"] for job in table.values())
    assert beat.tick() > 0
    assert file.exists()
