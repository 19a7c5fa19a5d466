"""How the values of one body become the values of a frame. Made once for a body's set of series, then only numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import numpy as np
import numpy.typing as npt

from gpufleet.catalogue.values import clean, judge
from gpufleet.fleet.specs import BoardSeen
from gpufleet.scrape.lines import Line
from gpufleet.store.frames import FloatArray, IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """What values may be, line by line."""

    low: FloatArray
    high: FloatArray
    codes: npt.NDArray[np.int8]


class Counter:
    """Counts missing and impossible values of many bodies at once: numpy's cost is by the call, not by the number.

    Keeps the joined bounds for as long as the same bodies come in the same order.
    """

    def __init__(self) -> None:
        self._bounds: list[Bounds] = []
        self._joined = Bounds(np.empty(0), np.empty(0), np.empty(0, dtype=np.int8))
        self._starts = np.empty(0, dtype=np.int64)

    def count(self, bodies: Sequence[tuple[Bounds, FloatArray]]) -> list[tuple[int, int]]:
        """(missing, impossible) of each body's lines."""
        filled = [body for body in bodies if body[1].size]
        if not filled:
            return [(0, 0)] * len(bodies)
        self._join([bounds for bounds, _ in filled])
        values = np.concatenate([values for _, values in filled])
        joined = self._joined
        masks = judge(values, joined.low, joined.high, joined.codes)
        missing, impossible = (np.add.reduceat(mask, self._starts, dtype=np.int64).tolist() for mask in masks)
        found = iter(zip(missing, impossible, strict=True))
        return [next(found) if values.size else (0, 0) for _, values in bodies]

    def _join(self, bounds: list[Bounds]) -> None:
        if len(bounds) == len(self._bounds) and all(map(is_, bounds, self._bounds)):
            return
        self._bounds = bounds
        self._joined = Bounds(
            low=np.concatenate([one.low for one in bounds]),
            high=np.concatenate([one.high for one in bounds]),
            codes=np.concatenate([one.codes for one in bounds]),
        )
        sizes = np.array([one.low.size for one in bounds], dtype=np.int64)
        self._starts = np.cumsum(sizes) - sizes


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """The way from a body's lines to the places of a layout.

    `order` names, place by place, the line that holds the value. Where several lines tell the same thing, `starts` says
    at which positions of `order` each place begins (None: one line a place). `is_node`: the body tells of a machine.
    """

    layout_id: int
    order: IntArray
    starts: IntArray | None
    bounds: Bounds
    boards: tuple[BoardSeen, ...]
    is_node: bool

    def fold(self, values: FloatArray) -> tuple[FloatArray, int]:
        """Values in the order of the layout, raw, and how many lines disagree with the one that was kept."""
        ordered = values[self.order]
        if self.starts is None:
            return ordered, 0
        return fold(ordered, self.starts, self._usable(values)[self.order])

    def _usable(self, values: FloatArray) -> npt.NDArray[np.bool_]:
        bounds = self.bounds
        return ~np.isnan(clean(values, 1.0, bounds.low, bounds.high, bounds.codes))


def fold(ordered: FloatArray, starts: IntArray, usable: npt.NDArray[np.bool_]) -> tuple[FloatArray, int]:
    """The highest usable value of each group of lines, or its first value where none is usable."""
    masked = np.where(usable, ordered, -np.inf)
    highest = np.maximum.reduceat(masked, starts)
    spread = np.repeat(highest, np.diff(np.append(starts, ordered.size)))
    disagreeing = int(np.count_nonzero(usable & (ordered != spread)))
    return np.where(highest == -np.inf, ordered[starts], highest), disagreeing


def grouping(series_ids: Sequence[int]) -> tuple[list[int], IntArray, IntArray | None]:
    """(layout, order, starts) for lines that feed these series. A layout is sorted: the same set is the same layout."""
    ids = np.asarray(series_ids, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    layout, starts = np.unique(ids[order], return_index=True)
    if layout.size == ids.size:
        return layout.tolist(), shared(order), None
    return layout.tolist(), shared(order), shared(starts.astype(np.int64))


def bounds_of(lines: Sequence[Line]) -> Bounds:
    """Bounds in raw units, NaN where there is none."""
    return Bounds(
        low=shared(np.array([line.meaning.low for line in lines], dtype=np.float64)),
        high=shared(np.array([line.meaning.high for line in lines], dtype=np.float64)),
        codes=shared(np.array([line.code for line in lines], dtype=np.int8)),
    )


_arrays: dict[tuple[str, bytes], Any] = {}
_MAX_ARRAYS = 4_096


def shared(array: Any) -> Any:
    """The nodes of a fleet are alike: equal arrays are kept once. Read-only."""
    key = (array.dtype.str, array.tobytes())
    if key not in _arrays:
        if len(_arrays) >= _MAX_ARRAYS:
            _arrays.clear()
        array.flags.writeable = False
        _arrays[key] = array
    return _arrays[key]
