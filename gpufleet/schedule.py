"""All periodic jobs, in one table, and the beat that sends them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from celery.beat import Scheduler
from celery.schedules import BaseSchedule, schedstate

from gpufleet.core.times import from_unix, utc_now

# What to run, how often (seconds), on which queue. The tick's period is the interval of the settings.
JOBS = (
    ("pipeline.sweep", 10, "maintain"),
    ("pipeline.seal", 10, "maintain"),
    ("pipeline.sync_sources", 10, "maintain"),
    ("pipeline.keep_partitions", 600, "maintain"),
)


class WallClock(BaseSchedule):
    """Runs once in every wall-clock slot of `seconds`, at its beginning.

    Celery's own interval counts from the last run, so it drifts by some milliseconds each time; one day a run would
    fall into the slot after the next, and a cycle would be missed.
    """

    def __init__(self, seconds: int, nowfun: Any = None, app: Any = None) -> None:
        self.seconds = seconds
        self._now = nowfun or utc_now
        super().__init__(nowfun=nowfun, app=app)

    def now(self) -> datetime:
        """Celery's own way over time zones costs beat more than all the rest that it does."""
        found: datetime = self._now()
        return found

    def is_due(self, last_run_at: datetime) -> schedstate:
        """Due when the last run was in another slot, also a later one: then the clock was set back."""
        now = self.now().timestamp()
        slot = now // self.seconds
        return schedstate(is_due=last_run_at.timestamp() // self.seconds != slot, next=(slot + 1) * self.seconds - now)

    def remaining_estimate(self, last_run_at: datetime) -> Any:
        raise NotImplementedError("beat asks is_due alone")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WallClock) and other.seconds == self.seconds

    def __hash__(self) -> int:
        return hash(self.seconds)

    def __repr__(self) -> str:
        return f"<every wall-clock slot of {self.seconds} s>"


class Beat(Scheduler):
    """Remembers nothing: what is due in a slot may be sent twice, since every job may run twice.

    So a beat that starts in the middle of a slot sends at once what the one before may not have sent. Each time it has
    sent a job it touches its file (`beat -s FILE`), whose age tells whether it lives.
    """

    def __init__(self, *args: Any, schedule_filename: str = "", **kwargs: Any) -> None:
        self._file = Path(schedule_filename) if schedule_filename else None
        super().__init__(*args, **kwargs)

    def setup_schedule(self) -> None:
        super().setup_schedule()
        for entry in self.schedule.values():
            entry.last_run_at = from_unix(0)

    def adjust(self, n: float, drift: float = 0.0) -> float:
        """Celery wakes 10 ms early, and would then ask a hundred times whether the slot has begun."""
        return n

    def schedules_equal(self, *_: object) -> bool:
        """The table is part of the program."""
        return True

    def sync(self) -> None:
        if self._file is not None:
            self._file.touch()


def beat_schedule(interval_seconds: int) -> dict[str, dict[str, Any]]:
    """Celery's beat table. A job that could not start within its period is dropped: a late scrape is a lie."""
    return {
        task.partition(".")[2]: {
            "task": task,
            "schedule": WallClock(seconds),
            "options": {"queue": queue, "expires": seconds},
        }
        for task, seconds, queue in (("pipeline.tick", interval_seconds, "scrape"), *JOBS)
    }
