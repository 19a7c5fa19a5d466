"""Evaluates a tree over all steps at once: an expression becomes a matrix (series x steps), a scalar a row of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import promql_parser as grammar

from gpufleet.promql import aggregates, binary, functions, ranges
from gpufleet.promql.errors import BadQuery
from gpufleet.promql.histograms import histogram_quantile
from gpufleet.promql.limits import Budget
from gpufleet.promql.matchers import LabelMatcher
from gpufleet.promql.parsing import bare, fixed_millis, matchers_of, millis
from gpufleet.promql.storage import Storage
from gpufleet.promql.vectors import (
    FloatArray,
    IntArray,
    Samples,
    Vector,
    in_order,
    is_stale,
    merged,
    nothing,
)

Value = Vector | FloatArray | str


@dataclass(frozen=True, slots=True)
class Selection:
    """Windows of a range vector: `groups` without staleness markers, `ends` (t), `matchers` of its selector."""

    groups: list[Samples]
    ends: IntArray
    range_millis: int
    matchers: list[LabelMatcher]


@dataclass(frozen=True, slots=True)
class Evaluator:
    """`steps` (t): Unix milliseconds, ascending. `start` and `end` are what `@ start()` and `@ end()` mean."""

    storage: Storage
    budget: Budget
    steps: IntArray
    start: int
    end: int
    _read: dict[tuple[Any, ...], list[Samples]] = field(default_factory=dict)

    def value(self, tree: Any) -> Value:
        """Raises BadQuery for what is not supported, ExecutionFailed and QueryTimeout at limits."""
        self.budget.check_time()
        with np.errstate(all="ignore"):
            found = self._value(bare(tree))
        if isinstance(found, Vector):
            self.budget.take(len(found.labels), found.values.size)
        return found

    def vector(self, tree: Any) -> Vector:
        found = self.value(tree)
        if not isinstance(found, Vector):
            raise BadQuery("expected an instant vector")
        return found

    def scalar(self, tree: Any) -> FloatArray:
        found = self.value(tree)
        if not isinstance(found, np.ndarray):
            raise BadQuery("expected a scalar")
        return found

    def text(self, tree: Any) -> str:
        found = self.value(tree)
        if not isinstance(found, str):
            raise BadQuery("expected a string")
        return found

    def _value(self, tree: Any) -> Value:
        match tree:
            case grammar.NumberLiteral():
                return np.full(self.steps.size, float(tree.val))
            case grammar.StringLiteral():
                return str(tree.val)
            case grammar.VectorSelector():
                return self._newest(tree)
            case grammar.UnaryExpr():
                return self._negative(tree)
            case grammar.BinaryExpr():
                return self._binary(tree)
            case grammar.AggregateExpr():
                return self._aggregate(tree)
            case grammar.Call():
                return self._call(tree)
            case grammar.MatrixSelector() | grammar.SubqueryExpr():
                raise BadQuery("a range vector can only be the argument of a function such as rate()")
        raise BadQuery(f"{type(tree).__name__} is not supported")

    def _negative(self, tree: grammar.UnaryExpr) -> Value:
        found = self.value(tree.expr)
        return found.with_values(-found.values).nameless() if isinstance(found, Vector) else -_numbers(found)

    # Selectors.

    def _ends(self, offset: Any, at: grammar.AtModifier | None) -> IntArray:
        """The instant that each step looks at."""
        ends = self.steps
        if at is not None:
            fixed = fixed_millis(at)
            if fixed is None:
                fixed = self.start if at.type == grammar.AtModifierType.Start else self.end
            ends = np.full_like(ends, fixed)
        return ends - millis(offset)

    def _samples(self, matchers: list[LabelMatcher], start: int, end: int) -> list[Samples]:
        key = (tuple(matchers), start, end)
        if key not in self._read:
            self._read[key] = self.storage.select(matchers, start, end, self.budget)
        return self._read[key]

    def _newest(self, selector: grammar.VectorSelector, *, as_times: bool = False) -> Vector:
        """The newest sample of each series and step within the look-back; or its time in seconds."""
        ends, back = self._ends(selector.offset, selector.at), self.budget.limits.lookback_millis
        groups = self._samples(matchers_of(selector), int(ends.min()) - back, int(ends.max()))
        labels: list[Any] = []
        values, present = [], []
        self.budget.take(sum(len(group.labels) for group in groups), 0)
        for group in groups:
            places = np.searchsorted(group.times, ends, side="right") - 1
            times = group.times[places]
            picked = group.values[:, places]
            present.append((places >= 0) & (times >= ends - back) & ~is_stale(picked))
            values.append(np.broadcast_to(times / 1000.0, picked.shape) if as_times else picked)
            labels += group.labels
        if not labels:
            return nothing(self.steps.size)
        return in_order(Vector(labels, np.concatenate(values), np.concatenate(present)))

    def selection(self, tree: Any) -> Selection:
        """The windows of a range selector or a subquery."""
        tree = bare(tree)
        if isinstance(tree, grammar.SubqueryExpr):
            return self._subquery(tree)
        if not isinstance(tree, grammar.MatrixSelector):
            raise BadQuery("expected a range vector")
        selector, length = tree.vector_selector, millis(tree.range)
        ends, matchers = self._ends(selector.offset, selector.at), matchers_of(selector)
        found = self._samples(matchers, int(ends.min()) - length, int(ends.max()))
        groups = [part for group in found for part in without_stale(group)]
        return Selection(groups, ends, length, matchers)

    def _subquery(self, tree: grammar.SubqueryExpr) -> Selection:
        ends, length = self._ends(tree.offset, tree.at), millis(tree.range)
        step = millis(tree.step) or self.budget.limits.subquery_step_millis
        first = -(-(int(ends.min()) - length) // step) * step
        last = int(ends.max())
        if last < first:
            return Selection([], ends, length, [])
        self.budget.take(0, (last - first) // step + 1)
        steps = np.arange(first, last + 1, step, dtype=np.int64)
        inner = replace(self, steps=steps).value(tree.expr)
        if not isinstance(inner, Vector):
            inner = Vector([{}], _numbers(inner)[None, :], np.ones((1, steps.size), dtype=np.bool_))
        return Selection(list(_by_presence(steps, inner)), ends, length, [])

    # Operators.

    def _binary(self, tree: grammar.BinaryExpr) -> Value:
        op, modifier = str(tree.op), tree.modifier
        left, right = self.value(tree.lhs), self.value(tree.rhs)
        as_bool = modifier is not None and modifier.return_bool
        if isinstance(left, Vector) and isinstance(right, Vector):
            self.budget.check_time()
            matching = _matching(modifier)
            if op in binary.SETS:
                return binary.sets(op, left, right, matching)
            return binary.vectors(op, left, right, matching, as_bool=as_bool)
        if isinstance(left, Vector):
            return binary.with_scalar(op, left, _numbers(right), scalar_left=False, as_bool=as_bool)
        if isinstance(right, Vector):
            return binary.with_scalar(op, right, _numbers(left), scalar_left=True, as_bool=as_bool)
        return binary.scalars(op, _numbers(left), _numbers(right))

    def _aggregate(self, tree: grammar.AggregateExpr) -> Vector:
        op, grouping = str(tree.op), aggregates.ALL
        if tree.modifier is not None:
            by = tree.modifier.type == grammar.AggModifierType.By
            grouping = aggregates.Grouping(tuple(tree.modifier.labels), by)
        vector = self.vector(tree.expr)
        if op in aggregates.PLAIN:
            return aggregates.reduce_groups(op, vector, grouping)
        match op:
            case "topk" | "bottomk":
                return aggregates.best(vector, grouping, self.scalar(tree.param), op == "topk", self.budget)
            case "quantile":
                return aggregates.quantile(vector, grouping, self.scalar(tree.param))
            case "count_values":
                return aggregates.count_values(vector, grouping, self.text(tree.param), self.budget)
        raise BadQuery(f"the aggregation {op} is not supported")

    # Functions.

    def _call(self, tree: grammar.Call) -> Value:
        name, arguments = tree.func.name, tree.args
        if name in ranges.FUNCTIONS:
            return ranges.call(self, name, arguments)
        if name in functions.MATHS:
            vector = self.vector(arguments[0])
            return vector.with_values(functions.MATHS[name](vector.values)).nameless()
        if name in functions.DATES:
            vector = self.vector(arguments[0]) if arguments else self._now()
            return vector.with_values(functions.dated(name, vector.values)).nameless()
        special = _SPECIAL.get(name)
        if special is None:
            raise BadQuery(f"the function {name}() is not supported")
        return special(self, arguments)

    def _now(self) -> Vector:
        return _lone(self.steps / 1000.0)

    def _timestamp(self, arguments: Sequence[Any]) -> Vector:
        inner = bare(arguments[0])
        if isinstance(inner, grammar.VectorSelector):
            return self._newest(inner, as_times=True).nameless()
        vector = self.vector(inner)
        return vector.with_values(np.broadcast_to(self.steps / 1000.0, vector.values.shape)).nameless()

    def _clamp(self, arguments: Sequence[Any], low: Any, high: Any) -> Vector:
        return functions.clamped(self.vector(arguments[0]), self._bound(low, -np.inf), self._bound(high, np.inf))

    def _bound(self, tree: Any, otherwise: float) -> FloatArray:
        return np.full(self.steps.size, otherwise) if tree is None else self.scalar(tree)

    def _round(self, arguments: Sequence[Any]) -> Vector:
        vector, to = self.vector(arguments[0]), self._bound((*arguments, None)[1], 1.0)
        return vector.with_values(functions.rounded(vector.values, to)).nameless()

    def _sorted(self, arguments: Sequence[Any], *, descending: bool) -> Vector:
        vector = self.vector(arguments[0])
        if self.steps.size != 1 or not vector.labels:
            return vector
        values = vector.values[:, 0]
        keys = -values if descending else values
        return vector.taken(np.lexsort((keys, np.isnan(values))))

    def _absent(self, arguments: Sequence[Any]) -> Vector:
        inner = bare(arguments[0])
        matchers = matchers_of(inner) if isinstance(inner, grammar.VectorSelector) else []
        return functions.absent(self.vector(inner), matchers)


def without_stale(samples: Samples) -> list[Samples]:
    """The same samples without staleness markers: series that share their times stay together."""
    return list(_by_mask(samples, ~is_stale(samples.values)))


def _by_presence(steps: IntArray, vector: Vector) -> list[Samples]:
    return _by_mask(Samples(vector.labels, steps, vector.values), vector.present)


def _by_mask(samples: Samples, there: Any) -> list[Samples]:
    if there.all():
        return [samples] if samples.times.size else []
    rows_of: dict[bytes, list[int]] = {}
    for row, mask in enumerate(np.packbits(there, axis=1)):
        rows_of.setdefault(mask.tobytes(), []).append(row)
    return [samples.taken(rows, there[rows[0]]) for rows in rows_of.values() if there[rows[0]].any()]


def _numbers(value: Value) -> FloatArray:
    if not isinstance(value, np.ndarray):
        raise BadQuery("a string is no number")
    return value


def _lone(values: FloatArray) -> Vector:
    return Vector([{}], values[None, :].astype(np.float64), np.ones((1, values.size), dtype=np.bool_))


def _matching(modifier: grammar.BinModifier | None) -> binary.Matching:
    if modifier is None:
        return binary.Matching()
    fill = modifier.fill_values
    if fill.lhs is not None or fill.rhs is not None:
        raise BadQuery("the modifier fill is not supported")
    many = ""
    if modifier.card == grammar.VectorMatchCardinality.ManyToOne:
        many = "left"
    elif modifier.card == grammar.VectorMatchCardinality.OneToMany:
        many = "right"
    labels = modifier.matching
    on = labels is not None and labels.type == grammar.LabelModifierType.Include
    return binary.Matching(
        tuple(labels.labels) if labels is not None else (), on, many, tuple(modifier.group_labels or ())
    )


Special = Callable[[Evaluator, Sequence[Any]], Value]
_SPECIAL: dict[str, Special] = {
    "time": lambda self, _: self.steps / 1000.0,
    "pi": lambda self, _: np.full(self.steps.size, np.pi),
    "vector": lambda self, given: _lone(self.scalar(given[0])),
    "scalar": lambda self, given: functions.to_scalar(self.vector(given[0])),
    "timestamp": Evaluator._timestamp,
    "round": Evaluator._round,
    "clamp": lambda self, given: self._clamp(given, given[1], given[2]),
    "clamp_min": lambda self, given: self._clamp(given, given[1], None),
    "clamp_max": lambda self, given: self._clamp(given, None, given[1]),
    "sort": lambda self, given: self._sorted(given, descending=False),
    "sort_desc": lambda self, given: self._sorted(given, descending=True),
    "absent": Evaluator._absent,
    "histogram_quantile": lambda self, given: merged(histogram_quantile(self.scalar(given[0]), self.vector(given[1]))),
    "label_replace": lambda self, given: functions.label_replace(
        self.vector(given[0]), *(self.text(one) for one in given[1:5])
    ),
    "label_join": lambda self, given: functions.label_join(
        self.vector(given[0]), self.text(given[1]), self.text(given[2]), [self.text(one) for one in given[3:]]
    ),
}
# Every function that is answered.
SUPPORTED = frozenset({*_SPECIAL, *ranges.FUNCTIONS, *functions.MATHS, *functions.DATES})
