"""Functions of range vectors: which there are, and what they do with the windows of each group of series."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from gpufleet.promql import windows as w
from gpufleet.promql.functions import absent
from gpufleet.promql.vectors import FloatArray, Vector, in_order, nothing
from gpufleet.promql.windows import Windows

if TYPE_CHECKING:
    from gpufleet.promql.evaluator import Evaluator, Selection

# (windows, parameters (t) each, length of the range in seconds) to values (k, t).
Work = Callable[[Windows, Sequence[FloatArray], float], FloatArray]
FUNCTIONS: Mapping[str, tuple[Work, int]] = MappingProxyType(
    {
        # function: (work, samples that it needs)
        "rate": (lambda win, _, seconds: w.extrapolated(win, True, seconds), 2),
        "increase": (lambda win, *_: w.extrapolated(win, True, None), 2),
        "delta": (lambda win, *_: w.extrapolated(win, False, None), 2),
        "irate": (lambda win, *_: w.instant_growth(win, True), 2),
        "idelta": (lambda win, *_: w.instant_growth(win, False), 2),
        "deriv": (lambda win, *_: w.slope(win), 2),
        "predict_linear": (lambda win, given, _: w.predicted(win, given[0]), 2),
        "changes": (lambda win, *_: w.changed(win), 1),
        "resets": (lambda win, *_: w.reset(win), 1),
        "avg_over_time": (lambda win, *_: w.average(win), 1),
        "min_over_time": (lambda win, *_: win.reduced(np.fmin, win.values), 1),
        "max_over_time": (lambda win, *_: win.reduced(np.fmax, win.values), 1),
        "sum_over_time": (lambda win, *_: win.reduced(np.add, win.values), 1),
        "count_over_time": (lambda win, *_: np.broadcast_to(win.count.astype(np.float64), _shape(win)), 1),
        "last_over_time": (lambda win, *_: win.values[:, win.newest], 1),
        "stdvar_over_time": (lambda win, *_: w.spread(win), 1),
        "stddev_over_time": (lambda win, *_: np.sqrt(w.spread(win)), 1),
        "quantile_over_time": (lambda win, given, _: w.quantile(win, given[0]), 1),
        "present_over_time": (lambda win, *_: np.ones(_shape(win)), 1),
        "absent_over_time": (lambda win, *_: np.ones(_shape(win)), 1),
    }
)
# The range vector comes second.
_PARAMETER_FIRST = frozenset({"quantile_over_time"})
_KEEPS_NAME = frozenset({"last_over_time"})


def _shape(win: Windows) -> tuple[int, int]:
    return win.values.shape[0], win.first.size


def call(evaluator: Evaluator, name: str, arguments: Sequence[Any]) -> Vector:
    """One of FUNCTIONS. Raises PromqlError as the evaluator does."""
    place = 1 if name in _PARAMETER_FIRST else 0
    parameters = [evaluator.scalar(one) for number, one in enumerate(arguments) if number != place]
    selection = evaluator.selection(arguments[place])
    found = _over(evaluator, name, parameters, selection)
    if name == "absent_over_time":
        return absent(found, selection.matchers)
    return found if name in _KEEPS_NAME else found.nameless()


def _over(evaluator: Evaluator, name: str, parameters: Sequence[FloatArray], selection: Selection) -> Vector:
    work, needed = FUNCTIONS[name]
    labels: list[Any] = []
    values, present = [], []
    for group in selection.groups:
        win = Windows.of(group, selection.ends, selection.range_millis, evaluator.steps, evaluator.budget.check_time)
        evaluator.budget.take(len(group.labels), len(group.labels) * evaluator.steps.size)
        there = win.count >= needed
        if there.any():
            labels += group.labels
            values.append(work(win, parameters, selection.range_millis / 1000.0))
            present.append(np.broadcast_to(there, values[-1].shape))
    if not labels:
        return nothing(evaluator.steps.size)
    return in_order(Vector(labels, np.concatenate(values), np.concatenate(present)))
