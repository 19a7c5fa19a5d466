"""Values of a metric over time. Gaps stay gaps: a step without a value is NaN, never zero."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gpufleet.store.chunks import SPAN_SECONDS
from gpufleet.store.counters import increase
from gpufleet.store.frames import FloatArray, IntArray, StoreError
from gpufleet.store.layouts import Labels
from gpufleet.store.lines import Line, Lines, Scope, all_names, lines_of, united
from gpufleet.store.models import Series
from gpufleet.store.names import name_ids
from gpufleet.store.partitions import LIVE
from gpufleet.store.realms import by_realm
from gpufleet.store.sources import Block, blocks
from gpufleet.store.tiered import Part, Taken, Window, parts, rolled_parts, sampled

MAX_STEPS = 20_000
MAX_CELLS = 20_000_000
_SUMMARY = frozenset({"sum", "min", "max"})


class RangeRow(NamedTuple):
    """`mean`, `min` and `max` of each step, NaN without a value. `node_id`: where its newest sample is from."""

    gpu_id: int | None
    node_id: int
    mean: FloatArray
    min: FloatArray
    max: FloatArray


@dataclass(frozen=True, slots=True)
class RangeResult:
    """`times` (n): starts of the steps. `rows`: arrays of n each; `labels`: of each row, what tells series apart."""

    times: FloatArray
    rows: list[RangeRow]
    labels: list[Labels]
    unit: str
    kind: str


class IncreaseRow(NamedTuple):
    """`increase` of each step, NaN where it is not known; with `resets`, which roll-ups do not tell, a lower bound."""

    gpu_id: int | None
    node_id: int
    increase: FloatArray
    resets: int


@dataclass(frozen=True, slots=True)
class IncreaseResult:
    """As RangeResult, for the growth of counters."""

    times: FloatArray
    rows: list[IncreaseRow]
    labels: list[Labels]
    unit: str


@dataclass(frozen=True, slots=True)
class Band:
    """Percentiles over the fleet for each step, NaN where nobody had a value. `present`: series with one."""

    times: FloatArray
    p5: FloatArray
    p50: FloatArray
    p95: FloatArray
    present: IntArray


class Samples(NamedTuple):
    """The samples of one series in order of time: `times` (n), Unix seconds; `values` (n). A gap has no entry."""

    times: FloatArray
    values: FloatArray


def read_range(
    metric: str,
    gpu_ids: Sequence[int] | None = None,
    node_ids: Sequence[int] | None = None,
    *,
    start: float,
    end: float,
    step: float,
) -> RangeResult:
    """Canonical values of `metric` in `[start, end)` by steps of `step` seconds, for GPUs or for all series of nodes.

    A GPU's row follows its UUID over targets and nodes. Counters come as their raw readings (`counters.increase`
    turns them into growth). Raises StoreError for a window that is empty or has too many steps.
    """
    return read_ranges([metric], gpu_ids, node_ids, start=start, end=end, step=step)[metric]


def read_ranges(
    metrics: Sequence[str],
    gpu_ids: Sequence[int] | None = None,
    node_ids: Sequence[int] | None = None,
    *,
    start: float,
    end: float,
    step: float,
) -> dict[str, RangeResult]:
    """As `read_range`, for several metrics: what is read for one of them serves all."""
    times = _steps(start, end, step)
    found = lines_of(metrics, Scope.of(gpu_ids, node_ids))
    _check_cells(sum(len(lines.lines) for lines in found.values()), times.size)
    sums = {metric: _Sums.empty(len(lines.lines), times.size) for metric, lines in found.items()}
    names = all_names(found)
    for part in parts(united(lines.wanted for lines in found.values()), names, Window(start, end, step, _SUMMARY)):
        for metric, lines in found.items():
            lines.note(part.series_ids, part.newest)
            sums[metric].add(lines.numbers(part.series_ids), part)
    return {metric: sums[metric].result(times, lines) for metric, lines in found.items()}


@dataclass(frozen=True, slots=True)
class _Sums:
    """Arrays (lines x steps)."""

    total: FloatArray
    count: IntArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def empty(cls, lines: int, steps: int) -> _Sums:
        shape = (lines, steps)
        low, high = (np.full(shape, np.nan) for _ in range(2))
        return cls(np.zeros(shape), np.zeros(shape, dtype=np.int64), low, high)

    def add(self, numbers: IntArray, part: Part) -> None:
        cells = part.cells
        for columns in distinct(numbers):
            at = np.ix_(numbers[columns], cells.steps)
            self.total[at] += np.nan_to_num(cells.sum[:, columns].T)
            self.count[at] += cells.count[:, columns].T
            self.low[at] = np.fmin(self.low[at], cells.min[:, columns].T)
            self.high[at] = np.fmax(self.high[at], cells.max[:, columns].T)

    def result(self, times: FloatArray, lines: Lines) -> RangeResult:
        mean = np.divide(self.total, self.count, out=np.full(self.total.shape, np.nan), where=self.count > 0)
        rows = [
            RangeRow(line.gpu_id, line.node_id, mean[n], self.low[n], self.high[n])
            for n, line in enumerate(lines.lines)
        ]
        return RangeResult(times, rows, [line.labels for line in lines.lines], lines.unit, lines.kind)


def distinct(numbers: IntArray) -> Iterator[IntArray]:
    """Places of numbers that are not -1, in groups within which each number is there once."""
    left = np.flatnonzero(numbers >= 0)
    while left.size:
        _, first = np.unique(numbers[left], return_index=True)
        yield left[first]
        left = np.delete(left, first)


def read_increase(
    metric: str,
    gpu_ids: Sequence[int] | None = None,
    node_ids: Sequence[int] | None = None,
    *,
    start: float,
    end: float,
    step: float,
) -> IncreaseResult:
    """Growth of a counter in each step of `[start, end)`, corrected for resets; NaN for a step nothing is known of.

    Growth between two readings is counted in the step of the later one, if the earlier one is of the same span of two
    hours or of the one before: after a longer silence nothing is known. Raises StoreError as `read_range` does.
    """
    times = _steps(start, end, step)
    lines = lines_of([metric], Scope.of(gpu_ids, node_ids))[metric]
    _check_cells(len(lines.lines), times.size)
    window = Window(start, end, step, frozenset({"increase"}))
    taken = Taken(by_realm(list(lines.wanted)).get(LIVE, []), window)
    grid = np.full((len(lines.lines), times.size), np.nan)
    resets = np.zeros(len(lines.lines), dtype=np.int64)
    for some, low, high in sampled(lines.wanted, window):
        pieces: list[list[FloatArray]] = [[] for _ in lines.lines]
        for block in blocks(some, max(0.0, (low // SPAN_SECONDS - 1) * SPAN_SECONDS), high, lines.names):
            taken.take(block, low)
            lines.note(block.series_ids, [float(block.times[-1])] * block.places.size)
            for column, number in enumerate(lines.numbers(block.series_ids).tolist()):
                pieces[number].append(np.column_stack((block.times, block.values[:, column])))
        for number, parts_ in enumerate(pieces):
            resets[number] += _grow(grid[number], np.concatenate([np.empty((0, 2)), *parts_]), low, start, step)
    for part in rolled_parts(lines.wanted, lines.names, window, taken):
        lines.note(part.series_ids, part.newest)
        numbers = lines.numbers(part.series_ids)
        for columns in distinct(numbers):
            at = np.ix_(numbers[columns], part.cells.steps)
            grid[at] = _sum(grid[at], part.cells.increase[:, columns].T)
    rows = [IncreaseRow(line.gpu_id, line.node_id, grid[n], int(resets[n])) for n, line in enumerate(lines.lines)]
    return IncreaseResult(times, rows, [line.labels for line in lines.lines], lines.unit)


def _grow(grown: FloatArray, samples: FloatArray, since: float, start: float, step: float) -> int:
    """Adds the growth of one line's samples (times and readings) from `since` on; returns the number of resets."""
    samples = samples[np.argsort(samples[:, 0], kind="stable")]
    growth = increase(samples[:, 1])
    spans = samples[:, 0] // SPAN_SECONDS
    read = np.where(np.isnan(samples[:, 1]), -np.inf, spans)
    before = np.concatenate([[-np.inf], np.maximum.accumulate(read)[:-1]]) if len(read) else read
    known = ~np.isnan(growth.increase) & (samples[:, 0] >= since) & (spans - before <= 1)
    bucket = _bucket(samples[known, 0], start, step)
    summed = np.bincount(bucket, weights=growth.increase[known], minlength=grown.size)
    there = np.bincount(bucket, minlength=grown.size) > 0
    grown[:] = _sum(grown, np.where(there, summed, np.nan))
    return int(np.count_nonzero(growth.reset & (samples[:, 0] >= since)))


