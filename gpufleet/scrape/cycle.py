"""One cycle over some targets: fetch together, read, tell the inventory what changed, and make one frame a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gpufleet.core.times import from_unix
from gpufleet.fleet.models import Cluster, Target
from gpufleet.fleet.observation import observe_devices
from gpufleet.fleet.queries import ActiveTarget
from gpufleet.fleet.specs import BoardSeen, NodeSeen
from gpufleet.scrape import failures
from gpufleet.scrape.exposition import ExpositionError, Parsed, read
from gpufleet.scrape.failures import ScrapeFailed
from gpufleet.scrape.federation import is_federated
from gpufleet.scrape.fetch import Fetched
from gpufleet.scrape.memory import Draft, NodeMemory, TargetMemory
from gpufleet.scrape.plans import Counter, Plan
from gpufleet.scrape.series_cache import SeriesCache
from gpufleet.store.frames import Frame, StoreError

NOTE_AGAIN_SECONDS = 3_600.0
LIFE_CYCLES = 100  # cycles after which a target that is no longer scraped is forgotten


@dataclass(frozen=True, slots=True)
class Status:
    """How a scrape of a target went; fields as in `models.TargetStatus`."""

    target_id: int
    scraped_at: datetime
    reason: str
    detail: str
    duration_seconds: float
    bytes: int
    accepted: int = 0
    rejected: int = 0
    missing: int = 0
    impossible: int = 0
    disagreeing: int = 0
    first_bad_line: tuple[int, str, str] | None = None


@dataclass(slots=True)
class CycleResult:
    """One frame a target, in their order, and one status for each that was asked.

    `kinds`: what targets have shown to be.
    """

    frames: list[Frame] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    kinds: dict[int, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Scrape:
    """One target on its way through the cycle."""

    target: ActiveTarget
    fetched: Fetched
    memory: TargetMemory
    parsed: Parsed | None = None
    plan: Plan | None = None
    draft: Draft | None = None
    failure: ScrapeFailed | None = None

    @property
    def boards(self) -> tuple[BoardSeen, ...]:
        found = self.plan or self.draft
        return () if found is None else found.boards

    def fail(self, reason: str, detail: str) -> None:
        self.failure = ScrapeFailed(reason, detail)
        self.plan = self.draft = None


class Reader:
    """Reads fetched bodies of one cluster. Keeps what it learns; one for a process, not for several threads."""

    def __init__(self, *, max_samples: int, interval_seconds: float) -> None:
        self._max_samples = max_samples
        self._interval = interval_seconds
        self._targets: dict[int, TargetMemory] = {}
        self._nodes: dict[int, NodeMemory] = {}
        self._counter = Counter()

    def forget(self) -> None:
        """Drops all that is remembered: after the database lost what it is about."""
        self._targets.clear()
        self._nodes.clear()

    def take(
        self, cluster: Cluster, targets: Sequence[ActiveTarget], fetched: Sequence[Fetched], cycle: int, now: datetime
    ) -> CycleResult:
        """Frames and statuses, one a target. Writes GPUs, series and layouts that are new, and nothing else."""
        scrapes = [_Scrape(t, f, self._memory(t.id, t.url, cycle)) for t, f in zip(targets, fetched, strict=True)]
        for scrape in scrapes:
            self._read(scrape)
        gpu_ids = self._tell(cluster, scrapes, cycle, now)
        for scrape in scrapes:
            self._plan(scrape, gpu_ids.get(scrape.target.node_id, {}), now)
        result = CycleResult()
        counts = self._count(scrapes)
        for scrape, (missing, impossible) in zip(scrapes, counts, strict=True):
            _finish(scrape, cycle, missing, impossible, result)
        self._let_go(cycle)
        return result

    def _memory(self, target_id: int, url: str, cycle: int) -> TargetMemory:
        memory = self._targets.get(target_id)
        if memory is None:
            cache = SeriesCache(limit=max(20_000, 2 * self._max_samples))
            memory = self._targets[target_id] = TargetMemory(target_id, cache, is_federated=is_federated(url))
        memory.used_in = cycle
        return memory

    def _read(self, scrape: _Scrape) -> None:
        fetched = scrape.fetched
        if fetched.body is None:
            scrape.fail(fetched.reason, fetched.detail)
            return
        try:
            scrape.parsed = read(
                fetched.body,
                scrape.memory.cache,
                scraped_at=fetched.started_at,
                max_samples=self._max_samples,
                content_type=fetched.content_type,
                newest_only=scrape.memory.is_federated,
            )
        except ExpositionError as error:
            scrape.fail(error.reason, error.detail)
            return
        found = scrape.memory.recall(scrape.parsed)
        if isinstance(found, Plan):
            scrape.plan = found
        else:
            scrape.draft = found
        if scrape.target.kind == Target.Kind.GPU and not found.boards:
            scrape.fail(failures.NO_GPU_SAMPLES, "the exporter answers, but lists no GPU")
        elif not scrape.parsed.accepted:
            scrape.fail(failures.NO_SAMPLES, "the exporter answers, but with no sample that can be read")
        elif scrape.memory.is_federated and scrape.memory.is_stale(scrape.parsed.newest_at(), fetched.started_at):
            scrape.fail(failures.STALE, "the server holds only values of an earlier time")

    def _tell(
        self, cluster: Cluster, scrapes: Sequence[_Scrape], cycle: int, now: datetime
    ) -> dict[int, dict[str, int]]:
        """Tells the inventory about the nodes whose boards changed. Returns the GPUs of every node by key."""
        by_node: dict[int, list[tuple[BoardSeen, ...]]] = {}
        for scrape in scrapes:
            if scrape.boards:
                by_node.setdefault(scrape.target.node_id, []).append(scrape.boards)
        news: list[NodeSeen] = []
        for node_id, told in by_node.items():
            memory = self._nodes.setdefault(node_id, NodeMemory())
            if self._is_news(memory, tuple(told), cycle, now):
                news.append(NodeSeen(node_id, merged(told)))
            memory.cycle = cycle
        if news:
            observed = observe_devices(cluster, news, now, interval_seconds=self._interval)
            for one in news:
                memory = self._nodes[one.node_id]
                memory.told = tuple(by_node[one.node_id])
                memory.gpu_ids = {key: gpu for (node, key), gpu in observed.gpu_ids.items() if node == one.node_id}
                memory.unsettled = one.node_id in observed.unsettled
                memory.noted_at = now.timestamp()
        return {node_id: self._nodes[node_id].gpu_ids for node_id in by_node}

    def _is_news(self, memory: NodeMemory, told: tuple[tuple[BoardSeen, ...], ...], cycle: int, now: datetime) -> bool:
        """Somebody else may have told other things when this process did not scrape the node in the last cycle."""
        age = now.timestamp() - memory.noted_at
        fresh = memory.cycle == cycle - 1 and 0 <= age < NOTE_AGAIN_SECONDS and not memory.unsettled
        return not fresh or memory.told != told

    def _plan(self, scrape: _Scrape, gpu_ids: Mapping[str, int], now: datetime) -> None:
        if scrape.failure is not None or scrape.parsed is None:
            return
        memory = scrape.memory
        if memory.gpu_ids and memory.is_moved(gpu_ids):
            memory.forget_plans()
            found = memory.recall(scrape.parsed)
            scrape.plan, scrape.draft = None, found if isinstance(found, Draft) else None
        if scrape.draft is None:
            return
        try:
            scrape.plan = memory.learn(scrape.draft, gpu_ids, now)
        except ScrapeFailed as error:
            scrape.fail(error.reason, error.detail)
        except StoreError as error:
            scrape.fail(failures.COLLECTOR, str(error))

    def _count(self, scrapes: Sequence[_Scrape]) -> list[tuple[int, int]]:
        """(missing, impossible) of each scrape's lines; nothing of a scrape that failed."""
        counted = iter(self._counter.count([(s.plan.bounds, s.parsed.values) for s in scrapes if s.plan and s.parsed]))
        return [next(counted) if s.plan and s.parsed else (0, 0) for s in scrapes]

    def _let_go(self, cycle: int) -> None:
        if cycle % LIFE_CYCLES:
            return
        for memory in self._targets.values():
            memory.let_go()
        for target_id in [t for t, memory in self._targets.items() if cycle - memory.used_in > LIFE_CYCLES]:
            del self._targets[target_id]
        for node_id in [n for n, memory in self._nodes.items() if cycle - memory.cycle > LIFE_CYCLES]:
            del self._nodes[node_id]


