"""Runs units as one group: starts them in order, forwards their output, restarts what dies, ends all of it.

One thread, one loop. `now` inside is the monotonic clock: the supervisor judges nothing but its own children.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from gpufleet.stack.children import send
from gpufleet.stack.console import Console
from gpufleet.stack.problems import StackError, disk_full, speaks_of_full_disk
from gpufleet.stack.running import Running
from gpufleet.stack.units import Unit

POLL_SECONDS = 0.1
STOP_SECONDS = 5.0  # for everything but the databases
LAST_SECONDS = 3.0  # for the databases, after that
PROGRESS_SECONDS = 5.0


class Listener(Protocol):
    """Hears what happens to the group."""

    def ready(self, name: str, seconds: float) -> None:
        """A unit is ready for the first time, seconds after the start."""

    def processes_changed(self, processes: Mapping[str, int]) -> None:
        """Names and process ids of what runs now."""


class UnitFailed(Exception):
    """A unit that had to live has ended; `said` is its last words."""

    def __init__(self, name: str, code: int | None, said: str) -> None:
        super().__init__(f"{name} ended with code {code}: {said}")
        self.name = name
        self.said = said

    def explained(self, folder: Path) -> StackError:
        """The sentence for it; `folder` is where the disk may be full."""
        return disk_full(folder) if speaks_of_full_disk(self.said) else StackError(f"{self.name} failed: {self.said}")


class Supervisor:
    """The group of `units`; `listener` hears of it."""

    def __init__(self, units: Sequence[Unit], console: Console, listener: Listener | None = None) -> None:
        self._console = console
        self._listener = listener
        self._told: dict[str, int] = {}
        self._announced: set[str] = set()
        self._selector = selectors.DefaultSelector()
        self._group = {unit.name: Running(unit, console, self._selector) for unit in units}
        self._stopping = False
        self._started_at = time.monotonic()
        self._spoke_at = self._started_at

    def run(self) -> int:
        """Runs until a signal, or until an attached unit has ended. Returns the exit code (0 after a signal)."""
        with self._signals(), self._wakeup():
            try:
                code = self._loop()
            finally:
                self._stop()
        return code

    def processes(self) -> dict[str, int]:
        """Name to process id of what runs now."""
        return {name: one.process.pid for name, one in self._group.items() if one.process is not None}

    def _loop(self) -> int:
        while not self._stopping:
            self._start_due()
            self._read(POLL_SECONDS)
            for one in self._group.values():
                self._judge(one)
                if one.unit.attached and one.exit_code is not None:
                    return one.exit_code
            self._tell_processes()
            self._tell_progress()
        return 0

    def _start_due(self) -> None:
        now = time.monotonic()
        for one in self._group.values():
            if one.due(now) and all(self._group[name].ready for name in one.unit.after):
                one.start(now)

    def _read(self, timeout: float) -> None:
        for key, _events in self._selector.select(timeout):
            if isinstance(key.data, Running):
                key.data.read()
            else:
                with contextlib.suppress(BlockingIOError):
                    os.read(key.fd, 4096)
        self._console.flush()

    def _judge(self, one: Running) -> None:
        one.look(time.monotonic())
        if one.ever_ready and one.unit.name not in self._announced:
            self._announced.add(one.unit.name)
            if self._listener is not None:
                self._listener.ready(one.unit.name, time.monotonic() - self._started_at)
        if one.failed_for_good:
            raise UnitFailed(one.unit.name, one.exit_code, one.last_words())

    def _tell_processes(self) -> None:
        now = self.processes()
        if self._listener is not None and now != self._told:
            self._told = now
            self._listener.processes_changed(now)

    def _tell_progress(self) -> None:
        now = time.monotonic()
        slow = [name for name, one in self._group.items() if one.process is not None and not one.ever_ready]
        if slow and now - self._spoke_at >= PROGRESS_SECONDS:
            self._spoke_at = now
            self._console.say(f"… {now - self._started_at:.0f} s, waiting for {', '.join(slow)}")

    def _stop(self) -> None:
        """Ends all children, databases last. Whoever does not listen is killed; nothing is left behind."""
        self._stopping = True
        living = [one for one in self._group.values() if one.process is not None]
        if any(not one.unit.quiet for one in living):
            self._console.say(f"stopping {len(living)} processes")
        began = time.monotonic()
        self._end([one for one in living if not one.unit.last], began + STOP_SECONDS)
        self._end([one for one in living if one.unit.last], time.monotonic() + LAST_SECONDS)
        if any(not one.unit.quiet for one in living):
            self._console.say(f"all stopped after {time.monotonic() - began:.1f} s")
        self._console.flush(1.0)

    def _end(self, ones: list[Running], until: float) -> None:
        for one in ones:
            one.signal(one.unit.stop_signal)
        while any(one.alive() for one in ones) and time.monotonic() < until:
            self._read(0.05)
        for one in ones:
            one.finish()

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        before = {number: signal.signal(number, self._hear) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _hear(self, number: int, _frame: object) -> None:
        attached = [one for one in self._group.values() if one.unit.attached and one.process is not None]
        if not attached:
            self._stopping = True
        elif number != signal.SIGINT and (process := attached[0].process):
            send(process, number, whole_group=False)  # Ctrl-C has reached an attached child already

    @contextlib.contextmanager
    def _wakeup(self) -> Iterator[None]:
        """Lets a signal end the wait for output at once."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        self._selector.register(reader, selectors.EVENT_READ, "wakeup")
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            self._selector.unregister(reader)
            os.close(reader)
            os.close(writer)
            self._selector.close()
