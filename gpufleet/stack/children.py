"""Starts child processes that cannot outlive the supervisor."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from tempfile import TemporaryFile

from gpufleet.stack.units import Unit

PR_SET_PDEATHSIG = 1


def start(unit: Unit) -> subprocess.Popen[bytes]:
    """The unit's process. Its output is one non-blocking pipe, unless it is attached to our own terminal.

    Each child leads a session of its own, so that Ctrl-C reaches the supervisor alone and the whole group can be
    signalled. Raises OSError when the command cannot be run.
    """
    account = unit.account
    with TemporaryFile() as typed:
        typed.write(unit.stdin)
        typed.seek(0)
        process = subprocess.Popen(
            unit.command,
            env={**os.environ, **unit.environment},
            cwd=unit.working_folder,
            stdin=None if unit.attached else typed,
            stdout=None if unit.attached else subprocess.PIPE,
            stderr=None if unit.attached else subprocess.STDOUT,
            start_new_session=not unit.attached,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
            preexec_fn=_tie_to_parent(unit.death_signal),
        )
    if process.stdout is not None:
        os.set_blocking(process.stdout.fileno(), False)
    return process


def _tie_to_parent(death_signal: int) -> Callable[[], None] | None:
    """Runs in the child after the change of user, which would clear the wish. The supervisor has one thread only."""
    if not sys.platform.startswith("linux"):
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)

    return tie


def send(process: subprocess.Popen[bytes], number: int, *, whole_group: bool) -> None:
    """Signals a child, or all processes of its session's group; one that has ended is no error."""
    try:
        if whole_group:
            os.killpg(process.pid, number)
        else:
            os.kill(process.pid, number)
    except ProcessLookupError:
        pass
