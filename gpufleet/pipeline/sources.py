"""Keeps the inventory in step with the file of sources: static lists, files, http_sd and federated servers.

What cannot be read changes nothing: the last list goes on, and the source says what is wrong with it. Runs every few
seconds, on any worker, also twice at once; what a process has read and written before it does not write again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from glob import glob
from pathlib import Path

import structlog

from gpufleet.fleet.actions import FOLLOWED, import_targets
from gpufleet.fleet.models import Target
from gpufleet.fleet.specs import FleetError, TargetSpec
from gpufleet.scrape import federation
from gpufleet.scrape.access import PLAIN, Access
from gpufleet.scrape.discovery import MAX_FILE_BYTES, DiscoveryError, parse_file_sd, read_file_sd
from gpufleet.scrape.fetch import Fetcher
from gpufleet.scrape.models import SourceStatus
from gpufleet.scrape.source_file import Federation, HttpSource, SourceJob, access_of, read_sources

log = structlog.get_logger(__name__)

PREFIX = FOLLOWED
FROM_HTTP = "/http_sd"
LISTING_SECONDS = 10.0
WRITTEN_AGAIN = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Page:
    """A listing to fetch; the operator named it, so it may be anywhere."""

    url: str
    access: str = ""
    id: int = 0
    trusted: bool = True


@dataclass(slots=True)
class Listed:
    """What the parts of one source list. `is_whole`: no part is missing, so what is not listed is gone."""

    targets: list[TargetSpec] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    is_whole: bool = True


class Sources:
    """What a process has read so far. `lists`: the last good list of a part and when it was read."""

    def __init__(self) -> None:
        self._lists: dict[object, tuple[datetime, list[TargetSpec]]] = {}
        self._written: dict[str, tuple[datetime, list[TargetSpec]]] = {}

    def sync(self, path: str, now: datetime) -> None:
        """Reads what is due and takes it into the inventory."""
        try:
            jobs = read_sources(Path(path))
        except DiscoveryError as error:
            _tell(path, None, str(error), now)
            return
        _tell(path, 0, "", now)
        accesses = access_of(jobs)
        taken: set[tuple[str, str]] = set()
        for job in jobs:
            for name, listed in self._parts(job, accesses, now).items():
                self._write(name, listed, taken, trusted=not name.endswith(FROM_HTTP), now=now)
        self._retire({PREFIX + job.name + part for job in jobs for part in ("", FROM_HTTP)}, path, now)

    def _parts(self, job: SourceJob, accesses: Mapping[str, Access], now: datetime) -> dict[str, Listed]:
        """What the operator's own files and servers list, and what a stranger's answer does."""
        own = Listed(list(job.targets))
        for pattern in job.files:
            names = sorted(glob(pattern)) if glob_has_magic(pattern) else [pattern]
            for name in names:
                self._part(own, (job.name, name), 0.0, now, partial(read_file_sd, Path(name), job.defaults))
        for one in job.federations:
            self._part(own, (job.name, one), one.refresh_seconds, now, partial(_federated, one, job, accesses))
            # A node is listed here by what it sends. One that sends nothing any more is down, not gone.
            own.is_whole = own.is_whole and not one.node_label
        foreign = Listed()
        for page in job.http:
            self._part(foreign, (job.name, page), page.refresh_seconds, now, partial(_from_http, page, job))
        access = "" if job.access == PLAIN else job.name
        for listed in (own, foreign):
            listed.targets = [replace(spec, access=access) for spec in listed.targets]
        return {PREFIX + job.name: own, PREFIX + job.name + FROM_HTTP: foreign}

    def _part(
        self, listed: Listed, key: object, refresh: float, now: datetime, read: Callable[[], list[TargetSpec]]
    ) -> None:
        """Adds one part, read again when its time has come; the last list where that fails."""
        last = self._lists.get(key)
        if last is None or not timedelta() <= now - last[0] < timedelta(seconds=refresh):
            try:
                last = self._lists[key] = now, read()
            except DiscoveryError as error:
                listed.problems.append(str(error))
        if last is None:
            listed.is_whole = False
        else:
            listed.targets += last[1]

    def _write(self, name: str, listed: Listed, taken: set[tuple[str, str]], *, trusted: bool, now: datetime) -> None:
        specs: list[TargetSpec] = []
        for spec in listed.targets:
            key = spec.cluster, spec.url
            if key in taken:
                listed.problems.append(f"{spec.url} is listed twice; the first place counts")
            else:
                taken.add(key)
                specs.append(spec)
        written = self._written.get(name)
        is_new = written is None or written[1] != specs or now - written[0] > WRITTEN_AGAIN
        if is_new:
            try:
                done = import_targets(
                    specs, source=name, actor="sources", now=now, trusted=trusted, prune=listed.is_whole
                )
            except FleetError as error:
                listed.problems.append(str(error))
            else:
                self._written[name] = now, specs
                if done.added or done.changed or done.removed:
                    counts = {"added": done.added, "changed": done.changed, "removed": done.removed}
                    log.info("targets changed", source=name, **counts)
        if specs or listed.problems or not name.endswith(FROM_HTTP):
            _tell(name, len(specs), "; ".join(listed.problems[:10]), now)

    def _retire(self, names: Iterable[str], path: str, now: datetime) -> None:
        """Removes the targets of jobs that are no longer in the file."""
        known = set(names)
        present = Target.objects.filter(source__startswith=PREFIX, removed_at=None).values_list("source", flat=True)
        for name in sorted(set(present.distinct()) - known):
            import_targets([], source=name, actor="sources", now=now, trusted=False, prune=True)
            self._written.pop(name, None)
        SourceStatus.objects.exclude(name__in={*known, path}).delete()


def _from_http(page: HttpSource, job: SourceJob) -> list[TargetSpec]:
    text = _fetch(page.url, page.access)
    try:
        found = parse_file_sd(text.decode(), is_json=True, defaults=job.defaults)
        if job.defaults.get("__scheme__") == "https" and any(spec.url.startswith("http:") for spec in found):
            raise DiscoveryError("asks for http where the job says https; its credentials stay encrypted")
    except UnicodeDecodeError as error:
        raise DiscoveryError(f"{_shown(page.url)}: byte {error.start} is no UTF-8") from error
    except DiscoveryError as error:
        raise DiscoveryError(f"{_shown(page.url)}: {error}") from error
    return found


def _federated(one: Federation, job: SourceJob, accesses: Mapping[str, Access]) -> list[TargetSpec]:
    body = _fetch(federation.listing_url(one.url, one.match, one.series), accesses.get(job.name, PLAIN))
    try:
        return federation.targets_of(one.url, one.match, body, "", one.node_label)
    except DiscoveryError as error:
        raise DiscoveryError(f"{_shown(one.url)}: {error}") from error


def _fetch(url: str, access: Access) -> bytes:
    with closing(Fetcher(max_bytes=MAX_FILE_BYTES, inside=[], accesses=lambda: {"it": access})) as fetcher:
        (answer,) = fetcher.fetch([Page(url, "it")], LISTING_SECONDS)
    if answer.body is None:
        raise DiscoveryError(f"{_shown(url)}: {answer.reason}{f' ({answer.detail})' if answer.detail else ''}")
    return answer.body


def _shown(url: str) -> str:
    """The address for logs and pages: a query may hold a key."""
    return url.partition("?")[0]


def glob_has_magic(pattern: str) -> bool:
    return any(sign in pattern for sign in "*?[")


def _tell(name: str, targets: int | None, problem: str, now: datetime) -> None:
    facts: dict[str, object] = {"problem": problem[:1023].replace("\0", ""), "read_at": now}
    if targets is not None:
        facts["targets"] = targets
    if not problem:
        facts["good_at"] = now
    SourceStatus.objects.update_or_create(name=name[:255], defaults=facts)
    if problem:
        log.warning("source cannot be read", source=name, reason=problem)


_sources = Sources()


def sync(path: str, now: datetime) -> None:
    """Takes in what the sources of the file at `path` list; nothing without a file."""
    if path:
        _sources.sync(path, now)


def statuses() -> Sequence[SourceStatus]:
    """How each source stands, failing ones first. One query."""
    return sorted(SourceStatus.objects.all(), key=lambda one: (not one.problem, one.name))
