"""Where the samples of a query come from: the one thing that the evaluator knows of a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from gpufleet.promql.limits import Budget
from gpufleet.promql.matchers import LabelMatcher, all_hold
from gpufleet.promql.vectors import Labels, Samples


class Storage(Protocol):
    """`start` and `end` are Unix milliseconds, both inside the window."""

    def select(self, matchers: Sequence[LabelMatcher], start: int, end: int, budget: Budget) -> list[Samples]:
        """Samples of the window, staleness markers too. No two series have equal labels.

        Raises PromqlError when there are more than the budget allows.
        """

    def series(self, matchers: Sequence[LabelMatcher], start: int, end: int, budget: Budget) -> list[Labels]:
        """Labels of the series that may have samples in the window."""


@dataclass(slots=True)
class MemoryStorage:
    """Samples in memory, for tests and for data that are at hand anyway."""

    held: list[Samples] = field(default_factory=list)

    def select(self, matchers: Sequence[LabelMatcher], start: int, end: int, budget: Budget) -> list[Samples]:
        found = []
        for samples in self.held:
            rows = [row for row, labels in enumerate(samples.labels) if all_hold(matchers, labels)]
            first, after = np.searchsorted(samples.times, [start, end + 1])
            if rows and first < after:
                budget.take(len(rows), len(rows) * int(after - first))
                found.append(samples.taken(rows, slice(first, after)))
        return found

    def series(self, matchers: Sequence[LabelMatcher], start: int, end: int, budget: Budget) -> list[Labels]:
        return [labels for samples in self.select(matchers, start, end, budget) for labels in samples.labels]
