"""What a process remembers of a target between scrapes. All of it can be lost at any moment and is found again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np

from gpufleet.fleet.specs import BoardSeen
from gpufleet.scrape import failures
from gpufleet.scrape.exposition import Parsed
from gpufleet.scrape.failures import ScrapeFailed
from gpufleet.scrape.lines import Line, boards_of, line_of
from gpufleet.scrape.plans import Plan, bounds_of, grouping
from gpufleet.scrape.series_cache import SeriesCache
from gpufleet.store.frames import IntArray
from gpufleet.store.series import ensure_layout, ensure_series

PLANS = 4  # bodies that take turns, with and without some lines, need no new plan each time
MAX_SERIES = 200_000
UNKNOWN_STEP_SECONDS = 90.0
STALE_STEPS = 2.5
LEAST_STEP_SECONDS = 5.0

SeriesKey = tuple[tuple[str, ...], int | None]


@dataclass(slots=True)
class Draft:
    """A set of lines without a plan yet."""

    refs: IntArray
    lines: list[Line]
    boards: tuple[BoardSeen, ...]


@dataclass(slots=True)
class TargetMemory:
    """One target. `gpu_ids`: key of a board to its GPU, as the plans were made with. `made`: ids of its series, sorted.

    `lines` and `series` are large and needed only while new plans are made; most targets send the same lines for ever.
    """

    target_id: int
    cache: SeriesCache
    is_federated: bool = False
    used_in: int = 0
    told_at: float | None = None
    step: float | None = None
    refs: IntArray | None = None
    plan: Plan | None = None
    plans: OrderedDict[bytes, Plan] = field(default_factory=OrderedDict)
    lines: dict[int, Line] = field(default_factory=dict)
    series: dict[SeriesKey, int] = field(default_factory=dict)
    made: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    gpu_ids: dict[str, int] = field(default_factory=dict)

    def is_stale(self, at: float | None, now: float) -> bool:
        """Whether values of time `at` (Unix seconds) are older than the other server's next scrapes would be.

        How often that server scrapes is seen from the times themselves.
        """
        if at is None:
            return False
        if self.told_at is not None and at > self.told_at:
            self.step = max(at - self.told_at, LEAST_STEP_SECONDS)
        self.told_at = max(at, self.told_at or at)
        return now - at > (UNKNOWN_STEP_SECONDS if self.step is None else STALE_STEPS * self.step)

    def recall(self, parsed: Parsed) -> Plan | Draft:
        """The plan for this body, or what is needed to make one."""
        if parsed.gone_refs:
            self._forget_refs()
        if parsed.refs is self.refs and self.plan is not None:
            return self.plan
        known = self.plans.get(parsed.refs.tobytes())
        if known is not None:
            self.plans.move_to_end(parsed.refs.tobytes())
            self.refs, self.plan = parsed.refs, known
            return known
        lines = [self._line(ref) for ref in parsed.refs.tolist()]
        return Draft(parsed.refs, lines, boards_of(lines))

    def learn(self, draft: Draft, gpu_ids: Mapping[str, int], now: datetime) -> Plan:
        """Makes the series and the layout that a body needs. Raises ScrapeFailed for a target without end."""
        keys: list[SeriesKey] = [
            (line.key, None if line.device is None else gpu_ids.get(line.device.key)) for line in draft.lines
        ]
        new = {key: line for key, line in zip(keys, draft.lines, strict=True) if key not in self.series}
        if self.made.size + len(new) > MAX_SERIES:
            raise ScrapeFailed(failures.TOO_MANY_SERIES, f"more than {MAX_SERIES} in the life of this process")
        if new:
            specs = [line.spec(gpu_id) for (_, gpu_id), line in new.items()]
            self.series.update(zip(new, ensure_series(self.target_id, specs, now), strict=True))
        layout, order, starts = grouping([self.series[key] for key in keys])
        self.made = np.union1d(self.made, layout)
        layout_id = ensure_layout(self.target_id, layout, now)
        is_node = any(line.meaning.exporter == "node_exporter" for line in draft.lines)
        plan = Plan(layout_id, order, starts, bounds_of(draft.lines), draft.boards, is_node)
        self.refs, self.plan = draft.refs, plan
        if not self.plans:
            self.let_go()
        self.plans[draft.refs.tobytes()] = plan
        self.gpu_ids.update(gpu_ids)
        while len(self.plans) > PLANS:
            self.plans.popitem(last=False)
        return plan

    def let_go(self) -> None:
        """Drops what only new lines need; it is worked out again when they come."""
        self.lines.clear()
        self.series.clear()

    def is_moved(self, gpu_ids: Mapping[str, int]) -> bool:
        """Whether a key names another GPU than before: an exporter without UUIDs after a change of boards."""
        return any(self.gpu_ids.get(key, gpu_id) != gpu_id for key, gpu_id in gpu_ids.items())

    def forget_plans(self) -> None:
        self.refs = self.plan = None
        self.plans.clear()
        self.gpu_ids.clear()

    def _forget_refs(self) -> None:
        """Refs that were let go may come back as other series."""
        self.forget_plans()
        self.lines.clear()

    def _line(self, ref: int) -> Line:
        line = self.lines.get(ref)
        if line is None:
            name, labels = self.cache.series(ref)
            line = self.lines[ref] = line_of(name, labels, self.cache.declared(ref))
        return line


@dataclass(slots=True)
class NodeMemory:
    """What was last told to the inventory about a node. `told` is compared by value; equal objects are quick."""

    told: tuple[tuple[BoardSeen, ...], ...] = ()
    gpu_ids: dict[str, int] = field(default_factory=dict)
    noted_at: float = 0.0
    cycle: int = 0
    unsettled: bool = False
