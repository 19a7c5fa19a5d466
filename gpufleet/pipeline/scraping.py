"""The live cycle's first half: a tick cuts the fleet into shards, a shard is scraped and stored."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

import orjson
import structlog
from django.conf import settings

from gpufleet.core.bus import BROKER_ERRORS, broker
from gpufleet.core.times import utc_now
from gpufleet.fleet.queries import active_targets
from gpufleet.scrape.actions import Begun, begin_cycles, store_shard
from gpufleet.scrape.collector import process_collector, timeout_of
from gpufleet.scrape.models import Cycle

log = structlog.get_logger(__name__)

LEASE_SLACK_SECONDS = 20.0
BUDGETS = "gpufleet:budget:"
BUDGET_KEPT_SECONDS = 600
_RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


@dataclass(frozen=True, slots=True)
class ShardWork:
    """A shard to scrape, `delay_seconds` from the tick on."""

    cluster_id: int
    cycle: int
    shard: int
    queue: str
    delay_seconds: float


def interval_seconds() -> int:
    return int(settings.ENV["GPUFLEET_INTERVAL_SECONDS"])


def queue_of(kind: str, shard: int) -> str:
    """Queue of a shard: `scrape` or `detect` for the first, then `scrape-1` and so on. A shard keeps its queue."""
    place = shard % int(settings.ENV[f"GPUFLEET_{kind.upper()}_QUEUES"])
    return kind if place == 0 else f"{kind}-{place}"


def begin(now: datetime) -> list[ShardWork]:
    """Begins the cycle of this wall-clock slot in every live cluster. Empty where another tick was first.

    The shards are spread over the interval: together they keep the worker evenly busy, while each one is a burst.
    """
    interval = interval_seconds()
    number = int(now.timestamp() // interval)
    work: list[ShardWork] = []
    for begun in begin_cycles(number, interval, int(settings.ENV["GPUFLEET_SHARD_TARGETS"]), now):
        if not begun.is_new:
            _note_step_back(begun, number, interval)
            continue
        if begun.missed:
            log.warning("cycles missed", cluster=begun.cluster, cycle=number, missed=begun.missed)
        work += [
            ShardWork(begun.cluster_id, number, shard, queue_of("scrape", shard), shard * interval / begun.shards)
            for shard in range(begun.shards)
        ]
    return work


def _note_step_back(begun: Begun, number: int, interval: int) -> None:
    if begun.newest is not None and begun.newest > number:
        behind = (begun.newest - number) * interval
        log.warning("clock stepped back", cluster=begun.cluster, cycle=number, seconds_behind=behind)


def run_shard(cluster_id: int, cycle: int, shard: int, now: datetime) -> bool:
    """Scrapes and stores a shard once. False when it was dropped: stored already, too late, or still running.

    A shard that comes more than an interval after its turn is never made up for: it would lie about when it was seen.
    """
    record = Cycle.objects.select_related("cluster").filter(
        cluster_id=cluster_id, number=cycle, interval_seconds=interval_seconds()
    )
    row = record.first()
    if row is None or shard >= row.shards or shard in row.scraped:
        return False
    turn = shard * row.interval_seconds / row.shards
    late = (now - row.started_at).total_seconds() - turn
    if late > row.interval_seconds:
        log.warning("shard dropped", cycle=cycle, shard=shard, reason="late", seconds_late=round(late, 1))
        return False
    lease = _Lease(f"gpufleet:shard:{cluster_id}:{shard}", timeout_of(row.interval_seconds) + LEASE_SLACK_SECONDS)
    if not lease.take(f"{cycle}:{time.monotonic_ns()}"):
        log.warning("shard dropped", cycle=cycle, shard=shard, reason="the last one still runs")
        return False
    try:
        return _scrape(row, shard, now)
    finally:
        lease.give_back()


def budgets(cluster_id: int) -> dict[tuple[int, str], float]:
    """(shard, part) to the share of its interval that the part of the shard's newest cycle took; 1.0 is all of it."""
    told = broker(settings.BROKER_URL).hgetall(f"{BUDGETS}{cluster_id}")
    return {(int(shard), part): share for shard, text in told.items() for part, share in orjson.loads(text).items()}


def _tell_budget(cycle: Cycle, shard: int, parts: dict[str, float]) -> None:
    """Kept for a while in the broker, for `/metrics`; losing it loses nothing."""
    shares = orjson.dumps({part: seconds / cycle.interval_seconds for part, seconds in parts.items()})
    name = f"{BUDGETS}{cycle.cluster_id}"
    try:
        with broker(settings.BROKER_URL).pipeline(transaction=False) as pipeline:
            pipeline.hset(name, str(shard), shares)
            pipeline.expire(name, BUDGET_KEPT_SECONDS)
            pipeline.execute()
    except BROKER_ERRORS as error:
        log.warning("budget not told", reason=str(error))


def _scrape(cycle: Cycle, shard: int, now: datetime) -> bool:
    targets = active_targets(cycle.cluster_id, shard, cycle.shards)
    collector = process_collector(cycle.interval_seconds)
    began = time.perf_counter()
    result = collector.scrape(cycle.cluster, targets, cycle.number, now)
    fetched = time.perf_counter()
    try:
        stored = store_shard(cycle.id, shard, result, utc_now())
    except Exception:
        collector.forget()
        raise
    _tell_budget(cycle, shard, {"scrape": fetched - began, "store": time.perf_counter() - fetched})
    log.info(
        "scraped",
        cluster=cycle.cluster.name,
        cycle=cycle.number,
        shard=shard,
        targets=len(targets),
        failed=sum(1 for frame in result.frames if not frame.ok),
        samples=sum(frame.accepted for frame in result.frames),
        scrape_seconds=round(fetched - began, 3),
        store_seconds=round(time.perf_counter() - fetched, 3),
    )
    return stored


class _Lease:
    """Keeps two workers from scraping a shard at once. Without Valkey the mark on the cycle still keeps one result."""

    def __init__(self, name: str, seconds: float) -> None:
        self._name = name
        self._seconds = seconds
        self._mark = ""

    def take(self, mark: str) -> bool:
        try:
            taken = broker(settings.BROKER_URL).set(self._name, mark, nx=True, px=int(self._seconds * 1000))
        except BROKER_ERRORS as error:
            log.warning("no lease", name=self._name, reason=str(error))
            return True
        self._mark = mark if taken else ""
        return bool(taken)

    def give_back(self) -> None:
        if not self._mark:
            return
        try:
            broker(settings.BROKER_URL).eval(_RELEASE, 1, self._name, self._mark)
        except BROKER_ERRORS as error:
            log.warning("lease not given back", name=self._name, reason=str(error))
