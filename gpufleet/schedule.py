"""All periodic jobs, in one table."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from celery.schedules import BaseSchedule, schedstate


class WallClock(BaseSchedule):
    """Runs once in every wall-clock slot of `seconds`, at its beginning.

    Celery's own interval counts from the last run, so it drifts by some milliseconds each time; one day a run would
    fall into the slot after the next, and a cycle would be missed.
    """

    def __init__(self, seconds: int, nowfun: Any = None, app: Any = None) -> None:
        self.seconds = seconds
        super().__init__(nowfun=nowfun, app=app)

    def is_due(self, last_run_at: datetime) -> schedstate:
        """Due when the last run was in another slot, also a later one: then the clock was set back."""
        now = self.now().timestamp()
        slot = now // self.seconds
        return schedstate(is_due=last_run_at.timestamp() // self.seconds != slot, next=(slot + 1) * self.seconds - now)

    def remaining_estimate(self, last_run_at: datetime) -> Any:
        raise NotImplementedError("beat asks is_due alone")

    def __reduce__(self) -> tuple[type[WallClock], tuple[int]]:
        return type(self), (self.seconds,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WallClock) and other.seconds == self.seconds

    def __hash__(self) -> int:
        return hash(self.seconds)

    def __repr__(self) -> str:
        return f"<every wall-clock slot of {self.seconds} s>"


def beat_schedule(interval_seconds: int) -> dict[str, dict[str, Any]]:
    """Celery's beat table. A job that could not start within its period is dropped: a late scrape is a lie."""
    return {
        "tick": {
            "task": "pipeline.tick",
            "schedule": WallClock(interval_seconds),
            "options": {"queue": "scrape", "expires": interval_seconds},
        },
        "sweep": {
            "task": "pipeline.sweep",
            "schedule": 10.0,
            "options": {"queue": "maintain", "expires": 10},
        },
        "seal": {
            "task": "pipeline.seal",
            "schedule": 10.0,
            "options": {"queue": "maintain", "expires": 10},
        },
        "keep_partitions": {
            "task": "pipeline.keep_partitions",
            "schedule": 600.0,
            "options": {"queue": "maintain", "expires": 600},
        },
    }
