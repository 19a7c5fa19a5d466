"""What one query may cost. Every limit has its own sentence."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from gpufleet.promql.errors import ExecutionFailed, QueryTimeout


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_samples` counts what is held at once, in float64: read samples, and steps of every vector on the way."""

    max_points: int = 11_000
    max_series: int = 50_000
    max_samples: int = 50_000_000
    timeout_seconds: float = 30.0
    lookback_millis: int = 300_000
    subquery_step_millis: int = 60_000


@dataclass(slots=True)
class Budget:
    """What is left of the limits of one query. `clock` is monotonic, in seconds."""

    limits: Limits
    clock: Callable[[], float] = time.monotonic
    spent: int = 0
    ends_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.ends_at = self.clock() + self.limits.timeout_seconds

    @property
    def seconds_left(self) -> float:
        return self.ends_at - self.clock()

    def check_time(self) -> None:
        """Raises QueryTimeout when the time is over."""
        if self.seconds_left <= 0:
            raise QueryTimeout(f"the query took longer than {self.limits.timeout_seconds:g} s")

    def take(self, series: int, samples: int) -> None:
        """Counts `samples` of `series` series. Raises ExecutionFailed or QueryTimeout at the limit."""
        self.check_time()
        if series > self.limits.max_series:
            raise ExecutionFailed(f"the query selects or makes more than {self.limits.max_series:,} series")
        self.spent += samples
        if self.spent > self.limits.max_samples:
            raise ExecutionFailed(
                f"the query would hold more than {self.limits.max_samples:,} samples:"
                " ask for fewer series, a shorter time or a longer step"
            )
