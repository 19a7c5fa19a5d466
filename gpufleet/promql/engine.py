"""Queries at one instant and over a range: text in, labels and arrays out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import promql_parser as grammar

from gpufleet.promql.errors import BadQuery
from gpufleet.promql.evaluator import Evaluator
from gpufleet.promql.limits import Budget, Limits
from gpufleet.promql.parsing import bare, parse
from gpufleet.promql.storage import Storage
from gpufleet.promql.vectors import FloatArray, IntArray, Labels, Vector, in_order, merged


@dataclass(frozen=True, slots=True)
class Row:
    """One series of an answer: `times` in Unix milliseconds, `values` of the same length."""

    labels: Labels
    times: IntArray
    values: FloatArray


@dataclass(frozen=True, slots=True)
class Answer:
    """`kind` is vector, matrix, scalar or string; a scalar is one row without labels, a string stands in `text`."""

    kind: str
    rows: list[Row]
    text: str = ""


def query_instant(storage: Storage, query: str, at: int, limits: Limits | None = None) -> Answer:
    """The answer at `at`, Unix milliseconds. Raises PromqlError."""
    tree = bare(parse(query))
    steps = np.array([at], dtype=np.int64)
    evaluator = Evaluator(storage, Budget(limits or Limits()), steps, at, at)
    if isinstance(tree, grammar.MatrixSelector | grammar.SubqueryExpr):
        return Answer("matrix", _raw(evaluator, tree))
    found = evaluator.value(tree)
    if isinstance(found, str):
        return Answer("string", [Row({}, steps, np.empty(0))], found)
    if isinstance(found, Vector):
        return Answer("vector", _rows(steps, merged(found)))
    return Answer("scalar", [Row({}, steps, found)])


def query_range(storage: Storage, query: str, start: int, end: int, step: int, limits: Limits | None = None) -> Answer:
    """The answer at `start`, `start + step`, .. up to `end`, Unix milliseconds. Raises PromqlError."""
    limits = limits or Limits()
    if step <= 0:
        raise BadQuery(
            'invalid parameter "step": zero or negative query resolution step widths are not accepted.'
            " Try a positive integer"
        )
    if end < start:
        raise BadQuery('invalid parameter "end": end timestamp must not be before start time')
    if (end - start) // step >= limits.max_points:
        raise BadQuery(
            f"exceeded maximum resolution of {limits.max_points:,} points per timeseries."
            " Try decreasing the query resolution (?step=XX)"
        )
    tree = bare(parse(query))
    if isinstance(tree, grammar.MatrixSelector | grammar.SubqueryExpr | grammar.StringLiteral):
        kind = "string" if isinstance(tree, grammar.StringLiteral) else "range vector"
        raise BadQuery(
            f'invalid parameter "query": invalid expression type "{kind}" for range query,'
            " must be Scalar or instant Vector"
        )
    steps = np.arange(start, end + 1, step, dtype=np.int64)
    found = Evaluator(storage, Budget(limits), steps, start, end).value(tree)
    if isinstance(found, Vector):
        return Answer("matrix", _rows(steps, in_order(merged(found))))
    assert isinstance(found, np.ndarray)  # noqa: S101 - a string was refused above
    return Answer("matrix", [Row({}, steps, found)])


def _rows(steps: IntArray, vector: Vector) -> list[Row]:
    return [
        Row(labels, steps, values) if there.all() else Row(labels, steps[there], values[there])
        for labels, values, there in zip(vector.labels, vector.values, vector.present, strict=True)
        if there.any()
    ]


def _raw(evaluator: Evaluator, tree: Any) -> list[Row]:
    """The samples of a range vector as they are."""
    selection = evaluator.selection(tree)
    end = int(selection.ends[0])
    rows = []
    for group in selection.groups:
        inside = slice(*np.searchsorted(group.times, [end - selection.range_millis, end + 1]).tolist())
        rows += [
            Row(labels, group.times[inside], values[inside])
            for labels, values in zip(group.labels, group.values, strict=True)
            if inside.start < inside.stop
        ]
    return rows
