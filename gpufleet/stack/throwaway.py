"""PostgreSQL and Valkey for one command: on free ports, in a temporary folder, gone when the command ends."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from gpufleet.stack import postgres, valkey
from gpufleet.stack.account import STATE_FOLDER
from gpufleet.stack.console import Console
from gpufleet.stack.folder import new_password
from gpufleet.stack.ports import free_port
from gpufleet.stack.supervisor import Supervisor
from gpufleet.stack.units import Unit

NAME = "gpufleet"


def run(command: Sequence[str], console: Console) -> int:
    """Runs `command` with DATABASE_URL and BROKER_URL of fresh servers; returns its exit code.

    The servers keep nothing (no fsync): a crash of theirs is the end of the run, never of data that matters.
    """
    folder = Path(tempfile.mkdtemp(prefix="gpufleet-"))
    folder.chmod(0o711)
    mark = folder.name
    try:
        return _run(command, console, folder, mark)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(STATE_FOLDER / mark, ignore_errors=True)


def _run(command: Sequence[str], console: Console, folder: Path, mark: str) -> int:
    password, port, broker_port = new_password(), free_port(), free_port()
    cluster = postgres.cluster_for(folder, mark)
    postgres.create(cluster, password)
    environment = {
        "DATABASE_URL": postgres.address(postgres.SUPERUSER, password, port, "postgres"),
        "BROKER_URL": valkey.address(password, broker_port),
    }
    units = (
        postgres.server(cluster, port, throw_away=True),
        valkey.server(broker_port, password),
        Unit(
            name="command",
            command=tuple(command),
            environment={**environment, "GPUFLEET_SECRET_KEY": os.environ.get("GPUFLEET_SECRET_KEY") or new_password()},
            after=("postgres", "valkey"),
            attached=True,
            quiet=True,
        ),
    )
    return Supervisor(units, console).run()
