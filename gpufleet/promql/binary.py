"""Operators between scalars and vectors, and which series of two vectors belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gpufleet.promql.errors import ExecutionFailed
from gpufleet.promql.vectors import (
    NAME,
    BoolArray,
    FloatArray,
    IntArray,
    LabelKey,
    Labels,
    Vector,
    key_of,
    merged,
    only,
    shown,
    without,
)

ARITHMETIC: Mapping[str, np.ufunc] = MappingProxyType(
    {
        "+": np.add,
        "-": np.subtract,
        "*": np.multiply,
        "/": np.divide,
        "%": np.fmod,
        "^": np.power,
        "atan2": np.arctan2,
    }
)
COMPARISONS: Mapping[str, np.ufunc] = MappingProxyType(
    {
        "==": np.equal,
        "!=": np.not_equal,
        ">": np.greater,
        "<": np.less,
        ">=": np.greater_equal,
        "<=": np.less_equal,
    }
)
MAX_PAIRS = 200_000
SETS = frozenset({"and", "or", "unless"})


@dataclass(frozen=True, slots=True)
class Matching:
    """Which labels two series have to share: `on` these, or all but these. `many`: "", "left" or "right".

    `include`: labels that the "many" side takes over from the "one" side.
    """

    labels: tuple[str, ...] = ()
    on: bool = False
    many: str = ""
    include: tuple[str, ...] = ()

    def signature(self, labels: Labels) -> LabelKey:
        return key_of(only(labels, self.labels) if self.on else without(labels, (*self.labels, NAME)))

    def result(self, many: Labels, one: Labels, keep_name: bool) -> Labels:
        """Labels of what comes out of two series that match."""
        found = dict(many)
        if not keep_name:
            found.pop(NAME, None)
        if not self.many:
            found = dict(only(found, self.labels) if self.on else without(found, self.labels))
        for name in self.include:
            if one.get(name):
                found[name] = one[name]
            else:
                found.pop(name, None)
        return found


def scalars(op: str, left: FloatArray, right: FloatArray) -> FloatArray:
    found: FloatArray = _operator(op)(left, right).astype(np.float64)
    return found


def with_scalar(op: str, vector: Vector, scalar: FloatArray, *, scalar_left: bool, as_bool: bool) -> Vector:
    """Every series with the scalar (t). A comparison keeps the series' own value where it holds."""
    left, right = (scalar, vector.values) if scalar_left else (vector.values, scalar)
    found = _operator(op)(left, right)
    if op in ARITHMETIC or as_bool:
        return vector.with_values(found.astype(np.float64)).nameless()
    return vector.with_values(vector.values, vector.present & found)


def vectors(op: str, left: Vector, right: Vector, matching: Matching, *, as_bool: bool) -> Vector:
    """Series of both sides that match, combined. Raises ExecutionFailed when more than one could be meant."""
    many, one = (right, left) if matching.many == "right" else (left, right)
    pairs = _pairs(many, one, matching)
    rows, partners = pairs[:, 0], pairs[:, 1]
    both = many.present[rows] & one.present[partners]
    sides = (many.values[rows], one.values[partners])
    lefts, rights = sides[::-1] if matching.many == "right" else sides
    found = _operator(op)(lefts, rights)
    compares = op in COMPARISONS
    values = lefts if compares and not as_bool else found.astype(np.float64)
    kept = both & found if compares and not as_bool else both
    if not matching.many:
        _check_single(many, matching, rows, kept)
    keep_name = compares and not as_bool
    labels = [
        matching.result(many.labels[row], one.labels[partner], keep_name)
        for row, partner in zip(rows.tolist(), partners.tolist(), strict=True)
    ]
    return merged(
        Vector(labels, values, kept), "multiple matches for labels: grouping labels must ensure unique matches"
    )


def sets(op: str, left: Vector, right: Vector, matching: Matching) -> Vector:
    """`and`, `or`, `unless`: by which series are there at a step."""
    if op == "or":
        others = right.with_values(right.values, right.present & ~_there(left, right, matching))
        return merged(
            Vector(
                [*left.labels, *others.labels],
                np.concatenate((left.values, others.values)),
                np.concatenate((left.present, others.present)),
            )
        )
    there = _there(right, left, matching)
    return left.with_values(left.values, left.present & (there if op == "and" else ~there))


def _operator(op: str) -> np.ufunc:
    return ARITHMETIC[op] if op in ARITHMETIC else COMPARISONS[op]


def _there(among: Vector, of: Vector, matching: Matching) -> BoolArray:
    """For each series of `of`, the steps at which a matching one of `among` has a value."""
    rows_of = _by_signature(among, matching)
    found = np.zeros(of.present.shape, dtype=np.bool_)
    any_of = {signature: among.present[rows].any(axis=0) for signature, rows in rows_of.items()}
    for row, labels in enumerate(of.labels):
        there = any_of.get(matching.signature(labels))
        if there is not None:
            found[row] = there
    return found


def _by_signature(vector: Vector, matching: Matching) -> dict[LabelKey, list[int]]:
    rows_of: dict[LabelKey, list[int]] = {}
    for row, labels in enumerate(vector.labels):
        rows_of.setdefault(matching.signature(labels), []).append(row)
    return rows_of


def _pairs(many: Vector, one: Vector, matching: Matching) -> IntArray:
    """(pairs, 2): rows of `many` with those of `one` that have their signature."""
    rows_of = _by_signature(one, matching)
    asked = many.present.any(axis=0)
    for rows in rows_of.values():
        if len(rows) > 1 and ((one.present[rows].sum(axis=0) > 1) & asked).any():
            side = "left" if matching.many == "right" else "right"
            group = shown(only(one.labels[rows[0]], matching.labels) if matching.on else {})
            raise ExecutionFailed(
                f"found duplicate series for the match group {group} on the {side} hand-side of the operation:"
                f" [{shown(one.labels[rows[0]])}, {shown(one.labels[rows[1]])}];"
                "many-to-many matching not allowed: matching labels must be unique on one side"
            )
    found: list[tuple[int, int]] = []
    for row, labels in enumerate(many.labels):
        found += [(row, partner) for partner in rows_of.get(matching.signature(labels), ())]
        if len(found) > MAX_PAIRS:
            raise ExecutionFailed(f"the operation has more than {MAX_PAIRS:,} pairs of series that match")
    return np.array(found, dtype=np.int64).reshape(len(found), 2)


def _check_single(many: Vector, matching: Matching, rows: IntArray, kept: BoolArray) -> None:
    places: dict[LabelKey, list[int]] = {}
    for place, row in enumerate(rows.tolist()):
        places.setdefault(matching.signature(many.labels[row]), []).append(place)
    for same in places.values():
        if len(same) > 1 and (kept[same].sum(axis=0) > 1).any():
            raise ExecutionFailed(
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
            )
