"""python manage.py import_outages FILE.csv: a site's own record of outages becomes the ledger's past."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gpufleet.availability.outage_file import OutageFileError, read_outages
from gpufleet.availability.outage_import import import_outages
from gpufleet.core.times import parse_rfc3339, utc_now
from gpufleet.fleet.models import LIVE, Cluster

SAY_EVERY_SECONDS = 1.0
MAX_CLUSTER_NAME = 63


class Command(BaseCommand):
    help = "Imports outages: columns node, gpu_uuid, starts_at, ends_at, planned, reason. Safe to run again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="CSV")
        parser.add_argument("--from", dest="start", help="ISO time with an offset: the record is complete from here")
        parser.add_argument("--until", help="ISO time with an offset: the record is complete up to here")
        parser.add_argument("--cluster", default=LIVE, help="the cluster of the nodes (%(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        now = utc_now()
        cover = _cover(options["start"], options["until"])
        try:
            rows = read_outages(options["file"], now)
        except OutageFileError as error:
            raise CommandError(f"Nothing was taken: {error}.") from error
        done = import_outages(
            _cluster(options["cluster"]), rows, cover=cover, source=str(options["file"])[:255],
            actor="import_outages", now=now, progress=_Progress(self.stderr),
        )  # fmt: skip
        self.stdout.write(
            f"{done.rows} rows: {done.subjects} nodes and GPUs with a record, {done.changed} changed, "
            f"{done.outages} unplanned outages, {done.withdrawn} withdrawn"
        )


class _Progress:
    """A line a second, so that a big file does not look like a hang."""

    def __init__(self, out: Any) -> None:
        self._out, self._said = out, time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self._said >= SAY_EVERY_SECONDS:
            self._said = time.monotonic()
            self._out.write(f"{done} of {total} written")


def _cover(start: str | None, until: str | None) -> tuple[datetime, datetime] | None:
    if start is None and until is None:
        return None
    if start is None or until is None:
        raise CommandError("--from and --until go together.")
    first, last = _instant("--from", start), _instant("--until", until)
    if first >= last:
        raise CommandError("--from must lie before --until.")
    return first, last


def _instant(name: str, text: str) -> datetime:
    try:
        return parse_rfc3339(text)
    except (ValueError, OverflowError) as error:
        raise CommandError(f"{name}: {error}") from error


def _cluster(name: str) -> Cluster:
    if not 1 <= len(name) <= MAX_CLUSTER_NAME:
        raise CommandError(f"--cluster: a name has 1 to {MAX_CLUSTER_NAME} characters.")
    cluster, _ = Cluster.objects.get_or_create(name=name)
    if cluster.is_replay:
        raise CommandError(f"--cluster: {name} is replayed; outages belong to a cluster that is scraped.")
    return cluster
