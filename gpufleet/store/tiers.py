"""Roll-ups: what a series did in each step of a tier. Pure arithmetic on arrays (steps x series) of raw numbers.

Sums are kept instead of means: they add up without loss, and sums of what an exporter writes with a few digits pack
into a third of the bytes. A count of 0 is "no data", never a zero.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufleet.store.counters import increase
from gpufleet.store.frames import FloatArray, IntArray
from gpufleet.store.partitions import FIVE_MINUTES, HOURS, Ladder

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Tier:
    """`seconds`: length of a step. `unit_seconds`: what one row holds, counted from the epoch."""

    name: str
    seconds: int
    unit_seconds: int
    ladder: Ladder

    @property
    def table(self) -> str:
        return self.ladder.parent

    @property
    def steps(self) -> int:
        """Steps of one row."""
        return self.unit_seconds // self.seconds

    def unit_of(self, at: float) -> int:
        """Start of the unit that holds an instant."""
        return int(at // self.unit_seconds) * self.unit_seconds


TIER_5M = Tier("5m", 300, 6 * 3600, FIVE_MINUTES)
TIER_1H = Tier("1h", 3600, 4 * 86400, HOURS)
TIERS = {tier.name: tier for tier in (TIER_5M, TIER_1H)}
assert not FIVE_MINUTES.span % timedelta(seconds=TIER_5M.unit_seconds)  # noqa: S101 - no unit lies across partitions
assert not HOURS.span % timedelta(seconds=TIER_1H.unit_seconds)  # noqa: S101


@dataclass(frozen=True, slots=True)
class Steps:
    """Arrays (steps x series). Where `count` is 0 all others are NaN; `increase` is NaN where it is not known."""

    count: IntArray
    sum: FloatArray
    min: FloatArray
    max: FloatArray
    last: FloatArray
    increase: FloatArray

    @property
    def shape(self) -> tuple[int, int]:
        return self.count.shape[0], self.count.shape[1]

    def taken(self, rows: slice, columns: IntArray | slice = slice(None)) -> Steps:
        return Steps(*(getattr(self, field.name)[rows, columns] for field in fields(self)))


def nothing(steps: int, series: int) -> Steps:
    return Steps(np.zeros((steps, series), dtype=np.int64), *(np.full((steps, series), np.nan) for _ in range(5)))


def rolled(bucket: IntArray, values: FloatArray, steps: int) -> Steps:
    """Values (n x series, NaN for none) in order of time; `bucket` (n): the step of each row. Without increases."""
    found = nothing(steps, values.shape[1])
    if not bucket.size:
        return found
    cells = dict.fromkeys(("sum", "min", "max", "last"), values)
    part = reduced(bucket, {"count": (~np.isnan(values)).astype(np.int64), **cells}, {"sum", "min", "max", "last"})
    for name in ("count", "sum", "min", "max", "last"):
        getattr(found, name)[part.steps] = getattr(part, name)
    return found


@dataclass(frozen=True, slots=True)
class Reduced:
    """Rows brought together by steps: `steps` (m) and arrays (m x series); a column not asked for is empty.

    `last_row` (m x series): the row that `last` is from, -1 for none.
    """

    steps: IntArray
    count: IntArray
    sum: FloatArray
    min: FloatArray
    max: FloatArray
    last: FloatArray
    last_row: IntArray
    increase: FloatArray


def reduced(bucket: IntArray, cells: Mapping[str, npt.NDArray[Any]], columns: Collection[str]) -> Reduced:
    """Brings rows together that have the same step. `bucket` (n, not empty): ordered; `cells`: columns (n x series).

    NaN stands for none in every column but `count`.
    """
    steps, firsts = runs_of(bucket)
    none = np.empty((0, 0))
    counts = np.add.reduceat(cells["count"], firsts, axis=0)
    total = low = high = last = growth = none
    if "sum" in columns:
        added = np.add.reduceat(np.where(np.isnan(cells["sum"]), 0.0, cells["sum"]), firsts, axis=0)
        total = np.where(counts == 0, np.nan, added)
    if "min" in columns:
        low = np.fmin.reduceat(cells["min"], firsts, axis=0)
    if "max" in columns:
        high = np.fmax.reduceat(cells["max"], firsts, axis=0)
    last_row = np.full(counts.shape, -1, dtype=np.int64)
    if "last" in columns:
        last_row = newest_of(cells["last"], firsts)
        newest = np.take_along_axis(cells["last"], np.maximum(last_row, 0), axis=0)
        last = np.where(last_row < 0, np.nan, newest)
    if "increase" in columns:
        known = np.add.reduceat(~np.isnan(cells["increase"]), firsts, axis=0) > 0
        growth = np.where(known, np.add.reduceat(np.nan_to_num(cells["increase"]), firsts, axis=0), np.nan)
    return Reduced(steps, counts, total, low, high, last, last_row, growth)


def runs_of(bucket: IntArray) -> tuple[IntArray, IntArray]:
    """(steps, place of the first row of each) of an ordered, not empty `bucket`."""
    firsts = np.flatnonzero(np.diff(bucket, prepend=bucket[0] - 1))
    return bucket[firsts], firsts


def newest_of(values: FloatArray, firsts: IntArray) -> IntArray:
    """Place of the last value that is there in each run (runs x series), -1 for none."""
    numbers = np.where(np.isnan(values), -1, np.arange(len(values))[:, np.newaxis])
    found: IntArray = np.maximum.reduceat(numbers, firsts, axis=0)
    return found


def grown(bucket: IntArray, readings: FloatArray, steps: int, before: int) -> FloatArray:
    """Increase (steps x series) of counters; the first `before` rows of `readings` only give it its beginning.

    `bucket` is of the other rows. Growth between two readings counts in the step of the later one.
    """
    found = np.full((steps, readings.shape[1]), np.nan)
    for column in range(readings.shape[1]):
        growth = increase(readings[:, column]).increase[before:]
        known = ~np.isnan(growth)
        there = np.bincount(bucket[known], minlength=steps) > 0
        summed = np.bincount(bucket[known], weights=growth[known], minlength=steps)
        found[:, column] = np.where(there, summed, np.nan)
    return found


def coarser(fine: Steps, factor: int) -> Steps:
    """`factor` steps at a time as one."""
    steps, series = fine.shape
    count, total, low, high, last, growth = (
        getattr(fine, field.name).reshape(steps // factor, factor, series) for field in fields(fine)
    )
    numbers = np.where(count > 0, np.arange(factor)[np.newaxis, :, np.newaxis], -1).max(axis=1)
    newest = np.take_along_axis(last, np.maximum(numbers, 0)[:, np.newaxis, :], axis=1)[:, 0, :]
    return Steps(
        count.sum(axis=1),
        summed(total),
        np.fmin.reduce(low, axis=1),
        np.fmax.reduce(high, axis=1),
        np.where(numbers < 0, np.nan, newest),
        summed(growth),
    )


def summed(values: FloatArray) -> FloatArray:
    """Sum over axis 1 of what is there; NaN where nothing is."""
    none = np.isnan(values).all(axis=1)
    found: FloatArray = np.where(none, np.nan, np.nansum(values, axis=1))
    return found


def laid_over(under: Steps, over: Steps) -> Steps:
    """`over` where it has data, else `under`; arrays of one shape."""
    there = over.count > 0
    return Steps(*(np.where(there, getattr(over, field.name), getattr(under, field.name)) for field in fields(over)))
