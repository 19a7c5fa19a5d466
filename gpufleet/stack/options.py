"""The command line of `bin/demo`, and of `python -m gpufleet.stack`."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MAX_NODES = 10_000


@dataclass(frozen=True, slots=True)
class Options:
    """What `bin/demo` was asked for. `targets` is None for the simulated fleet."""

    port: int
    host: str
    data: Path
    targets: Path | None
    interval_seconds: int
    simulator: bool
    nodes: int
    history_days: int


def read(arguments: list[str]) -> Options:
    """Raises SystemExit, as argparse does, for --help and for what cannot be."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if given.targets is not None and not given.targets.is_file():
        parser.error(f"--targets: there is no file {given.targets}")
    return Options(
        port=given.port,
        host=given.host,
        data=given.data.absolute(),
        targets=given.targets.absolute() if given.targets else None,
        interval_seconds=given.interval,
        simulator=not given.no_sim,
        nodes=given.nodes,
        history_days=given.history,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bin/demo",
        description="Installs and starts all of gpufleet on this machine. Ctrl-C or TERM stops all of it.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--port", type=_whole(1, 65535), default=8000, metavar="PORT", help="port of the pages")
    parser.add_argument("--host", default="127.0.0.1", help="address on which pages and event stream listen")
    parser.add_argument("--data", type=Path, default=ROOT / "data", metavar="DIR", help="folder for everything kept")
    parser.add_argument(
        "--targets", type=Path, metavar="FILE", help="watch these targets (file_sd, JSON or YAML) besides the simulator"
    )
    parser.add_argument(
        "--interval", type=_whole(1, 300), default=15, metavar="SECONDS", help="time between two scrapes of a target"
    )
    parser.add_argument("--no-sim", action="store_true", help="start no simulated fleet")
    parser.add_argument(
        "--nodes", type=_whole(1, MAX_NODES), default=63, metavar="N", help="size of the simulated fleet"
    )
    parser.add_argument(
        "--history",
        type=_whole(0, 400),
        default=55,
        metavar="DAYS",
        help="days of made-up outages of the simulated fleet, taken in at the first start; 0: none",
    )
    return parser


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not text.isascii() or not text.isdigit() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {low} to {high}")
        return int(text)

    return parse
