"""Log lines of all children on one stream: `web      | …`, coloured on a terminal.

A reader that stops reading must not stop the fleet: when the pipe is full, lines wait in a bounded queue and the oldest
are dropped (and counted). A reader that has gone away silences the output.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections import deque

PALETTE = (36, 32, 33, 35, 34, 96, 92, 93, 95, 94)
MAX_WAITING_LINES = 5000
CHUNK_BYTES = 4096  # a pipe that select calls writable takes this much without blocking
OWN_NAME = "gpufleet"


class Console:
    """Writes prefixed lines to `descriptor` without ever blocking on a full pipe."""

    def __init__(self, descriptor: int, *, colour: bool, width: int = 13) -> None:
        self._descriptor = descriptor
        self._colour = colour
        self._width = width
        self._waiting: deque[bytes] = deque()
        self._rest = b""
        self._dropped = 0
        self._gone = False
        self._colours: dict[str, int] = {OWN_NAME: 1}

    @classmethod
    def standard(cls) -> Console:
        stream = sys.stdout
        stream.flush()
        return cls(stream.fileno(), colour=stream.isatty() and "NO_COLOR" not in os.environ)

    def line(self, name: str, text: str) -> None:
        """One line of the child `name`."""
        prefix = f"{name:<{self._width}} | "
        if self._colour:
            number = self._colours.setdefault(name, PALETTE[len(self._colours) % len(PALETTE)])
            prefix = f"\x1b[{number}m{prefix}\x1b[0m"
        self._put(f"{prefix}{text}\n")

    def say(self, text: str) -> None:
        """A line of the supervisor itself."""
        self.line(OWN_NAME, text)

    def block(self, text: str) -> None:
        """Lines without a prefix, for what a person reads and copies."""
        self._put(text if text.endswith("\n") else text + "\n")

    def flush(self, timeout_seconds: float = 0.0) -> None:
        """Writes what the reader takes; waits at most `timeout_seconds` for it."""
        until = time.monotonic() + timeout_seconds
        while (self._rest or self._waiting) and not self._gone:
            left = max(0.0, until - time.monotonic())
            if not select.select([], [self._descriptor], [], left)[1]:
                return
            self._write_chunk()

    def _put(self, text: str) -> None:
        if self._gone:
            return
        if len(self._waiting) >= MAX_WAITING_LINES:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append(text.encode("utf-8", "replace"))
        self.flush()

    def _write_chunk(self) -> None:
        if not self._rest:
            self._rest = self._waiting.popleft()
            if self._dropped:
                self._rest = f"… {self._dropped} lines were dropped: nobody read them\n".encode() + self._rest
                self._dropped = 0
        try:
            written = os.write(self._descriptor, self._rest[:CHUNK_BYTES])
        except BlockingIOError:
            return
        except OSError:
            self._gone = True
            self._waiting.clear()
            self._rest = b""
            return
        self._rest = self._rest[written:]
