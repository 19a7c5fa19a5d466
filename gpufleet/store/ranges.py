"""Values of a metric over time. Gaps stay gaps: a step without a value is NaN, never zero."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpufleet.store.counters import increase
from gpufleet.store.frames import FloatArray, IntArray, StoreError
from gpufleet.store.layouts import Labels
from gpufleet.store.models import Series
from gpufleet.store.sources import Block, blocks
from gpufleet.store.tiered import Part, Window, parts

MAX_STEPS = 20_000
MAX_CELLS = 20_000_000
LEAD_SECONDS = 300.0
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
    """`increase` of each step, NaN where it is not known; `resets` in the window (then it is a lower bound)."""

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


@dataclass(slots=True)
class _Line:
    number: int
    gpu_id: int | None
    node_id: int
    labels: Labels
    newest: float = -math.inf


class _Lines:
    """The lines of a read: the series of one GPU and equal labels are one, whichever targets they came through."""

    def __init__(self, metric: str, scope: dict[str, Any]) -> None:
        self.lines: list[_Line] = []
        self.of_series: dict[int, _Line] = {}
        self.node_of_target: dict[int, int] = {}
        of_target: dict[int, list[int]] = {}
        self.targets_of_gpu: dict[int, set[int]] = {}
        self.unit, self.kind = "", ""
        self.names: set[str] = set()
        found = Series.objects.filter(metric=metric, **scope).order_by("id")
        seen: dict[Any, _Line] = {}
        for row in found.values_list("id", "gpu_id", "target_id", "target__node_id", "name", "labels", "unit", "kind"):
            series_id, gpu_id, target_id, node_id, name, labels, self.unit, self.kind = row
            self.names.add(name)
            of_target.setdefault(target_id, []).append(series_id)
            key = (gpu_id, None if gpu_id else node_id, tuple(sorted(labels.items())))
            line = seen.get(key)
            if line is None:
                line = seen[key] = _Line(0, gpu_id, node_id, labels)
                self.lines.append(line)
            self.of_series[series_id] = line
            self.node_of_target[target_id] = node_id
            if gpu_id is not None:
                self.targets_of_gpu.setdefault(gpu_id, set()).add(target_id)
        self.lines.sort(key=lambda line: (line.gpu_id or 0, line.node_id, sorted(line.labels.items())))
        for number, line in enumerate(self.lines):
            line.number = number
        self.wanted = {target_id: np.array(ids, dtype=np.int64) for target_id, ids in of_target.items()}

    def blocks(self, start: float, end: float) -> Iterator[Block]:
        return blocks(self.wanted, start, end, self.names)

    def of(self, found: Block | Part) -> list[_Line]:
        return [self.of_series[series_id] for series_id in found.series_ids.tolist()]


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
    times = _steps(start, end, step)
    lines = _Lines(metric, _scope(gpu_ids, node_ids))
    shape = (len(lines.lines), times.size)
    _check_cells(*shape)
    total, count = np.zeros(shape), np.zeros(shape, dtype=np.int64)
    low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
    for part in parts(lines.wanted, lines.names, Window(start, end, step, _SUMMARY)):
        columns = lines.of(part)
        _note_node(columns, part, lines.node_of_target[part.target_id])
        cells = np.array([line.number for line in columns])[np.newaxis, :], part.cells.steps[:, np.newaxis]
        # Two series of a target may be of one line, hence `at`.
        np.add.at(total, cells, np.nan_to_num(part.cells.sum))
        np.add.at(count, cells, part.cells.count)
        np.fmin.at(low, cells, part.cells.min)
        np.fmax.at(high, cells, part.cells.max)
    none = count == 0
    mean = np.divide(total, count, out=np.full(shape, np.nan), where=~none)
    low[none] = high[none] = np.nan
    rows = [RangeRow(line.gpu_id, line.node_id, mean[n], low[n], high[n]) for n, line in enumerate(lines.lines)]
    return RangeResult(times, rows, [line.labels for line in lines.lines], lines.unit, lines.kind)


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

    Growth between two readings is counted in the step of the later one. Readings up to LEAD_SECONDS before the window
    give the first step its beginning. Raises StoreError as `read_range` does.
    """
    times = _steps(start, end, step)
    lines = _Lines(metric, _scope(gpu_ids, node_ids))
    _check_cells(len(lines.lines), times.size)
    pieces: list[list[FloatArray]] = [[] for _ in lines.lines]
    for block in lines.blocks(max(0.0, start - LEAD_SECONDS), end):
        columns = lines.of(block)
        _note_node(columns, block, lines.node_of_target[block.layout.target_id])
        for column, line in enumerate(columns):
            pieces[line.number].append(np.column_stack((block.times, block.values[:, column])))
    rows = []
    for line in lines.lines:
        samples = np.concatenate(pieces[line.number]) if pieces[line.number] else np.empty((0, 2))
        samples = samples[np.argsort(samples[:, 0], kind="stable")]
        growth = increase(samples[:, 1])
        known = ~np.isnan(growth.increase) & (samples[:, 0] >= start)
        bucket = _bucket(samples[known, 0], start, step)
        summed = np.bincount(bucket, weights=growth.increase[known], minlength=times.size)
        there = np.bincount(bucket, minlength=times.size) > 0
        resets = int(np.count_nonzero(growth.reset & (samples[:, 0] >= start)))
        rows.append(IncreaseRow(line.gpu_id, line.node_id, np.where(there, summed, np.nan), resets))
    return IncreaseResult(times, rows, [line.labels for line in lines.lines], lines.unit)


