"""Starts real process groups, reads what they print, and looks whether anything is left of them."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 60.0


class Program:
    """A running program whose lines are read as they come."""

    def __init__(
        self, command: Iterable[str], *, typed: str = "", environment: dict[str, str] | None = None, cwd: Path = ROOT
    ) -> None:
        self.process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=clean_environment() | (environment or {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self.process.stdin is not None
        self.process.stdin.write(typed)
        self.process.stdin.close()
        self.lines: list[str] = []
        self._new: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def until(self, part: str, seconds: float = PATIENCE_SECONDS) -> str:
        """The next line that holds `part`. Fails, with all lines, when it does not come."""
        end = time.monotonic() + seconds
        while True:
            try:
                line = self._new.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError(f"no line with {part!r} in:\n" + "\n".join(self.lines))
            if part in line:
                return line

    def end(self, seconds: float = PATIENCE_SECONDS) -> int:
        """The exit code; all output has been read then."""
        code = self.process.wait(seconds)
        self._reader.join(10)
        return code

    def close(self) -> None:
        """Ends what still runs."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.end()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                self.lines.append(line.rstrip("\n"))
                self._new.put(self.lines[-1])
        self._new.put(None)


def clean_environment() -> dict[str, str]:
    """Ours, without the settings of the test run itself."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("GPUFLEET_") and name not in ("DATABASE_URL", "BROKER_URL", "PYTHON")
    }
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except OSError:
        return False


def processes_that_name(mark: str) -> list[int]:
    """Process ids whose command line or environment holds `mark`."""
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        try:
            text = Path(f"/proc/{entry}/cmdline").read_bytes() + Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if mark.encode() in text and alive(int(entry)):
            found.append(int(entry))
    return found


def eventually(condition: Callable[[], object], seconds: float = 10.0) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return bool(condition())
