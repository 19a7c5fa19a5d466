"""The part of a process that scrapes: one client and one memory for as long as it lives."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from threading import Lock

from django.conf import settings

from gpufleet.fleet.models import Cluster
from gpufleet.fleet.queries import ActiveTarget
from gpufleet.scrape import failures
from gpufleet.scrape.access import Access
from gpufleet.scrape.addresses import networks
from gpufleet.scrape.cycle import CycleResult, Reader
from gpufleet.scrape.fetch import Fetched, Fetcher, not_asked
from gpufleet.scrape.patience import Patience
from gpufleet.scrape.source_file import AccessFile

LONGEST_SECONDS = 10.0


def timeout_of(interval_seconds: float) -> float:
    """Seconds that a whole scrape may take."""
    return min(LONGEST_SECONDS, interval_seconds * 2 / 3)


class Collector:
    """Scrapes targets of one interval. Safe to call from several threads; they take turns."""

    def __init__(
        self,
        *,
        interval_seconds: float,
        max_bytes: int,
        max_samples: int,
        scrape_allow: Sequence[str] = (),
        accesses: Callable[[], Mapping[str, Access]] = dict,
    ) -> None:
        self._accesses = accesses
        self._interval = interval_seconds
        self._max_bytes = max_bytes
        self._inside = networks(scrape_allow)
        self._max_samples = max_samples
        self._fetcher: Fetcher | None = None
        self._readers: dict[int, Reader] = {}
        self._patience = Patience(interval_seconds)
        self._lock = Lock()

    def scrape(self, cluster: Cluster, targets: Sequence[ActiveTarget], cycle: int, now: datetime) -> CycleResult:
        """One cycle, now. Every target has its frame, good or not; a sick one may be left in peace."""
        with self._lock:
            resting = {target.id: why for target in targets if (why := self._patience.resting(target.id, cycle))}
            asked = [target for target in targets if target.id not in resting]
            answers = {one.target_id: one for one in self._fetch(asked, timeout_of_target=self._patience.seconds)}
            for one in answers.values():
                self._patience.note(one.target_id, one.reason, one.duration_seconds, cycle)
            for target_id, reason in resting.items():
                answers[target_id] = not_asked(target_id, now.timestamp(), reason)
            return self._take(cluster, targets, [answers[target.id] for target in targets], cycle, now)

    def scrape_at(self, cluster: Cluster, targets: Sequence[ActiveTarget], cycle: int, now: datetime) -> CycleResult:
        """One cycle in virtual time: each target is asked with `?t=<now>` and its answer counts as of `now`."""
        with self._lock:
            return self._take(cluster, targets, self.fetch_at(targets, now), cycle, now)

    def fetch_at(self, targets: Sequence[ActiveTarget], now: datetime) -> list[Fetched]:
        """The answers as of `now`, for `take`. Only one thread at a time may fetch; another one may take meanwhile."""
        at = now.timestamp()
        query = f"t={at:.3f}".rstrip("0").rstrip(".")
        return [_virtual(one, at, timeout_of(self._interval)) for one in self._fetch(targets, query)]

    def take(
        self, cluster: Cluster, targets: Sequence[ActiveTarget], fetched: Sequence[Fetched], cycle: int, now: datetime
    ) -> CycleResult:
        """Frames and statuses of answers that were fetched already."""
        with self._lock:
            return self._take(cluster, targets, fetched, cycle, now)

    def forget(self) -> None:
        """Drops what is remembered of targets; open connections stay."""
        with self._lock:
            self._readers.clear()

    def close(self) -> None:
        with self._lock:
            if self._fetcher is not None:
                self._fetcher.close()
                self._fetcher = None

    def _take(
        self, cluster: Cluster, targets: Sequence[ActiveTarget], fetched: Sequence[Fetched], cycle: int, now: datetime
    ) -> CycleResult:
        reader = self._readers.get(cluster.id)
        if reader is None:
            reader = Reader(max_samples=self._max_samples, interval_seconds=self._interval)
            self._readers[cluster.id] = reader
        try:
            return reader.take(cluster, targets, fetched, cycle, now)
        except Exception:
            # What was half done is found again from the database.
            reader.forget()
            raise

    def _fetch(
        self,
        targets: Sequence[ActiveTarget],
        query: str = "",
        timeout_of_target: Callable[[int, float], float] = lambda _, timeout: timeout,
    ) -> list[Fetched]:
        if self._fetcher is None:
            self._fetcher = Fetcher(max_bytes=self._max_bytes, inside=self._inside, accesses=self._accesses)
        return self._fetcher.fetch(targets, timeout_of(self._interval), query, timeout_of_target)


def _virtual(fetched: Fetched, at: float, timeout: float) -> Fetched:
    """The answer as of `at`. `X-Virtual-Delay` is how long it took; from the deadline on it is a time-out."""
    try:
        delay = float(fetched.headers.get("x-virtual-delay", "0"))
    except ValueError:
        delay = 0.0
    delay = delay if 0 <= delay < 86_400 else 0.0
    if delay >= timeout:
        return replace(
            fetched, started_at=at, duration_seconds=timeout, body=None, reason=failures.TIMEOUT, detail="virtual"
        )
    return replace(fetched, started_at=at, duration_seconds=delay)


_collectors: dict[int, Collector] = {}


def process_collector(interval_seconds: int) -> Collector:
    """The collector of this process for an interval, with the limits of the settings; made when first asked for."""
    if interval_seconds not in _collectors:
        if not _collectors:
            atexit.register(close_collectors)
        _collectors[interval_seconds] = Collector(
            interval_seconds=interval_seconds,
            max_bytes=settings.ENV["GPUFLEET_SCRAPE_MAX_BYTES"],
            max_samples=settings.ENV["GPUFLEET_SCRAPE_MAX_SAMPLES"],
            scrape_allow=settings.ENV["GPUFLEET_SCRAPE_ALLOW"],
            accesses=AccessFile(settings.ENV["GPUFLEET_SOURCES"]),
        )
    return _collectors[interval_seconds]


def close_collectors() -> None:
    """Closes the connections of this process."""
    while _collectors:
        _collectors.popitem()[1].close()
