"""One target scraped at once, beside the cycle: what came back is told, and nothing of it is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpufleet.catalogue.values import count_missing
from gpufleet.fleet.models import Target
from gpufleet.fleet.queries import ActiveTarget
from gpufleet.scrape import failures
from gpufleet.scrape.access import Access
from gpufleet.scrape.addresses import networks
from gpufleet.scrape.exposition import ExpositionError, read
from gpufleet.scrape.fetch import Fetched, Fetcher
from gpufleet.scrape.memory import Draft, TargetMemory
from gpufleet.scrape.plans import bounds_of
from gpufleet.scrape.series_cache import SeriesCache


@dataclass(frozen=True, slots=True)
class Limits:
    """What a scrape may cost; `inside`: networks (CIDR) in which a target that is not trusted may be."""

    timeout_seconds: float
    max_bytes: int
    max_samples: int
    inside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Probed:
    """The outcome, with the words of `scrape.failures`; `reason` is empty for a good scrape. `at`: Unix seconds."""

    at: float
    reason: str
    detail: str
    duration_seconds: float
    bytes: int
    accepted: int = 0
    rejected: int = 0
    missing: int = 0
    gpus: int = 0


def probe(target: ActiveTarget, limits: Limits, accesses: Callable[[], Mapping[str, Access]] = dict) -> Probed:
    """Asks the target once over a connection of its own. Touches neither the database nor what the cycle remembers.

    `accesses`: how to ask, by the name that the target gives.
    """
    fetcher = Fetcher(max_bytes=limits.max_bytes, inside=networks(limits.inside), accesses=accesses)
    try:
        (fetched,) = fetcher.fetch([target], limits.timeout_seconds)
    finally:
        fetcher.close()
    if fetched.body is None:
        return _failed(fetched, fetched.reason, fetched.detail)
    cache = SeriesCache(limit=max(20_000, 2 * limits.max_samples))
    try:
        parsed = read(
            fetched.body,
            cache,
            scraped_at=fetched.started_at,
            max_samples=limits.max_samples,
            content_type=fetched.content_type,
        )
    except ExpositionError as error:
        return _failed(fetched, error.reason, error.detail)
    draft = TargetMemory(target.id, cache).recall(parsed)
    if target.kind == Target.Kind.GPU and not draft.boards:
        return _failed(fetched, failures.NO_GPU_SAMPLES, "the exporter answers, but lists no GPU")
    if not parsed.accepted or not isinstance(draft, Draft):
        return _failed(fetched, failures.NO_SAMPLES, "the exporter answers, but with no sample that can be read")
    bounds = bounds_of(draft.lines)
    missing, _ = count_missing(parsed.values, bounds.low, bounds.high, bounds.codes)
    return Probed(
        at=fetched.started_at,
        reason="",
        detail="",
        duration_seconds=fetched.duration_seconds,
        bytes=fetched.size,
        accepted=parsed.accepted,
        rejected=parsed.rejected,
        missing=missing,
        gpus=len(draft.boards),
    )


def _failed(fetched: Fetched, reason: str, detail: str) -> Probed:
    return Probed(fetched.started_at, reason, detail[:255], fetched.duration_seconds, fetched.size)
