"""Single values of a metric: the newest ones, or those of a past moment, whichever tier holds it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gpufleet.store.lines import Scope, all_names, lines_of, united
from gpufleet.store.tiered import Window, parts

WITHIN_SECONDS = 240.0  # shorter than a step of any roll-up, so that samples answer where there are some


class Value(NamedTuple):
    """One line at a moment. `at`: Unix seconds; of a roll-up the start of its step."""

    gpu_id: int | None
    node_id: int
    labels: dict[str, str]
    at: float
    value: float


def read_values(
    metrics: Sequence[str], scope: Scope, at: float, within_seconds: float = WITHIN_SECONDS
) -> dict[str, list[Value]]:
    """The newest canonical value of each line in `(at - within_seconds, at]`; a line without one is left out."""
    within = min(within_seconds, WITHIN_SECONDS)
    found = lines_of(metrics, scope)
    names = all_names(found)
    newest: dict[str, dict[int, tuple[float, float, int]]] = {metric: {} for metric in metrics}
    # One step that ends a microsecond after `at`.
    window = Window(at - within, at + 1e-6, within + 1.0, frozenset({"last"}))
    for part in parts(united(lines.wanted for lines in found.values()), names, window):
        for metric, lines in found.items():
            numbers = lines.numbers(part.series_ids)
            for column in np.flatnonzero(numbers >= 0).tolist():
                moment, value = float(part.last_at[-1, column]), float(part.cells.last[-1, column])
                known = newest[metric].get(int(numbers[column]))
                if value == value and (known is None or moment > known[0]):
                    node_id = lines.node_of_series[int(part.series_ids[column])]
                    newest[metric][int(numbers[column])] = (moment, value, node_id)
    return {
        metric: [
            Value(line.gpu_id, newest[metric][line.number][2], dict(line.labels), *newest[metric][line.number][:2])
            for line in lines.lines
            if line.number in newest[metric]
        ]
        for metric, lines in found.items()
    }
