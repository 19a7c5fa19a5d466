"""What expressions are made of: samples as they were scraped, and vectors, one matrix (series x steps) each.

Times are whole milliseconds since the epoch, as in Prometheus, so that windows begin and end where its own do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpufleet.promql.errors import ExecutionFailed

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Labels = Mapping[str, str]
LabelKey = tuple[tuple[str, str], ...]

NAME = "__name__"
# Prometheus' staleness marker: the one NaN that says "this series has ended". Any other NaN is a value.
STALE_BITS = 0x7FF0000000000002
STALE = np.array([STALE_BITS], dtype=np.int64).view(np.float64)


@dataclass(frozen=True, slots=True)
class Samples:
    """Series that share their times: `labels` (k), `times` (n) ascending, `values` (k, n).

    STALE stands where a scrape no longer listed the series, or failed.
    """

    labels: Sequence[Labels]
    times: IntArray
    values: FloatArray

    def taken(self, rows: Sequence[int] | IntArray, columns: BoolArray | slice) -> Samples:
        return Samples([self.labels[row] for row in rows], self.times[columns], self.values[rows][:, columns])


@dataclass(frozen=True, slots=True)
class Vector:
    """Instant vectors, one a step: `labels` (s), `values` (s, t), and where there is a value: `present` (s, t)."""

    labels: Sequence[Labels]
    values: FloatArray
    present: BoolArray

    def taken(self, rows: Sequence[int] | IntArray) -> Vector:
        return Vector([self.labels[row] for row in rows], self.values[rows], self.present[rows])

    def with_values(self, values: FloatArray, present: BoolArray | None = None) -> Vector:
        return Vector(self.labels, values, self.present if present is None else present)

    def nameless(self) -> Vector:
        """Without the metric's name. Raises ExecutionFailed when two series cannot be told apart then."""
        return merged(Vector([without(labels, (NAME,)) for labels in self.labels], self.values, self.present))


def nothing(steps: int) -> Vector:
    return Vector([], np.empty((0, steps)), np.empty((0, steps), dtype=np.bool_))


def is_stale(values: FloatArray) -> BoolArray:
    found: BoolArray = np.ascontiguousarray(values).view(np.int64) == STALE_BITS
    return found


def key_of(labels: Labels) -> LabelKey:
    return tuple(sorted(labels.items()))


def without(labels: Labels, names: Sequence[str]) -> Labels:
    return {name: value for name, value in labels.items() if name not in names}


def only(labels: Labels, names: Sequence[str]) -> Labels:
    return {name: labels[name] for name in names if name in labels}


def in_order(vector: Vector) -> Vector:
    """Series in the order of their labels, those that never have a value left out."""
    kept = np.flatnonzero(vector.present.any(axis=1)).tolist()
    return vector.taken(sorted(kept, key=lambda row: key_of(vector.labels[row])))


def merged(vector: Vector, complaint: str = "vector cannot contain metrics with the same labelset") -> Vector:
    """Rows of equal labels as one. Raises ExecutionFailed when two of them have a value at the same step."""
    rows_of: dict[LabelKey, list[int]] = {}
    for row, labels in enumerate(vector.labels):
        rows_of.setdefault(key_of(labels), []).append(row)
    if len(rows_of) == len(vector.labels):
        return vector
    values, present = vector.values.copy(), vector.present.copy()
    for first, *others in rows_of.values():
        for row in others:
            there = vector.present[row]
            if (present[first] & there).any():
                raise ExecutionFailed(f"{complaint}: {shown(vector.labels[row])}")
            values[first] = np.where(there, vector.values[row], values[first])
            present[first] |= there
    return Vector(vector.labels, values, present).taken([rows[0] for rows in rows_of.values()])


def shown(labels: Labels) -> str:
    """`{a="b"}`, for messages; cut when it is long."""
    text = ", ".join(f'{name}="{value}"' for name, value in sorted(labels.items()))
    return f"{{{text[:500]}}}"
