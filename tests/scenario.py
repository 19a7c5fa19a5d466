"""A small fleet in virtual time: bodies in, through the real reader, store, detection, intake and ledger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from gpufleet.availability.models import StateInterval
from gpufleet.core.times import from_unix
from gpufleet.fleet.actions import import_targets
from gpufleet.fleet.models import Cluster, NodeEvent
from gpufleet.fleet.queries import active_targets
from gpufleet.fleet.specs import TargetSpec
from gpufleet.incidents.intake import sweep
from gpufleet.incidents.models import Incident
from gpufleet.pipeline.detecting import Detected, Shard, detect, forget_windows
from gpufleet.scrape.actions import store_shard
from gpufleet.scrape.cycle import Reader
from gpufleet.scrape.fetch import Fetched

START = 1_773_144_000.0  # 2026-03-10T12:00:00Z
NODE_BODY = b"# TYPE node_load1 gauge\nnode_load1 1.5\nnode_boot_time_seconds 1.7e+09\n"
Answer = bytes | str  # a body, or the words of a failure


class Scenario:
    """`targets`: (node, job) pairs; the job `dcgm` is a GPU exporter, `node` a node exporter."""

    def __init__(self, *targets: tuple[str, str], interval: float = 15.0) -> None:
        self.interval = interval
        self.cluster = Cluster.objects.create(name="scenario", is_replay=True)
        specs = [
            TargetSpec(f"http://{node}.example:9/{job}", node, "scenario", "r1", "s1", job) for node, job in targets
        ]
        import_targets(specs, source="test", actor="test", now=from_unix(START), trusted=True, cluster=self.cluster)
        self.reader = Reader(max_samples=50_000, interval_seconds=interval)
        forget_windows()

    def step(self, seconds: float, answers: Mapping[tuple[str, str], Answer]) -> Detected | None:
        """One cycle, `seconds` after the start; every target must have an answer."""
        self.scrape(seconds, answers)
        return self.judge(seconds)

    def scrape(self, seconds: float, answers: Mapping[tuple[str, str], Answer]) -> None:
        """The first half of a cycle, without a judgement."""
        now = self.at(seconds)
        targets = active_targets(self.cluster.id)
        fetched = [_fetched(target.id, now.timestamp(), answers[target.node, target.job]) for target in targets]
        result = self.reader.take(self.cluster, targets, fetched, self.cycle(seconds), now)
        store_shard(None, 0, result, now)

    def judge(self, seconds: float) -> Detected | None:
        now = self.at(seconds)
        place = Shard(self.cluster, [target.id for target in active_targets(self.cluster.id)], self.interval)
        done = detect(place, 0, self.cycle(seconds), now)
        sweep(now, self.cluster)
        return done

    def cycle(self, seconds: float) -> int:
        return int((START + seconds) // self.interval)

    def at(self, seconds: float) -> datetime:
        return from_unix(START + seconds)

    def incidents(self, kind: str = "") -> list[Incident]:
        found = Incident.objects.filter(cluster=self.cluster, **({"kind": kind} if kind else {}))
        return list(found.order_by("opened_at", "id"))

    def xids(self) -> dict[int, int]:
        """How often each code was counted."""
        counts: dict[int, int] = {}
        for code, count in NodeEvent.objects.filter(node__cluster=self.cluster, kind="xid").values_list("xid", "count"):
            counts[code or 0] = counts.get(code or 0, 0) + count
        return counts

    def ledger(self, uuid: str = "", node: str = "") -> list[tuple[str, float, float | None]]:
        """(state, start, end) of a GPU or a node, in seconds after the start; neighbours of one state are one."""
        scope = {"gpu__uuid__iexact": uuid} if uuid else {"node__name": node, "gpu": None}
        rows = StateInterval.objects.filter(cluster=self.cluster, **scope).order_by("starts_at")
        found: list[tuple[str, float, float | None]] = []
        for row in rows:
            start, end = seconds_after(row.starts_at), seconds_after(row.ends_at) if row.ends_at else None
            if found and found[-1][0] == row.state and found[-1][2] == start:
                start = found.pop()[1]
            found.append((row.state, start, end))
        return found

    def down_seconds(self, uuid: str) -> float:
        return sum((end or 0) - start for state, start, end in self.ledger(uuid) if state == "failed")


def seconds_after(at: datetime) -> float:
    """Seconds after the start of every scenario."""
    return at.timestamp() - START


def bodies(folder: Path, suffix: str = "") -> Iterator[tuple[int, bytes]]:
    """(seconds, body) of the files `tNNN<suffix>.prom` of a case, in order of time."""
    found = {}
    for path in folder.glob("t*.prom"):
        number, dash, rest = path.stem[1:].partition("-")
        if dash + rest == suffix:
            found[int(number)] = path.read_bytes()
    return iter(sorted(found.items()))


def _fetched(target_id: int, at: float, answer: Answer) -> Fetched:
    if isinstance(answer, str):
        return Fetched(target_id, at, 0.05, 0, None, answer, "")
    return Fetched(target_id, at, 0.05, len(answer), answer, content_type="text/plain")
