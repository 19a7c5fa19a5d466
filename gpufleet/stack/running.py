"""One unit while it runs: its process, its output, whether it is ready, and when it may start again."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque

from gpufleet.stack import children
from gpufleet.stack.console import Console
from gpufleet.stack.problems import speaks_of_full_disk
from gpufleet.stack.units import Unit

FIRST_DELAY_SECONDS = 0.5
MAX_DELAY_SECONDS = 30.0
CALM_SECONDS = 60.0  # a child that lived this long starts its back-off anew
TAIL_LINES = 40
PROBE_SECONDS = 0.25
FULL_DISK_SECONDS = 60.0  # between two complaints


class Running:
    """State of one unit. `ready` is about its present process, `ever_ready` about its whole life."""

    def __init__(self, unit: Unit, console: Console, selector: selectors.BaseSelector) -> None:
        self.unit = unit
        self.process: subprocess.Popen[bytes] | None = None
        self.ready = False
        self.ever_ready = False
        self.exit_code: int | None = None
        self.failed_for_good = False
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._console = console
        self._selector = selector
        self._started_at = 0.0
        self._due_at = 0.0
        self._probe_at = 0.0
        self._full_told_at = -FULL_DISK_SECONDS
        self._delay = FIRST_DELAY_SECONDS
        self._rest = b""

    def due(self, now: float) -> bool:
        done = self.unit.once and self.exit_code == 0
        return self.process is None and not done and not self.failed_for_good and now >= self._due_at

    def start(self, now: float) -> None:
        self._started_at = now
        self.exit_code = None
        try:
            self.process = children.start(self.unit)
        except OSError as error:
            self.tail.append(f"{self.unit.command[0]}: {error.strerror or error}")
            self._console.line(self.unit.name, f"cannot be started: {error}")
            self._ended(127, now)
            return
        if self.process.stdout is not None:
            self._selector.register(self.process.stdout, selectors.EVENT_READ, self)
        if not self.unit.once and not self.unit.ready_line and self.unit.probe is None:
            self._become_ready()

    def read(self) -> None:
        """Forwards what the child has written; a line is cut at 16 KiB."""
        process = self.process
        if process is None or process.stdout is None or process.stdout.closed:
            return
        try:
            data = os.read(process.stdout.fileno(), 65536)
        except BlockingIOError:
            return
        if not data:
            self._forget_output()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > 16384:
            lines.append(self._rest)
            self._rest = b""
        for line in lines:
            self._take(line.decode("utf-8", "replace").rstrip())

    def look(self, now: float) -> None:
        """Notices readiness and the end of the process."""
        if self.process is None:
            return
        code = self.process.poll()
        if code is None:
            if not self.ready and self.unit.probe is not None and now >= self._probe_at:
                self._probe_at = now + PROBE_SECONDS
                if self.unit.probe():
                    self._become_ready()
            return
        if not self.unit.attached:
            children.send(self.process, signal.SIGKILL, whole_group=True)  # what it may have left behind
        self.read()
        self._forget_output()
        self.process = None
        self._ended(code, now)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def signal(self, number: int) -> None:
        """Asks the unit's own process; what it has started is its own affair until `finish`."""
        if self.alive() and self.process is not None:
            children.send(self.process, number, whole_group=False)

    def finish(self) -> None:
        """Kills what is left of the child and of everything in its group, and reaps it.

        A database gets SIGQUIT first: its children have sessions of their own, out of reach of the group's signal.
        """
        process = self.process
        if process is None:
            return
        if self.unit.last and self.alive():
            self.signal(signal.SIGQUIT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(1.5)
        if self.unit.attached:
            if self.alive():
                children.send(process, signal.SIGKILL, whole_group=False)
        else:
            children.send(process, signal.SIGKILL, whole_group=True)
        process.wait()
        self.read()
        self._forget_output()
        self.process = None

    def last_words(self) -> str:
        """The line that tells best why it ended: an error if there is one, else the last one."""
        lines = [line.strip() for line in self.tail if line.strip()]
        grave = [line for line in lines if speaks_of_full_disk(line) or "FATAL" in line or "PANIC" in line]
        return (grave or lines or ["it said nothing"])[-1]

    def _take(self, line: str) -> None:
        self.tail.append(line)
        if not self.unit.quiet or "FATAL" in line or "PANIC" in line:
            self._console.line(self.unit.name, line)
        if speaks_of_full_disk(line) and time.monotonic() >= self._full_told_at + FULL_DISK_SECONDS:
            self._full_told_at = time.monotonic()
            self._console.say(f"the disk is full, says {self.unit.name}: make room, it goes on by itself then")
        if self.unit.ready_line and self.unit.ready_line in line and not self.ready:
            self._become_ready()

    def _become_ready(self) -> None:
        again = self.ever_ready
        self.ready = self.ever_ready = True
        if again:
            self._console.say(f"{self.unit.name} is back")

    def _ended(self, code: int, now: float) -> None:
        self.exit_code = code
        if self.unit.attached or (self.unit.once and code == 0):
            self.ready = self.ever_ready = True
            return
        self.ready = False
        if self.unit.once or (self.unit.vital and not self.ever_ready):
            self.failed_for_good = True
            return
        if now - self._started_at >= CALM_SECONDS:
            self._delay = FIRST_DELAY_SECONDS
        self._console.say(f"{self.unit.name} died ({_how(code)}), starting it again in {self._delay:g} s")
        self._due_at = now + self._delay
        self._delay = min(self._delay * 2, MAX_DELAY_SECONDS)

    def _forget_output(self) -> None:
        process = self.process
        if process is None or process.stdout is None or process.stdout.closed:
            return
        if self._rest:
            self._take(self._rest.decode("utf-8", "replace").rstrip())
            self._rest = b""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(process.stdout)
        process.stdout.close()


def _how(code: int) -> str:
    if code >= 0:
        return f"code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