def merged(told: Sequence[tuple[BoardSeen, ...]]) -> tuple[BoardSeen, ...]:
    """The boards of a node, out of what several exporters tell. The same UUID, or the same bus, is the same board."""
    if len(told) == 1:
        return told[0]
    by_bus = {board.device.pci_bus_id: board.device.key for boards in told for board in boards if board.device.uuid}
    found: dict[str, BoardSeen] = {}
    for board in (board for boards in told for board in boards):
        key = board.device.key if board.device.uuid else by_bus.get(board.device.pci_bus_id, board.device.key)
        other = found.get(key)
        if other is not None:
            device = other.device if other.device.uuid or not board.device.uuid else board.device
            board = BoardSeen(other.keys | board.keys, device, other.workloads | board.workloads)
        found[key] = board
    return tuple(found[key] for key in sorted(found))


def _shown(kind: str, plan: Plan) -> str:
    """What a target has shown to be. Once a GPU target, always one: then an answer without GPUs is a failure."""
    if plan.boards:
        return Target.Kind.GPU
    return Target.Kind.NODE if plan.is_node and kind == Target.Kind.UNKNOWN else kind


def _finish(scrape: _Scrape, cycle: int, missing: int, impossible: int, result: CycleResult) -> None:
    fetched, failure, parsed = scrape.fetched, scrape.failure, scrape.parsed
    disagreeing = accepted = rejected = 0
    values = layout_id = None
    if parsed is not None:
        rejected = parsed.rejected
    if failure is None and parsed is not None and scrape.plan is not None:
        accepted, layout_id = parsed.accepted, scrape.plan.layout_id
        values, disagreeing = scrape.plan.fold(parsed.values)
        kind = _shown(scrape.target.kind, scrape.plan)
        if kind != scrape.target.kind:
            result.kinds[scrape.target.id] = kind
    reason, detail = (failure.reason, failure.detail) if failure else ("", "")
    result.frames.append(
        Frame(
            target_id=scrape.target.id,
            scraped_at=fetched.started_at,
            cycle=cycle,
            reason=reason,
            duration_seconds=fetched.duration_seconds,
            bytes=fetched.size,
            accepted=accepted,
            rejected=rejected,
            missing=missing,
            layout_id=layout_id,
            values=values,
        )
    )
    if not fetched.is_asked:
        return
    result.statuses.append(
        Status(
            target_id=scrape.target.id,
            scraped_at=from_unix(fetched.started_at),
            reason=reason,
            detail=detail,
            duration_seconds=fetched.duration_seconds,
            bytes=fetched.size,
            accepted=accepted,
            rejected=rejected,
            missing=missing,
            impossible=impossible,
            disagreeing=disagreeing,
            first_bad_line=parsed.first_bad_line if parsed else None,
        )
    )
