"""Aggregations: groups of series to one series, or the best of each group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gpufleet.promql.errors import ExecutionFailed
from gpufleet.promql.limits import Budget
from gpufleet.promql.numbers import spelling
from gpufleet.promql.order import best_places, clear_best, quantile_of
from gpufleet.promql.vectors import (
    NAME,
    BoolArray,
    FloatArray,
    IntArray,
    LabelKey,
    Labels,
    Vector,
    key_of,
    only,
    without,
)


@dataclass(frozen=True, slots=True)
class Grouping:
    """`by` these labels, or without them."""

    labels: tuple[str, ...]
    by: bool

    def of(self, labels: Labels) -> Labels:
        return only(labels, self.labels) if self.by else without(labels, (*self.labels, NAME))


ALL = Grouping((), by=True)


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows of a vector in order of their groups: those of group g are `order[starts[g]:starts[g + 1]]`."""

    labels: list[Labels]
    order: IntArray
    starts: IntArray

    @classmethod
    def of(cls, vector: Vector, grouping: Grouping) -> Groups:
        rows_of: dict[LabelKey, list[int]] = {}
        labels: list[Labels] = []
        for row, mine in enumerate(vector.labels):
            reduced = grouping.of(mine)
            rows = rows_of.setdefault(key_of(reduced), [])
            if not rows:
                labels.append(reduced)
            rows.append(row)
        sizes = [len(rows) for rows in rows_of.values()]
        order = np.array([row for rows in rows_of.values() for row in rows], dtype=np.int64)
        return cls(labels, order, np.cumsum([0, *sizes[:-1]]).astype(np.int64))

    def reduced(self, how: np.ufunc, values: FloatArray | IntArray | BoolArray) -> FloatArray:
        """`how` over the rows (s, t) of each group, in order of the rows."""
        found: FloatArray = how.reduceat(values[self.order], self.starts, axis=0)
        return found

    def spread_out(self, values: FloatArray) -> FloatArray:
        """One row a group to one row a series."""
        sizes = np.diff([*self.starts.tolist(), self.order.size])
        found = np.empty((self.order.size, values.shape[1]))
        found[self.order] = np.repeat(values, sizes, axis=0)
        return found

    def rows(self) -> list[IntArray]:
        return np.split(self.order, self.starts[1:])


Aggregate = Callable[[Groups, FloatArray, BoolArray, FloatArray], FloatArray]


def _sum(groups: Groups, values: FloatArray, present: BoolArray, count: FloatArray) -> FloatArray:
    return groups.reduced(np.add, np.where(present, values, 0.0))


def _average(groups: Groups, values: FloatArray, present: BoolArray, count: FloatArray) -> FloatArray:
    return _sum(groups, values, present, count) / count


def _variance(groups: Groups, values: FloatArray, present: BoolArray, count: FloatArray) -> FloatArray:
    mean = groups.spread_out(_average(groups, values, present, count))
    off = np.where(present, values - mean, 0.0)
    # One value alone does not vary, whatever it is; NaN and infinities neither.
    return np.where(count == 1, 0.0, groups.reduced(np.add, off * off) / count)


_REDUCTIONS: Mapping[str, Aggregate] = MappingProxyType(
    {
        "sum": _sum,
        "avg": _average,
        "min": lambda groups, values, present, count: groups.reduced(np.fmin, np.where(present, values, np.nan)),
        "max": lambda groups, values, present, count: groups.reduced(np.fmax, np.where(present, values, np.nan)),
        "count": lambda groups, values, present, count: count,
        "group": lambda groups, values, present, count: np.ones_like(count),
        "stdvar": _variance,
        "stddev": lambda *given: np.sqrt(_variance(*given)),
    }
)
PLAIN = frozenset(_REDUCTIONS)


def reduce_groups(op: str, vector: Vector, grouping: Grouping) -> Vector:
    """One of PLAIN over each group and step."""
    groups = Groups.of(vector, grouping)
    if not groups.labels:
        return vector
    count = groups.reduced(np.add, vector.present.astype(np.float64))
    values = _REDUCTIONS[op](groups, vector.values, vector.present, count)
    return Vector(groups.labels, values, count > 0)


def quantile(vector: Vector, grouping: Grouping, share: FloatArray) -> Vector:
    """The `share` quantile (t) of each group."""
    groups = Groups.of(vector, grouping)
    values = np.empty((len(groups.labels), share.size))
    present = np.empty(values.shape, dtype=np.bool_)
    for number, rows in enumerate(groups.rows() if groups.labels else ()):
        there = vector.present[rows].T
        values[number] = quantile_of(vector.values[rows].T, there, share)
        present[number] = there.any(axis=1)
    return Vector(groups.labels, values, present)


def best(vector: Vector, grouping: Grouping, many: FloatArray, largest: bool, budget: Budget) -> Vector:
    """The `many` (t) largest or smallest of each group and step, with their own labels; at one step, best first."""
    if np.isnan(many).any() or (np.abs(many) >= 2.0**63).any():
        raise ExecutionFailed(f"Scalar value {many[0]} overflows int64")
    groups = Groups.of(vector, grouping)
    kept = np.zeros_like(vector.present)
    ranked: list[int] = []
    for rows in groups.rows() if groups.labels else ():
        budget.check_time()
        values, present = vector.values[rows], vector.present[rows]
        steps = np.flatnonzero(many >= 1)
        if many.size > 1:
            clear, chosen = clear_best(values if largest else -values, present, many)
            kept[np.ix_(rows, clear)] = chosen[:, clear]
            steps = np.setdiff1d(steps, clear)
        for step in steps.tolist():
            there = rows[present[:, step]]
            places = best_places(vector.values[there, step], min(int(many[step]), there.size), largest)
            kept[there[places], step] = True
            ranked += there[places].tolist()
    picked = vector.with_values(vector.values, kept)
    return picked.taken(ranked) if many.size == 1 else picked


def count_values(vector: Vector, grouping: Grouping, label: str, budget: Budget) -> Vector:
    """How many series of each group have which value; the value is spelt in `label`."""
    if label in grouping.labels and not grouping.by:
        grouping = Grouping(tuple(name for name in grouping.labels if name != label), by=False)
    counts: dict[LabelKey, tuple[Labels, FloatArray]] = {}
    for labels, values, present in zip(vector.labels, vector.values, vector.present, strict=True):
        reduced = grouping.of({name: text for name, text in labels.items() if name != label})
        for value in np.unique(values[present]).tolist():
            same = present & (np.isnan(values) if value != value else values == value)
            named = {**reduced, label: spelling(value)}
            key = key_of(named)
            if key not in counts:
                budget.take(len(counts) + 1, values.size)
                counts[key] = named, np.zeros(values.size)
            count = counts[key][1]
            count[same] += 1.0
    found = list(counts.values())
    table = np.array([count for _, count in found]).reshape(len(found), vector.values.shape[1])
    return Vector([labels for labels, _ in found], table, table > 0)
