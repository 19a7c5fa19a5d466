"""Windows of samples, one a step, and what is worked out of each: rates, averages, regressions.

Every function takes `Windows` and gives (series, steps); steps with fewer samples than it needs are dropped after.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpufleet.promql.order import quantile_of
from gpufleet.promql.vectors import BoolArray, FloatArray, IntArray, Samples

MAX_CELLS = 2_000_000  # of a block of windows that are laid side by side
MAX_READ = 50_000_000  # samples that are read between two looks at the clock


@dataclass(frozen=True, slots=True)
class Windows:
    """The samples `[first, after)` of each step, closed at both ends: `starts` <= time <= `ends`.

    `times` (n) and `values` (k, n) without staleness markers; `starts`, `ends`, `at`, `first`, `after` (t).
    `at` are the steps themselves, `ends` those less the offset. `pulse` is called now and then in long work, and may
    raise.
    """

    times: IntArray
    values: FloatArray
    starts: IntArray
    ends: IntArray
    at: IntArray
    first: IntArray
    after: IntArray
    pulse: Callable[[], None]

    @classmethod
    def of(
        cls, samples: Samples, ends: IntArray, range_millis: int, at: IntArray, pulse: Callable[[], None]
    ) -> Windows:
        starts = ends - range_millis
        first = np.searchsorted(samples.times, starts, side="left")
        after = np.searchsorted(samples.times, ends, side="right")
        return cls(samples.times, samples.values, starts, ends, at, first, after, pulse)

    @property
    def count(self) -> IntArray:
        found: IntArray = self.after - self.first
        return found

    @property
    def oldest(self) -> IntArray:
        """Place of the first sample of each window; anywhere when it is empty."""
        return np.minimum(self.first, self.times.size - 1)

    @property
    def newest(self) -> IntArray:
        return np.maximum(self.after - 1, 0)

    def reduced(self, how: np.ufunc, values: FloatArray) -> FloatArray:
        """`how` over each window of `values` (k, n), one reading of each window and no differences of sums."""
        series, steps = values.shape[0], self.first.size
        padded = np.concatenate((values, np.zeros((series, 1))), axis=1)
        found = np.empty((series, steps))
        many = max(1, MAX_READ // (max(1, series) * max(1, int(self.count.max(initial=1)))))
        for low in range(0, steps, many):
            self.pulse()
            part = slice(low, min(steps, low + many))
            edges = np.empty(2 * (part.stop - low), dtype=np.int64)
            edges[::2], edges[1::2] = self.first[part], self.after[part]
            found[:, part] = how.reduceat(padded, edges, axis=1)[:, ::2]
        return found

    def side_by_side(self, work: Callable[..., FloatArray]) -> FloatArray:
        """`work(values (k, t, w), there (t, w), times (t, w), steps)` over all windows, some steps at a time."""
        series, steps = self.values.shape[0], self.first.size
        found = np.full((series, steps), np.nan)
        widest = max(1, int(self.count.max(initial=1)))
        many = max(1, MAX_CELLS // (widest * max(1, series)))
        for low in range(0, steps, many):
            self.pulse()
            part = slice(low, min(steps, low + many))
            wide = max(1, int(self.count[part].max(initial=1)))
            places = self.first[part, None] + np.arange(wide)
            there = places < self.after[part, None]
            places = np.minimum(places, self.times.size - 1)
            found[:, part] = work(self.values[:, places], there, self.times[places], part)
        return found


def extrapolated(windows: Windows, is_counter: bool, range_seconds: float | None) -> FloatArray:
    """Growth over each window, stretched to its edges as Prometheus does; per second with `range_seconds`."""
    w = windows
    first, last = w.values[:, w.oldest], w.values[:, w.newest]
    growth = last - first
    if is_counter:
        before, after = w.values[:, :-1], w.values[:, 1:]
        lost = np.zeros_like(w.values)
        lost[:, 1:] = np.where(after < before, before, 0.0)
        if lost.any():
            inside = replace(w, first=np.minimum(w.first + 1, w.after))
            growth = growth + np.where(inside.count > 0, inside.reduced(np.add, lost), 0.0)
    to_start = (w.times[w.oldest] - w.starts) / 1000.0 + np.zeros_like(growth)
    to_end = (w.ends - w.times[w.newest]) / 1000.0
    sampled = (w.times[w.newest] - w.times[w.oldest]) / 1000.0
    between = sampled / (w.count - 1)
    if is_counter:
        to_zero = sampled * (first / growth)
        rising = (growth > 0) & (first >= 0) & (to_zero < to_start)
        to_start = np.where(rising, to_zero, to_start)
    limit = between * 1.1
    reach = sampled + np.where(to_start < limit, to_start, between / 2)
    reach = reach + np.where(to_end < limit, to_end, between / 2)
    factor = reach / sampled
    if range_seconds is not None:
        factor = factor / range_seconds
    result: FloatArray = growth * factor
    return result


def instant_growth(windows: Windows, is_rate: bool) -> FloatArray:
    """Between the two newest samples of each window; per second, and from zero after a reset, with `is_rate`."""
    last_place = windows.newest
    before_place = np.maximum(last_place - 1, 0)
    last, before = windows.values[:, last_place], windows.values[:, before_place]
    if not is_rate:
        return last - before
    seconds = (windows.times[last_place] - windows.times[before_place]) / 1000.0
    return np.where(last < before, last, last - before) / seconds


def average(windows: Windows) -> FloatArray:
    return windows.reduced(np.add, windows.values) / windows.count


def spread(windows: Windows) -> FloatArray:
    """Population variance."""

    def work(values: FloatArray, there: BoolArray, times: IntArray, part: slice) -> FloatArray:
        count = there.sum(axis=1)
        mean = np.where(there, values, 0.0).sum(axis=2) / count
        off = np.where(there, values - mean[:, :, None], 0.0)
        found: FloatArray = (off * off).sum(axis=2) / count
        return found

    return windows.side_by_side(work)


def quantile(windows: Windows, share: FloatArray) -> FloatArray:
    def work(values: FloatArray, there: BoolArray, times: IntArray, part: slice) -> FloatArray:
        return quantile_of(values, np.broadcast_to(there, values.shape), share[part])

    return windows.side_by_side(work)


def changed(windows: Windows) -> FloatArray:
    before, after = windows.values[:, :-1], windows.values[:, 1:]
    return _steps_between(windows, (after != before) & ~(np.isnan(after) & np.isnan(before)))


def reset(windows: Windows) -> FloatArray:
    return _steps_between(windows, windows.values[:, 1:] < windows.values[:, :-1])


def _steps_between(windows: Windows, steps: BoolArray) -> FloatArray:
    """How many of `steps` (k, n - 1), each between two neighbours, lie inside each window."""
    total = np.zeros(windows.values.shape, dtype=np.int64)
    np.cumsum(steps, axis=1, out=total[:, 1:])
    found: FloatArray = (total[:, windows.newest] - total[:, windows.oldest]).astype(np.float64)
    return found


def slope(windows: Windows) -> FloatArray:
    return _regression(windows, windows.times[windows.oldest], None)


def predicted(windows: Windows, ahead_seconds: FloatArray) -> FloatArray:
    return _regression(windows, windows.at, ahead_seconds)


def _regression(windows: Windows, origins: IntArray, ahead: FloatArray | None) -> FloatArray:
    """Least squares; the slope, or the line's value `ahead` seconds after the origin.

    Sums are kept in extended precision, where Prometheus compensates: what is left of two large ones is the result.
    """

    def work(values: FloatArray, there: BoolArray, times: IntArray, part: slice) -> FloatArray:
        x = np.where(there, (times - origins[part, None]) / 1000.0, 0.0)
        y = np.where(there, values, 0.0)
        count = there.sum(axis=1).astype(np.float64)
        sum_x, sum_y, sum_xy, sum_xx = _total(x), _total(y), _total(x * y), _total(x * x)
        line = (sum_xy - sum_x * sum_y / count) / (sum_xx - sum_x * sum_x / count)
        start = sum_y / count - line * sum_x / count
        first = values[:, :, :1]
        level = (~there | (values == first)).all(axis=2)
        line = np.where(level, np.where(np.isinf(first[:, :, 0]), np.nan, 0.0), line)
        if ahead is None:
            return line
        start = np.where(level, np.where(np.isinf(first[:, :, 0]), np.nan, first[:, :, 0]), start)
        found: FloatArray = line * ahead[part] + start
        return found

    return windows.side_by_side(work)


def _total(values: Any) -> FloatArray:
    found: FloatArray = values.astype(np.longdouble).sum(axis=-1).astype(np.float64)
    return found