def _sum(one: FloatArray, other: FloatArray) -> FloatArray:
    """Sum of what is there; NaN where neither is."""
    found: FloatArray = np.where(np.isnan(one), other, one + np.nan_to_num(other))
    return found


def read_band(metric: str, cluster_id: int, start: float, end: float, step: float) -> Band:
    """Percentiles of `metric` over the series of a cluster; the newest value in a step speaks for it."""
    return read_bands([metric], cluster_id, start, end, step)[metric]


def read_bands(metrics: Sequence[str], cluster_id: int, start: float, end: float, step: float) -> dict[str, Band]:
    """As `read_band`, for several metrics: each frame is read once for all of them."""
    times = _steps(start, end, step)
    of_metric = lines_of(metrics, Scope.cluster(cluster_id))
    _check_cells(sum(len(lines.lines) for lines in of_metric.values()), times.size)
    grids = {metric: np.full((len(lines.lines), times.size), np.nan) for metric, lines in of_metric.items()}
    seen = {metric: np.full(grid.shape, -np.inf) for metric, grid in grids.items()}
    names = all_names(of_metric)
    wanted = united(lines.wanted for lines in of_metric.values())
    for part in parts(wanted, names, Window(start, end, step, frozenset({"last"}))):
        for metric, lines in of_metric.items():
            _spread(grids[metric], seen[metric], lines.numbers(part.series_ids), part)
    return {
        metric: Band(times, *_percentiles(grid), np.count_nonzero(~np.isnan(grid), axis=0))
        for metric, grid in grids.items()
    }