def read_band(metric: str, cluster_id: int, start: float, end: float, step: float) -> Band:
    """Percentiles of `metric` over the series of a cluster; the newest value in a step speaks for it."""
    return read_bands([metric], cluster_id, start, end, step)[metric]


def read_bands(metrics: Sequence[str], cluster_id: int, start: float, end: float, step: float) -> dict[str, Band]:
    """As `read_band`, for several metrics: each frame is read once for all of them."""
    times = _steps(start, end, step)
    of_metric = {metric: _Lines(metric, {"target__cluster_id": cluster_id}) for metric in metrics}
    _check_cells(sum(len(lines.lines) for lines in of_metric.values()), times.size)
    grids = {metric: np.full((len(lines.lines), times.size), np.nan) for metric, lines in of_metric.items()}
    wanted: dict[int, IntArray] = {}
    for lines in of_metric.values():
        for target_id, ids in lines.wanted.items():
            wanted[target_id] = np.union1d(wanted[target_id], ids) if target_id in wanted else ids

    names = {name for lines in of_metric.values() for name in lines.names}
    seen = {metric: np.full(grid.shape, -np.inf) for metric, grid in grids.items()}
    for part in parts(wanted, names, Window(start, end, step, frozenset({"last"}))):
        for metric, lines in of_metric.items():
            _spread(grids[metric], seen[metric], lines, part)
    return {
        metric: Band(times, *_percentiles(grid), np.count_nonzero(~np.isnan(grid), axis=0))
        for metric, grid in grids.items()
    }


def _spread(grid: FloatArray, seen: FloatArray, lines: _Lines, part: Part) -> None:
    """Puts the newest values of a part's steps into the grid (lines x steps); `seen`: times of what is there."""
    for column, series_id in enumerate(part.series_ids.tolist()):
        line = lines.of_series.get(series_id)
        if line is not None:
            values, at = part.cells.last[:, column], part.last_at[:, column]
            newer = at > seen[line.number, part.cells.steps]
            steps = part.cells.steps[newer]
            grid[line.number, steps], seen[line.number, steps] = values[newer], at[newer]


def read_last_before(
    metric: str, gpu_ids: Sequence[int], at: float, within_seconds: float = 86400.0
) -> dict[int, tuple[float, float]]:
    """`{gpu_id: (at, canonical value)}`: the last value of each GPU in `[at - within_seconds, at)`.

    Looks back in windows that double, so that a value of a moment ago costs little. A GPU without one is left out.
    """
    lines = _Lines(metric, {"gpu_id__in": list(gpu_ids)})
    found: dict[int, tuple[float, float]] = {}
    until, length, floor = at, 120.0, at - within_seconds
    while until > floor:
        targets = {target for gpu, targets in lines.targets_of_gpu.items() if gpu not in found for target in targets}
        if not targets:
            break
        since = max(floor, until - length)
        newer: dict[int, tuple[float, float]] = {}
        for block in blocks({one: lines.wanted[one] for one in targets}, since, until, lines.names):
            _keep_last(block, lines.of(block), newer)
        found = {**newer, **found}
        until, length = since, length * 2
    return found


def read_samples(series_ids: Sequence[int], start: float, end: float, *, canonical: bool = True) -> dict[int, Samples]:
    """Every sample of `[start, end)` by series id, whichever tier holds it; a series without one is left out.

    Values are canonical, or as the exporter sent them. Of targets and times twice the first one counts.
    """
    names: set[str] = set()
    ids: dict[int, list[int]] = {}
    rows = Series.objects.filter(id__in=list(series_ids)).order_by("id").values_list("id", "name", "target_id")
    for series_id, name, target_id in rows:
        names.add(name)
        ids.setdefault(target_id, []).append(series_id)
    pieces: dict[int, list[tuple[FloatArray, FloatArray]]] = {}
    wanted = {target_id: np.array(of_target, dtype=np.int64) for target_id, of_target in ids.items()}
    for block in blocks(wanted, start, end, names, clean=canonical):
        for column, series_id in enumerate(block.series_ids.tolist()):
            there = ~np.isnan(block.values[:, column])
            if there.any():
                pieces.setdefault(series_id, []).append((block.times[there], block.values[there, column]))
    return {series_id: _in_order(parts) for series_id, parts in pieces.items()}


def _in_order(parts: Sequence[tuple[FloatArray, FloatArray]]) -> Samples:
    times = np.concatenate([part[0] for part in parts])
    order = np.argsort(times, kind="stable")
    return Samples(times[order], np.concatenate([part[1] for part in parts])[order])


def _scope(gpu_ids: Sequence[int] | None, node_ids: Sequence[int] | None) -> dict[str, Any]:
    if (gpu_ids is None) == (node_ids is None):
        raise StoreError("give either GPUs or nodes")
    return {"gpu_id__in": list(gpu_ids)} if gpu_ids is not None else {"target__node_id__in": list(node_ids or ())}


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


def _note_node(columns: Sequence[_Line], found: Block | Part, node_id: int) -> None:
    newest = found.newest if isinstance(found, Part) else float(found.times[-1])
    for line in columns:
        if newest > line.newest:
            line.newest, line.node_id = newest, node_id


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


def _keep_last(block: Block, columns: Sequence[_Line], newest: dict[int, tuple[float, float]]) -> None:
    for column, line in enumerate(columns):
        there = np.flatnonzero(~np.isnan(block.values[:, column]))
        if there.size and line.gpu_id is not None:
            at, value = float(block.times[there[-1]]), float(block.values[there[-1], column])
            if line.gpu_id not in newest or at > newest[line.gpu_id][0]:
                newest[line.gpu_id] = (at, value)
