"""The simulator as a subprocess on a free port: `from tests.simulator_fixture import simulator`, or `running(...)`."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Simulator:
    url: str
    process: subprocess.Popen[str]

    def call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)  # noqa: S310 - our own loopback address
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return json.load(answer)

    def body(self, node: str, exporter: str = "dcgm", t: float | None = None) -> bytes:
        query = "" if t is None else f"?t={t}"
        with urllib.request.urlopen(f"{self.url}/nodes/{node}/{exporter}/metrics{query}", timeout=10) as answer:  # noqa: S310
            return bytes(answer.read())

    def inject(self, node: str, fault: str, **more: object) -> str:
        return str(self.call("POST", "/inject", {"node": node, "fault": fault, **more})["id"])

    def repair(self, fault_id: str) -> None:
        self.call("DELETE", f"/inject/{fault_id}")


@contextmanager
def running(*options: str) -> Iterator[Simulator]:
    """A simulator with these options and, unless they say otherwise, no seeded faults."""
    command = [sys.executable, "-m", "gpufleet.simulator", "--port", "0", "--faults-per-day", "0", *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)  # noqa: S603
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
        assert line.startswith("simulator: http://"), line
        yield Simulator(line.removeprefix("simulator: "), process)
    finally:
        process.terminate()
        process.wait(timeout=10)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with running() as started:
        yield started
