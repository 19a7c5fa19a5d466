"""`manage.py import_targets FILE [--prune]`: takes the targets of a Prometheus file_sd list, JSON or YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gpufleet.core.times import utc_now
from gpufleet.fleet.actions import import_targets
from gpufleet.fleet.specs import FleetError
from gpufleet.scrape.discovery import DiscoveryError, read_file_sd


class Command(BaseCommand):
    help = (
        "Watches the targets of a Prometheus file_sd list. Labels node, rack, switch, cluster, job, "
        "__metrics_path__, __scheme__ and __param_* are understood. Safe to run again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="JSON or YAML")
        parser.add_argument("--prune", action="store_true", help="stop watching what this file no longer lists")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["file"]
        try:
            done = import_targets(
                read_file_sd(path),
                source=path.name,
                actor="import_targets",
                now=utc_now(),
                trusted=True,
                prune=options["prune"],
            )
        except (DiscoveryError, FleetError) as error:
            raise CommandError(f"Nothing was taken: {error}.") from error
        self.stdout.write(
            f"targets: {done.added} added, {done.changed} changed, {done.unchanged} unchanged, {done.removed} removed"
        )