def _spread(grid: FloatArray, seen: FloatArray, numbers: IntArray, part: Part) -> None:
    """Puts the newest values of a part's steps into the grid (lines x steps); `seen`: times of what is there."""
    for columns in distinct(numbers):
        at = np.ix_(numbers[columns], part.cells.steps)
        newer = seen[at] < part.last_at[:, columns].T
        grid[at] = np.where(newer, part.cells.last[:, columns].T, grid[at])
        seen[at] = np.where(newer, part.last_at[:, columns].T, seen[at])


def read_last_before(
    metric: str, gpu_ids: Sequence[int], at: float, within_seconds: float = 86400.0
) -> dict[int, tuple[float, float]]:
    """`{gpu_id: (at, canonical value)}`: the last value of each GPU in `[at - within_seconds, at)`.

    Looks back in windows that double, so that a value of a moment ago costs little. A GPU without one is left out.
    """
    lines = lines_of([metric], Scope("gpu_id", tuple(gpu_ids)))[metric]
    found: dict[int, tuple[float, float]] = {}
    until, length, floor = at, 120.0, at - within_seconds
    while until > floor:
        targets = {target for gpu, targets in lines.targets_of_gpu.items() if gpu not in found for target in targets}
        if not targets:
            break
        since = max(floor, until - length)
        newer: dict[int, tuple[float, float]] = {}
        for block in blocks({one: lines.wanted[one] for one in targets}, since, until, lines.names):
            _keep_last(block, [lines.of_series[one] for one in block.series_ids.tolist()], newer)
        found = {**newer, **found}
        until, length = since, length * 2
    return found


