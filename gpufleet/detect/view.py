"""One look at the windows that all detectors share: who answers, who does not, and since when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpufleet.detect.rules import Rule
from gpufleet.detect.runs import Run, newest, trailing_run
from gpufleet.detect.windows import BoolArray, OpenKey, Windows

# Failures that a dead host shows as well. Any other answer came from something that lives.
SILENT = frozenset({"timeout", "refused", "unreachable"})
CUT_OFF = "cut off"
IN_A_ROW_TO_FAIL = 3
IN_A_ROW_TO_RECOVER = 2


@dataclass(frozen=True)
class View:
    """The windows with the rules and `now` (Unix seconds), and what several detectors ask of them."""

    windows: Windows
    rules: Sequence[Rule]
    now: float

    @cached_property
    def counted(self) -> BoolArray:
        """[T, S]: a scrape was made outside maintenance."""
        return self.windows.targets.scraped & ~self.windows.maintenance[:, self.windows.targets.node]

    @cached_property
    def failures(self) -> Run:
        """[S]: failed scrapes in a row up to the newest one."""
        return trailing_run(~self.windows.targets.good, self.counted)

    @cached_property
    def successes(self) -> Run:
        """[S]: good scrapes in a row up to the newest one."""
        return trailing_run(self.windows.targets.good, self.counted)

    @cached_property
    def targets_of_node(self) -> list[list[int]]:
        """[N]: the targets of each node that were scraped at least once in the windows."""
        found: list[list[int]] = [[] for _ in self.windows.nodes]
        for target in np.flatnonzero(self.counted.any(axis=0)):
            found[self.windows.targets.node[target]].append(int(target))
        return found

    @cached_property
    def in_maintenance(self) -> BoolArray:
        """[N]: planned time now."""
        windows = self.windows
        return windows.maintenance[-1] if len(windows.times) else np.zeros(len(windows.nodes), dtype=np.bool_)

    @cached_property
    def gpu_has_data(self) -> BoolArray:
        """[G]: the newest cycle listed the GPU, outside maintenance."""
        windows = self.windows
        if not len(windows.times):
            return np.zeros(len(windows.gpus.uuid), dtype=np.bool_)
        has_data: BoolArray = windows.gpus.listed[-1] & windows.good_for_gpus()[-1]
        return has_data

    def open_key(self, kind: str, subject: str) -> OpenKey | None:
        return self.windows.open.get((kind, subject))

    def newest_reason(self, target: int) -> str:
        """The words of the target's newest failure, '' when its newest scrape was good or there is none."""
        row = int(newest(self.counted[:, [target]])[0])
        return str(self.windows.targets.reason[row, target]) if row >= 0 else ""

    def is_silent(self, target: int) -> bool:
        """The target's newest scrape failed in a way in which a dead host fails too: not one byte came back."""
        row = int(newest(self.counted[:, [target]])[0])
        if row < 0:
            return False
        reason = self.windows.targets.reason[row, target]
        # A connection that is cut before the first byte is what a refused one looks like through a shared port.
        return reason in SILENT or (reason == CUT_OFF and self.windows.targets.bytes[row, target] == 0)

    def at(self, row: int, target: int) -> float:
        """When the target was scraped in a row (Unix seconds)."""
        at = float(self.windows.targets.at[row, target])
        return float(self.windows.times[row]) if np.isnan(at) else at
