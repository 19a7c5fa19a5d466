"""`manage.py import_maintenance FILE [--cluster NAME]`: takes announced windows, JSON `[{node, from, to, reason}]`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gpufleet.core.times import utc_now
from gpufleet.fleet.actions import create_windows
from gpufleet.fleet.announcements import read_windows
from gpufleet.fleet.models import LIVE, Cluster
from gpufleet.fleet.specs import FleetError


class Command(BaseCommand):
    help = "Announces maintenance windows: JSON [{node, from, to, reason}]. Safe to run again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="JSON")
        parser.add_argument("--cluster", default=LIVE, help="the cluster of the nodes (%(default)s)")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            specs = read_windows(options["file"])
            cluster = Cluster.objects.filter(name=options["cluster"]).first()
            if cluster is None:
                raise FleetError(f"there is no cluster {options['cluster']}")
            new = create_windows(cluster, specs, actor="import_maintenance", source="import", now=utc_now())
        except FleetError as error:
            raise CommandError(f"Nothing was taken: {error}.") from error
        self.stdout.write(f"maintenance windows: {len(new)} added, {len(specs) - len(new)} known")