def read_samples(series_ids: Sequence[int], start: float, end: float, *, canonical: bool = True) -> dict[int, Samples]:
    """Every sample of `[start, end)` by series id, whichever tier holds it; a series without one is left out.

    Values are canonical, or as the exporter sent them. Of targets and times twice the first one counts.
    """
    names: list[str] = []
    ids: dict[int, list[int]] = {}
    rows = Series.objects.filter(id__in=list(series_ids)).order_by("id").values_list("id", "name", "target_id")
    for series_id, name, target_id in rows:
        names.append(name)
        ids.setdefault(target_id, []).append(series_id)
    pieces: dict[int, list[tuple[FloatArray, FloatArray]]] = {}
    wanted = {target_id: np.array(of_target, dtype=np.int64) for target_id, of_target in ids.items()}
    for block in blocks(wanted, start, end, name_ids(names), clean=canonical):
        for column, series_id in enumerate(block.series_ids.tolist()):
            there = ~np.isnan(block.values[:, column])
            if there.any():
                pieces.setdefault(series_id, []).append((block.times[there], block.values[there, column]))
    return {series_id: _in_order(parts) for series_id, parts in pieces.items()}


def _in_order(parts: Sequence[tuple[FloatArray, FloatArray]]) -> Samples:
    times = np.concatenate([part[0] for part in parts])
    order = np.argsort(times, kind="stable")
    return Samples(times[order], np.concatenate([part[1] for part in parts])[order])


def _check_cells(lines: int, steps: int) -> None:
    if lines * steps > MAX_CELLS:
        raise StoreError(f"{lines} series of {steps} steps are too many for one read; use longer steps")


def _steps(start: float, end: float, step: float) -> FloatArray:
    if not (math.isfinite(start) and math.isfinite(end) and step > 0 and start < end):
        raise StoreError("a window needs a start before its end and a step above zero")
    count = math.ceil((end - start) / step)
    if count > MAX_STEPS:
        raise StoreError(f"{count} steps are too many for one read (at most {MAX_STEPS}); use longer steps")
    return start + step * np.arange(count, dtype=np.float64)


def _bucket(times: FloatArray, start: float, step: float) -> IntArray:
    return np.floor((times - start) / step).astype(np.int64)


def _percentiles(grid: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """p5, p50 and p95 of each column, between the nearest two values; NaN for a column without any."""
    ordered = np.sort(grid, axis=0)  # NaN goes last
    count = np.count_nonzero(~np.isnan(grid), axis=0)
    column = np.arange(grid.shape[1])
    if grid.shape[0] == 0:
        empty = np.full(grid.shape[1], np.nan)
        return empty, empty.copy(), empty.copy()

    def at(share: float) -> FloatArray:
        place = share * np.maximum(count - 1, 0)
        below = np.floor(place).astype(np.int64)
        above = np.minimum(below + 1, np.maximum(count - 1, 0))
        low, high = ordered[below, column], ordered[above, column]
        value: FloatArray = low + (high - low) * (place - below)
        return value

    return at(0.05), at(0.5), at(0.95)


def _keep_last(block: Block, columns: Sequence[Line], newest: dict[int, tuple[float, float]]) -> None:
    for column, line in enumerate(columns):
        there = np.flatnonzero(~np.isnan(block.values[:, column]))
        if there.size and line.gpu_id is not None:
            at, value = float(block.times[there[-1]]), float(block.values[there[-1], column])
            if line.gpu_id not in newest or at > newest[line.gpu_id][0]:
                newest[line.gpu_id] = (at, value)
