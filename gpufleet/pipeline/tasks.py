"""The Celery tasks of the product: thin, each may run twice or beside itself. What they do lives in the modules named.

A task that cannot reach PostgreSQL or Valkey says so in one line and ends; the next cycle goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

import structlog
from celery import shared_task
from django.conf import settings
from django.db import Error as DatabaseError
from django.db import close_old_connections, connections
from kombu.exceptions import OperationalError as BrokerError

from gpufleet.core.bus import BROKER_ERRORS
from gpufleet.core.times import utc_now
from gpufleet.incidents import intake
from gpufleet.pipeline import detecting, retrying, scraping, sources
from gpufleet.scrape.actions import mark_detected
from gpufleet.scrape.models import Cycle
from gpufleet.store import partitions
from gpufleet.store.seal import seal as seal_spans

log = structlog.get_logger(__name__)

P = ParamSpec("P")


def one_line(task: Callable[P, None]) -> Callable[P, None]:
    """A lost database or broker is one line in the log, not a traceback a cycle; broken connections are let go."""

    @wraps(task)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            close_old_connections()
            task(*args, **kwargs)
        except DatabaseError as error:
            connections.close_all()
            log.error("task failed", task=task.__name__, part="database", reason=_first_line(error))
        except (*BROKER_ERRORS, BrokerError) as error:
            log.error("task failed", task=task.__name__, part="broker", reason=_first_line(error))

    return run


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:200] or type(error).__name__


@shared_task(name="pipeline.tick")
@one_line
def tick() -> None:
    """Begins the cycle of this moment and hands out its shards."""
    for work in scraping.begin(utc_now()):
        scrape_shard.apply_async(
            (work.cluster_id, work.cycle, work.shard),
            queue=work.queue,
            countdown=work.delay_seconds,
            expires=work.delay_seconds + scraping.interval_seconds(),
            retry=False,
        )


@shared_task(name="pipeline.scrape_shard")
@one_line
def scrape_shard(cluster_id: int, cycle: int, shard: int) -> None:
    """Scrapes a shard; once its frames are committed, detection is asked for."""
    if scraping.run_shard(cluster_id, cycle, shard, utc_now()):
        detect_shard.apply_async(
            (cluster_id, cycle, shard),
            queue=scraping.queue_of("detect", shard),
            expires=scraping.interval_seconds(),
            retry=False,
        )


@shared_task(name="pipeline.detect_shard")
@one_line
def detect_shard(cluster_id: int, cycle: int, shard: int) -> None:
    """Judges a shard's cycle."""
    if detecting.run_detect(cluster_id, cycle, shard, utc_now()) is None:
        return
    record = Cycle.objects.filter(cluster_id=cluster_id, number=cycle, interval_seconds=scraping.interval_seconds())
    row_id = record.values_list("id", flat=True).first()
    if row_id is not None:
        mark_detected(row_id, utc_now())


@shared_task(name=retrying.TASK)
@one_line
def retry_target(target_id: int, asked_at: float, actor: str) -> None:
    """Scrapes one target at once, since a person asked for it."""
    retrying.run(target_id, asked_at, actor)


@shared_task(name="pipeline.sweep")
@one_line
def sweep() -> None:
    """Resolves incidents that stayed quiet, and lets acknowledgements run out."""
    intake.sweep(utc_now())


@shared_task(name="pipeline.sync_sources")
@one_line
def sync_sources() -> None:
    """Takes in what the sources of targets list now."""
    sources.sync(settings.ENV["GPUFLEET_SOURCES"], utc_now())


@shared_task(name="pipeline.keep_partitions")
@one_line
def keep_partitions() -> None:
    """Makes partitions ahead and drops those past the retention."""
    made, dropped = partitions.keep_partitions(utc_now())
    if made or dropped:
        log.info("partitions kept", made=made, dropped=dropped)


SEAL_SECONDS = 2.0  # a run holds up what else its worker does for no longer


@shared_task(name="pipeline.seal")
@one_line
def seal() -> None:
    """Seals spans that are over, for a moment; the next run goes on."""
    done = seal_spans(utc_now(), SEAL_SECONDS)
    if done.dropped:
        log.info("frames sealed", partitions=done.dropped)
