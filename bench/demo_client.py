"""Talks to a running `bin/demo` through what it leaves in its data folder."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Demo:
    """A running demo. `data` is its data folder."""

    data: Path

    @property
    def state(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.data / "demo.json").read_text())
        return loaded

    @property
    def token(self) -> str:
        return (self.data / "api-token").read_text().strip()

    def call(self, method: str, path: str, body: object = None) -> Any:
        """JSON of our API. Raises urllib.error.HTTPError for a status of 400 and above."""
        return _json(method, self.state["url"].rstrip("/") + path, body, {"Authorization": f"Bearer {self.token}"})

    def simulator(self, method: str, path: str, body: object = None) -> Any:
        return _json(method, self.state["simulator_url"].rstrip("/") + path, body, {})

    def processes(self) -> Iterator[tuple[str, int]]:
        """(name, pid) of every process of the group: the supervised ones and their children."""
        children = _children()
        for name, pid in self.state["pids"].items():
            stack = [int(pid)]
            while stack:
                one = stack.pop()
                if Path(f"/proc/{one}").exists():
                    yield name, one
                    stack.extend(children.get(one, []))


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            found.setdefault(int(fields[1]), []).append(int(entry))
    return found


def pss_bytes(pid: int) -> int:
    """Memory of a process with shared pages counted by share; 0 when it is gone."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def cpu_seconds(pid: int) -> float:
    """User and system seconds of a process so far, with those of children that have ended; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def wait_for(condition: Any, timeout: float, every: float = 0.05) -> float:
    """Seconds until `condition()` was true. Raises TimeoutError."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > timeout:
            raise TimeoutError(f"not seen within {timeout:.0f} s")
        time.sleep(every)
    return time.monotonic() - started


def _json(method: str, url: str, body: object, headers: dict[str, str]) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        url, method=method, data=data, headers={"Content-Type": "application/json", **headers}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        raw = answer.read()
    return json.loads(raw) if raw else None
