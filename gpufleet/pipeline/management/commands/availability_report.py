"""python manage.py availability_report --month YYYY-MM: the month for other programs, spreadsheets and paper."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.template.loader import render_to_string

from gpufleet.availability.month import Month, MonthError, parse_month
from gpufleet.availability.queries import SCOPES, read_spans, rows_of
from gpufleet.availability.tables import write_csv
from gpufleet.core.times import utc_now
from gpufleet.fleet.models import LIVE, Cluster

FORMATS = ("json", "csv", "html", "pdf")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PRINT_SECONDS = 60


class Command(BaseCommand):
    help = "Writes a month's availability of fleet, racks, nodes and GPUs, under the names of the API."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--month", required=True, help="YYYY-MM")
        parser.add_argument("--tz", default="UTC", help="time zone of the month (%(default)s)")
        parser.add_argument("--cluster", default=LIVE, help="cluster (%(default)s)")
        parser.add_argument("--format", choices=FORMATS, default="json", help="(%(default)s)")
        parser.add_argument("--output", type=Path, help="file; without it, standard output")

    def handle(self, *args: Any, **options: Any) -> None:
        now = utc_now()
        try:
            month = parse_month(options["month"], options["tz"])
        except MonthError as error:
            raise CommandError(f"{error}.") from error
        cluster = Cluster.objects.filter(name=options["cluster"]).first()
        if cluster is None:
            raise CommandError(f"There is no cluster {options['cluster']}.")
        written = _written(options["format"], month, scopes(cluster, month, now), now)
        if options["output"] is None:
            sys.stdout.buffer.write(written) if options["format"] == "pdf" else self.stdout.write(
                written.decode(), ending=""
            )
            return
        try:
            options["output"].write_bytes(written)
        except OSError as error:
            raise CommandError(f"{options['output']}: {error.strerror}") from error


def scopes(cluster: Cluster, month: Month, now: datetime) -> dict[str, list[dict[str, Any]]]:
    """The rows of every scope, as the API gives them, out of one reading of the ledger."""
    end = min(month.end, now)
    spans = read_spans(cluster, month.start, end)
    return {scope: rows_of(cluster, spans, month.start, end, scope) for scope in SCOPES}


def _written(form: str, month: Month, found: dict[str, list[dict[str, Any]]], now: datetime) -> bytes:
    if form == "json":
        reports = [{"scope": scope, "rows": rows} for scope, rows in found.items()]
        made = {"month": month.text, "tz": month.zone.key, "reports": reports}
        return orjson.dumps(made, option=orjson.OPT_INDENT_2) + b"\n"
    if form == "csv":
        return scopes_csv(found).encode()
    html = render_to_string(
        "availability_report.html",
        {"month": month, "scopes": found, "moment": now, "objective": settings.ENV["GPUFLEET_SLO_PERCENT"]},
    )
    return html.encode() if form == "html" else _printed(html)


def scopes_csv(found: dict[str, list[dict[str, Any]]]) -> str:
    """One table of all scopes; the column `scope` comes first."""
    names = next((list(rows[0]) for rows in found.values() if rows), ["subject"])
    return write_csv(
        ["scope", *names], [[scope, *(row[name] for name in names)] for scope, rows in found.items() for row in rows]
    )


def _printed(html: str) -> bytes:
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if browser is None:
        raise CommandError("A PDF is printed by Chromium, and none is installed. --format html can be printed by hand.")
    with tempfile.TemporaryDirectory() as folder:
        page, target = Path(folder) / "report.html", Path(folder) / "report.pdf"
        page.write_text(html, encoding="utf-8")
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer", "--disable-quic",
            "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
            f"--user-data-dir={folder}/profile", f"--print-to-pdf={target}", page.as_uri(),
        ]  # fmt: skip
        try:
            subprocess.run(command, capture_output=True, timeout=PRINT_SECONDS, check=True)
            return target.read_bytes()
        except (subprocess.SubprocessError, OSError) as error:
            raise CommandError(f"Chromium did not print the report: {error}") from error
