"""The simulated fleet's made-up past: written as the file that a site would have, imported by the product's command."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from gpufleet.core.times import rfc3339, utc_now
from gpufleet.stack.options import ROOT
from gpufleet.stack.problems import StackError

FILE = "history.csv"


def take_in(data: Path, days: int, nodes: int) -> None:
    """Once in the life of a data folder; the file stays, and says that it was done. Raises StackError."""
    path = data / FILE
    if path.exists():
        return
    from django.core.management import CommandError, call_command

    until = utc_now().replace(microsecond=0)
    draft = path.with_suffix(".draft.csv")
    _make(draft, days, nodes, rfc3339(until))
    try:
        call_command(
            "import_outages", str(draft), "--from", rfc3339(until - timedelta(days=days)), "--until", rfc3339(until)
        )
        draft.replace(path)
    except (CommandError, OSError) as error:
        raise StackError(f"The made-up past could not be taken in: {error}") from error


def _make(path: Path, days: int, nodes: int, until: str) -> None:
    asked = ["--days", str(days), "--nodes", str(nodes), "--until", until, "--out", str(path)]
    made = subprocess.run(
        [sys.executable, "-m", "gpufleet.simulator.past", *asked], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if made.returncode != 0:
        raise StackError(f"The made-up past could not be written: {made.stderr.strip()}")
