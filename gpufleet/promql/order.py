"""Order among values: quantiles, and the largest or smallest of a group."""

from __future__ import annotations

import numpy as np

from gpufleet.promql.vectors import BoolArray, FloatArray, IntArray


def quantile_of(values: FloatArray, there: BoolArray, share: FloatArray) -> FloatArray:
    """The `share` quantile (t) along the last axis of `values` (.., t, w) where `there`. NaN counts as the smallest."""
    blank = there & np.isnan(values)
    ordered = np.where(there, np.where(blank, -np.inf, values), np.inf)
    ordered.sort(axis=-1)
    count, blanks = there.sum(axis=-1), blank.sum(axis=-1)
    whole = np.isfinite(share) & (share >= 0) & (share <= 1)
    rank = np.where(whole, share, 0.0) * (count - 1)
    below = np.maximum(np.floor(rank), 0).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    weight = rank - np.floor(rank)
    found = _at(ordered, below, blanks) * (1 - weight) + _at(ordered, above, blanks) * weight
    found = np.where(share < 0, -np.inf, np.where(share > 1, np.inf, found))
    result: FloatArray = np.where(np.isnan(share) | (count == 0), np.nan, found)
    return result


def _at(ordered: FloatArray, place: IntArray, blanks: IntArray) -> FloatArray:
    picked = np.take_along_axis(ordered, place[..., None], axis=-1)[..., 0]
    found: FloatArray = np.where(place < blanks, np.nan, picked)
    return found


def clear_best(values: FloatArray, present: BoolArray, many: FloatArray) -> tuple[IntArray, BoolArray]:
    """(steps, chosen (s, t)): the steps at which it is clear which are the `many` (t) largest of `values` (s, t).

    Not clear is what needs the order of equal values, of NaN, or of infinities; and `many` below 1 chooses nothing.
    """
    ordered = np.sort(np.where(present, values, -np.inf), axis=0)[::-1]
    count = present.sum(axis=0)
    place = np.clip(many, 0, count).astype(np.int64)
    steps = np.arange(many.size)
    last = ordered[np.maximum(place - 1, 0), steps]
    following = ordered[np.minimum(place, len(values) - 1), steps]
    plain = np.isfinite(np.where(present, values, 0.0)).all(axis=0)
    clear = (many < 1) | (place == count) | (plain & (last > following))
    chosen = present & (many >= 1) & ((values >= last) | (place == count))
    return np.flatnonzero(clear), chosen


def best_places(values: FloatArray, many: int, largest: bool) -> list[int]:
    """Places of the `many` largest (or smallest) of `values` (n), best first; NaN is worse than any number.

    Equal values are kept as the heap of Go's standard library keeps them: dashboards see the same series.
    """
    keys: list[float] = (values if largest else -values).tolist()
    heap: list[int] = []
    for place, key in enumerate(keys):
        if len(heap) == many:
            if not _less(keys[heap[0]], key):
                continue
            heap[0] = heap[-1]
            heap.pop()
            _down(heap, keys)
        heap.append(place)
        _up(heap, keys)
    return sorted(heap, key=lambda place: (keys[place] == keys[place], keys[place]), reverse=True)


def _less(one: float, other: float) -> bool:
    """As Prometheus has it: NaN is less than anything, another NaN too."""
    return one != one or one < other


def _up(heap: list[int], keys: list[float]) -> None:
    child = len(heap) - 1
    while child and _less(keys[heap[child]], keys[heap[(child - 1) // 2]]):
        parent = (child - 1) // 2
        heap[child], heap[parent] = heap[parent], heap[child]
        child = parent


def _down(heap: list[int], keys: list[float]) -> None:
    parent = 0
    while (child := 2 * parent + 1) < len(heap):
        if child + 1 < len(heap) and _less(keys[heap[child + 1]], keys[heap[child]]):
            child += 1
        if not _less(keys[heap[child]], keys[heap[parent]]):
            return
        heap[child], heap[parent] = heap[parent], heap[child]
        parent = child
