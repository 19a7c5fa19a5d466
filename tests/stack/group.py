"""Runs units from a JSON list on standard input under the supervisor, as bin/demo does; for the tests beside it."""

from __future__ import annotations

import json
import sys

from gpufleet.stack.console import Console
from gpufleet.stack.supervisor import Supervisor, UnitFailed
from gpufleet.stack.units import Unit


def main() -> int:
    units = [
        Unit(**{**one, "command": tuple(one["command"]), "stdin": one.get("stdin", "").encode()})
        for one in json.load(sys.stdin)
    ]
    try:
        return Supervisor(units, Console.standard()).run()
    except UnitFailed as failure:
        sys.stdout.write(f"failed: {failure}\n")
        return 1


sys.exit(main())
