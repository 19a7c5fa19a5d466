"""Growth of counters that begin again at zero now and then. Pure arithmetic on readings in order of time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpufleet.store.frames import FloatArray

BoolArray = npt.NDArray[np.bool_]

# A drop of less than this share of the largest reading so far is jitter of the exporter, not a new beginning: energy
# counters slip back by a unit now and then. Counts of events (whole, small) never do.
JITTER_RATIO = 0.01
# Below this reading nothing can be told from a share: the counter 100 -> 99.5 of events is a reset.
JITTER_FROM = 1000.0


class Growth(NamedTuple):
    """Arrays like the readings. `increase`: since the reading before, NaN where there was none before or is none now.

    `reset`: the counter began again; its increase is counted from zero and is a lower bound.
    """

    increase: FloatArray
    reset: BoolArray

    @property
    def total(self) -> float:
        """Growth over all readings; NaN with fewer than two."""
        there = ~np.isnan(self.increase)
        return float(self.increase[there].sum()) if there.any() else float("nan")

    @property
    def resets(self) -> int:
        return int(np.count_nonzero(self.reset))


def increase(readings: FloatArray) -> Growth:
    """Growth of one counter; `readings` (n) in order of time, NaN for a gap, over which the growth is still counted.

    Never negative. A drop within JITTER_RATIO keeps the running maximum: what follows counts from there.
    """
    grown = np.full(readings.shape, np.nan)
    reset = np.zeros(readings.shape, dtype=np.bool_)
    places = np.flatnonzero(~np.isnan(readings))
    present = readings[places]
    if present.size < 2:
        return Growth(grown, reset)
    begins = _begins(present)
    # Within a life of the counter the running maximum is what it has reached.
    reached = present.copy()
    edges = [0, *np.flatnonzero(begins).tolist(), present.size]
    for first, after in zip(edges[:-1], edges[1:], strict=True):
        reached[first:after] = np.maximum.accumulate(present[first:after])
    steps = np.diff(reached)
    grown[places[1:]] = np.where(begins[1:], np.maximum(present[1:], 0.0), steps)
    reset[places] = begins
    return Growth(grown, reset)


def _begins(present: FloatArray) -> BoolArray:
    """Where a life of the counter begins, the first one left out."""
    begins = np.zeros(present.shape, dtype=np.bool_)
    reached = present[0]
    # Only drops are looked at one by one: there are few.
    start = 0
    for place in (np.flatnonzero(np.diff(present) < 0) + 1).tolist():
        reached = max(reached, present[start:place].max())
        if not _is_jitter(present[place], reached):
            begins[place], reached = True, present[place]
        start = place
    return begins


def _is_jitter(reading: float, reached: float) -> bool:
    return reached >= JITTER_FROM and reached - reading < JITTER_RATIO * reached


def rate(times: FloatArray, readings: FloatArray) -> FloatArray:
    """Growth per second since the reading before; NaN where it is not known or no time has passed.

    `times` (n) in seconds, in order: those of a monotonic clock where there is one.
    """
    places = np.flatnonzero(~np.isnan(readings))
    grown = increase(readings).increase
    rates = np.full(readings.shape, np.nan)
    if places.size > 1:
        passed = np.diff(times[places])
        rates[places[1:]] = np.divide(grown[places[1:]], passed, out=np.full(passed.shape, np.nan), where=passed > 0)
    return rates
