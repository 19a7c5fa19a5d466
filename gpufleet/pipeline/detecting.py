"""One cycle of one shard, judged: windows, engine, incidents, ledger, live pages, in this order.

May run twice, or late, or beside itself: happenings are written once, an incident has one key, the ledger takes each
statement once, and a cycle that was judged is not judged again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import Max

from gpufleet.availability.ledger import GpuTold, NodeTold, record
from gpufleet.availability.models import LedgerHead
from gpufleet.core.times import from_unix
from gpufleet.detect.engine import evaluate
from gpufleet.detect.findings import Finding
from gpufleet.detect.rules import load_rules
from gpufleet.detect.windows import Windows
from gpufleet.detect.xid_events import xid_events
from gpufleet.fleet.models import Cluster
from gpufleet.fleet.queries import active_targets, shard_count
from gpufleet.incidents.intake import Change, take_in
from gpufleet.incidents.models import Incident
from gpufleet.incidents.queries import open_keys
from gpufleet.pipeline.detecting_events import record_xids
from gpufleet.pipeline.detecting_states import NodeSaid, Said, Standing, states
from gpufleet.pipeline.live import publish_cycle, publish_incident
from gpufleet.pipeline.windows import CycleRow, ShardWindows, rolled
from gpufleet.pipeline.windows_subjects import Subjects
from gpufleet.scrape.models import Cycle

log = structlog.get_logger(__name__)

_caches: dict[tuple[int, int], ShardWindows] = {}


@dataclass(frozen=True, slots=True)
class Detected:
    """What judging a cycle brought. `judged`: cycles judged, more than one after a pause of the worker."""

    cycle: int
    judged: int
    findings: list[Finding]
    changes: list[Change]


@dataclass(frozen=True, slots=True)
class Shard:
    """A shard of a cluster's targets, and how long its cycles are (seconds)."""

    cluster: Cluster
    target_ids: list[int]
    interval: float


def run_detect(cluster_id: int, cycle: int, shard: int, now: datetime) -> Detected | None:
    """Judges a cycle whose frames are in the store, after those before it that nobody judged.

    None when it was judged already, is older than one that was, or brought nothing.
    """
    return detect(shard_of(cluster_id, cycle, shard), shard, cycle, now)


def detect(place: Shard, shard: int, cycle: int, now: datetime) -> Detected | None:
    """As `run_detect`, for a shard that is at hand. `shard` is its number, which finds its cache again."""
    key = (place.cluster.id, shard)
    # A failure below must not leave a half-rolled cache behind: it is put back only when all went well.
    cached = _caches.pop(key, None)
    if cached is not None and cycle <= cached.newest:
        _caches[key] = cached
        return None
    held = cached.newest if cached else None
    rolling = rolled(cached, place.target_ids, cycle, place.interval)
    if rolling is None:
        return None
    done = judge(place, rolling, held, now)
    _caches[key] = rolling
    return done


def forget_windows() -> None:
    """Drops the caches of this process: nothing is lost but time."""
    _caches.clear()


def judge(place: Shard, rolling: ShardWindows, held: int | None, now: datetime) -> Detected | None:
    """Judges the rows of `rolling` newer than cycle `held` (None: newer than what the ledger was told)."""
    started = time.perf_counter()
    judged_until = _judged_until(rolling.subjects) if held is None else None
    whole = rolling.windows(place.interval, {})
    found: list[Finding] = []
    changes: list[Change] = []
    rows = [row for row, one in enumerate(rolling.cycles) if _is_new(one, held, judged_until, place.interval)]
    for row in rows:
        at = now if row == len(rolling.cycles) - 1 else from_unix(float(whole.times[row]))
        windows = whole.until(row + 1)
        windows.tell_from = min(whole.tell_from, row)
        found, new = _judge_row(place, rolling.subjects, windows, at)
        changes += new
    if not rows:
        return None
    for change in changes:
        publish_incident(change, place.cluster.name)
    if not place.cluster.is_replay:
        publish_cycle(place.cluster, rolling.newest, now)
    took = round((time.perf_counter() - started) * 1000, 1)
    log.debug("judged", cluster=place.cluster.name, cycle=rolling.newest, cycles=len(rows), milliseconds=took)
    return Detected(rolling.newest, len(rows), found, changes)


def _judge_row(place: Shard, subjects: Subjects, windows: Windows, at: datetime) -> tuple[list[Finding], list[Change]]:
    """Judges the newest row of `windows`. Happenings and incidents are written together or not at all."""
    with transaction.atomic():
        windows.open = open_keys(place.cluster)
        new = record_xids(place.cluster.id, subjects, xid_events(windows))
        found = evaluate(windows, load_rules(), at.timestamp())
        found = [finding for finding in found if not finding.occurrence or finding.occurrence in new]
        changes = take_in(place.cluster, found, at)
        said = states(windows, found, standing(place.cluster))
        record(place.cluster, [_told(place, subjects, one) for one in said], at)
    return found, changes


def _told(place: Shard, subjects: Subjects, one: NodeSaid) -> NodeTold:
    """As the ledger takes it: a scrape speaks until the next one is due."""
    return NodeTold(
        node_id=int(subjects.node_ids[one.node]),
        told_at=from_unix(one.at),
        valid_until=from_unix(one.at + place.interval),
        state=one.said.state,
        reasons=one.said.reasons,
        incident_id=one.said.incident_id,
        since=_since(one.said),
        gpus={
            int(subjects.gpu_ids[gpu]): GpuTold(said.state, said.reasons, said.incident_id, _since(said))
            for gpu, said in one.gpus.items()
        },
    )


def _since(said: Said) -> datetime | None:
    return None if said.since is None else from_unix(said.since)


def _is_new(one: CycleRow, held: int | None, judged_until: float | None, interval: float) -> bool:
    if held is not None:
        return one.number > held
    return judged_until is None or one.row.at > judged_until - interval / 2


def _judged_until(subjects: Subjects) -> float | None:
    """Up to when (Unix seconds) the ledger of the shard has been told: the end of the last judged cycle."""
    heads = LedgerHead.objects.filter(node_id__in=subjects.node_ids.tolist())
    newest = heads.aggregate(newest=Max("told_until"))["newest"]
    return newest.timestamp() if newest else None


def shard_of(cluster_id: int, cycle: int, shard: int) -> Shard:
    """The shard as its cycle was cut; a cycle without a record is cut as the settings say."""
    cluster = Cluster.objects.get(id=cluster_id)
    record = (
        Cycle.objects.filter(cluster_id=cluster_id, number=cycle)
        .order_by("-started_at")
        .values_list("shards", "interval_seconds")
        .first()
    )
    shards, interval = record or (0, int(settings.ENV["GPUFLEET_INTERVAL_SECONDS"]))
    shards = shards or shard_count(cluster_id, int(settings.ENV["GPUFLEET_SHARD_TARGETS"])) or 1
    targets = active_targets(cluster_id, shard, shards)
    return Shard(cluster, [target.id for target in targets], float(interval))


def standing(cluster: Cluster) -> list[Standing]:
    """The unresolved incidents that have not recovered. One query."""
    rows = Incident.objects.filter(cluster=cluster, resolved_at=None, recovered_at=None)
    return [Standing(*row) for row in rows.values_list("id", "kind", "subject", "severity")]
