"""python manage.py replay: runs the whole pipeline over targets in virtual time."""

from __future__ import annotations

import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
from django.core.management.base import BaseCommand, CommandError, CommandParser

from gpufleet.core.times import parse_rfc3339, rfc3339
from gpufleet.fleet.specs import FleetError, WindowSpec
from gpufleet.pipeline.replay import ReplayError, Stretch, incidents_json, replay, window_specs
from gpufleet.scrape.discovery import DiscoveryError, read_file_sd

SAY_EVERY_SECONDS = 1.0


class Command(BaseCommand):
    help = "Replays a stretch of virtual time: scrapes every target with ?t=, stores, detects and keeps the ledger."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--targets", type=Path, required=True, help="Prometheus file_sd, JSON or YAML")
        parser.add_argument("--start", required=True, help="ISO time with an offset")
        parser.add_argument("--end", required=True, help="ISO time with an offset; not itself replayed")
        parser.add_argument("--step", type=float, default=15.0, help="seconds between two scrapes (15)")
        parser.add_argument("--cluster", default="replay", help="name of the replay's own cluster (replay)")
        parser.add_argument("--json", type=Path, help="writes {incidents: [..]} to this file")
        parser.add_argument("--maintenance", type=Path, help="JSON [{node, from, to, reason}]")

    def handle(self, *args: Any, **options: Any) -> None:
        began = time.monotonic()
        try:
            stretch = Stretch(_instant(options, "start"), _instant(options, "end"), options["step"])
            specs = read_file_sd(options["targets"])
            windows = _windows(options["maintenance"])
            say = _Progress(self.stderr, began)
            done = replay(specs, stretch, cluster_name=options["cluster"], windows=windows, progress=say)
        except (ReplayError, DiscoveryError, FleetError) as error:
            raise CommandError(str(error)) from error
        say.end()
        if options["json"]:
            _write(options["json"], {"incidents": incidents_json(done.cluster)})
        seconds = time.monotonic() - began
        virtual = done.steps * stretch.step_seconds
        self.stdout.write(
            f"{done.steps} steps, {virtual:.0f} s of virtual time in {seconds:.1f} s "
            f"({virtual / max(seconds, 1e-9):.0f} times real time), {done.incidents} incidents"
        )


class _Progress:
    """One line that says how far it is; a new one each second where the output is no terminal."""

    def __init__(self, out: Any, began: float) -> None:
        self._out, self._began, self._said = out, began, 0.0
        self._is_terminal = sys.stderr.isatty()

    def __call__(self, step: int, steps: int, at: datetime) -> None:
        now = time.monotonic()
        if now - self._said < SAY_EVERY_SECONDS and step < steps:
            return
        self._said = now
        rate = step / max(now - self._began, 1e-9)
        left = (steps - step) / rate
        text = (
            f"replay {step}/{steps} ({100 * step // steps} %), at {rfc3339(at)}, {rate:.1f} steps/s, {left:.0f} s left"
        )
        self._out.write(f"\r{text}" if self._is_terminal else text, ending="" if self._is_terminal else "\n")
        self._out.flush()

    def end(self) -> None:
        if self._is_terminal:
            self._out.write("")


def _instant(options: dict[str, Any], name: str) -> datetime:
    try:
        return parse_rfc3339(options[name])
    except ValueError as error:
        raise CommandError(f"--{name}: {error}") from error


def _windows(path: Path | None) -> list[WindowSpec]:
    if path is None:
        return []
    try:
        return window_specs(orjson.loads(path.read_bytes()))
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise CommandError(f"{path}: {error}") from error


def _write(path: Path, content: dict[str, Any]) -> None:
    try:
        path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise CommandError(f"{path}: {error.strerror}") from error
