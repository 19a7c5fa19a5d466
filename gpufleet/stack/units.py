"""What the supervisor runs: a unit is one child process, or one job that ends."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from gpufleet.stack.account import Account


@dataclass(frozen=True, slots=True)
class Unit:
    """One child of the group.

    `after` names units that must be ready first. A service is ready when its output holds `ready_line`, or when `probe`
    answers true, or at once if it has neither. A job (`once`) is done when it exits with 0; with a `ready_line` its
    followers start already then. A `vital` unit that ends before its first readiness ends the whole start.
    `death_signal` reaches the child when the supervisor itself is killed; `last` units stop after all others.
    """

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    once: bool = False
    vital: bool = False
    last: bool = False
    attached: bool = False
    quiet: bool = False
    ready_line: str = ""
    probe: Callable[[], bool] | None = None
    stdin: bytes = b""
    account: Account | None = None
    working_folder: str | None = None
    stop_signal: int = signal.SIGTERM
    death_signal: int = signal.SIGKILL
