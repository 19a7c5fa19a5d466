"""A person asks for one target to be scraped at once: who may how often, who does it, and how it went.

The scrape is made by the worker that scrapes the target anyway, from where it stands in the network, but in a thread
beside the cycle, so that a target which hangs holds nobody up. Nothing is stored but the audit entry: the next cycle
tells the target's state. The outcome lies in Valkey for ten minutes and may be lost with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import cast

import orjson
import structlog
from django.conf import settings
from django.db import transaction
from kombu.exceptions import OperationalError as BrokerError

from gpufleet.accounts.audit import record
from gpufleet.celery import app
from gpufleet.core.bus import BROKER_ERRORS, broker
from gpufleet.core.times import utc_now
from gpufleet.fleet.models import Target
from gpufleet.fleet.queries import ActiveTarget, active_target, shard_count
from gpufleet.fleet.shown import shown_url
from gpufleet.pipeline.scraping import interval_seconds, queue_of
from gpufleet.scrape import failures
from gpufleet.scrape.collector import timeout_of
from gpufleet.scrape.probe import Limits, Probed, probe
from gpufleet.scrape.source_file import AccessFile

log = structlog.get_logger(__name__)

TASK = "pipeline.retry_target"
LEAST_SECONDS = 15  # between two tries of one target, longer where the interval is
MOST_A_MINUTE = 30  # tries of all people together
KEPT_SECONDS = 600
PATIENCE_SECONDS = 30  # after which nobody has taken the try up
THREADS = 4

_threads: list[ThreadPoolExecutor] = []


class RetryRefused(Exception):
    """It cannot be tried now; `seconds`: after how long it can be, None when nobody knows."""

    def __init__(self, sentence: str, seconds: int | None) -> None:
        super().__init__(sentence)
        self.seconds = seconds


@dataclass(frozen=True, slots=True)
class Try:
    """What is known of the newest try of a target. `asked_at`: Unix seconds; `probed` is None until it came back."""

    asked_at: float
    by: str
    probed: Probed | None = None

    def is_lost(self, now: datetime) -> bool:
        return self.probed is None and now.timestamp() - self.asked_at > PATIENCE_SECONDS


def ask(target: Target, *, actor: str, source: str, now: datetime) -> Try:
    """Hands the try to the scrape worker. Raises RetryRefused when it is too soon, too much, or the broker is away."""
    _count_in(target.pk, now)
    asked = Try(now.timestamp(), actor)
    queue = _queue(target)
    try:
        with transaction.atomic():
            record(at=now, actor=actor, source=source, verb="target.retry", subject=shown_url(target.url))
            _keep(target.pk, asked)
            app.send_task(TASK, (target.pk, asked.asked_at, actor), queue=queue, expires=PATIENCE_SECONDS, retry=False)
    except (*BROKER_ERRORS, BrokerError) as error:
        raise RetryRefused("The scrape worker cannot be reached now.", None) from error
    return asked


def run(target_id: int, asked_at: float, actor: str) -> Future[None] | None:
    """The worker's part: begins the try in a thread. None when the target is gone by now."""
    target = active_target(target_id)
    if target is None:
        return None
    if not _threads:
        _threads.append(ThreadPoolExecutor(THREADS, thread_name_prefix="retry"))
    return _threads[0].submit(_try, target, asked_at, actor)


def tries(target_ids: Sequence[int]) -> dict[int, Try]:
    """The newest try of each target in the last ten minutes; nothing when Valkey is away."""
    if not target_ids:
        return {}
    try:
        texts = broker(settings.BROKER_URL).mget([_outcome_key(target_id) for target_id in target_ids])
    except BROKER_ERRORS:
        return {}
    kept = zip(target_ids, cast("list[bytes | None]", texts), strict=True)
    return {target_id: _read(text) for target_id, text in kept if text is not None}


def _try(target: ActiveTarget, asked_at: float, actor: str) -> None:
    env = settings.ENV
    limits = Limits(
        timeout_seconds=timeout_of(interval_seconds()),
        max_bytes=env["GPUFLEET_SCRAPE_MAX_BYTES"],
        max_samples=env["GPUFLEET_SCRAPE_MAX_SAMPLES"],
        inside=tuple(env["GPUFLEET_SCRAPE_ALLOW"]),
    )
    try:
        found = probe(target, limits, AccessFile(env["GPUFLEET_SOURCES"]))
    except Exception as error:
        log.exception("try failed", target=target.id)
        found = Probed(utc_now().timestamp(), failures.COLLECTOR, type(error).__name__, 0.0, 0)
    log.info("tried", target=target.id, node=target.node, by=actor, reason=found.reason)
    try:
        _keep(target.id, Try(asked_at, actor, found))
    except BROKER_ERRORS as error:
        log.warning("outcome of a try is lost", target=target.id, reason=str(error))


def _count_in(target_id: int, now: datetime) -> None:
    """A sick target is asked at most once an interval beside its cycle, and all of them so many times a minute."""
    wait = max(LEAST_SECONDS, interval_seconds())
    lock, minute = f"gpufleet:retry:once:{target_id}", f"gpufleet:retry:minute:{int(now.timestamp() // 60)}"
    client = broker(settings.BROKER_URL)
    try:
        if not client.set(lock, b"1", nx=True, ex=wait):
            left = max(1, int(client.ttl(lock)))
            raise RetryRefused(f"This target was tried a moment ago; again in {left} s.", left)
        count = int(client.incr(minute))
        client.expire(minute, 120)
        if count > MOST_A_MINUTE:
            client.delete(lock)
            left = 60 - int(now.timestamp() % 60)
            raise RetryRefused(f"More than {MOST_A_MINUTE} targets were tried this minute; again in {left} s.", left)
    except BROKER_ERRORS as error:
        raise RetryRefused("The scrape worker cannot be reached now.", None) from error


def _queue(target: Target) -> str:
    shards = shard_count(target.cluster_id, int(settings.ENV["GPUFLEET_SHARD_TARGETS"])) or 1
    return queue_of("scrape", target.node_id % shards)


def _outcome_key(target_id: int) -> str:
    return f"gpufleet:retry:outcome:{target_id}"


def _keep(target_id: int, one: Try) -> None:
    broker(settings.BROKER_URL).set(_outcome_key(target_id), orjson.dumps(asdict(one)), ex=KEPT_SECONDS)


def _read(text: bytes) -> Try:
    told = orjson.loads(text)
    probed = told["probed"]
    return Try(told["asked_at"], told["by"], None if probed is None else Probed(**probed))
