"""Scripted faults: out of a seed at the rate of a real fleet, or out of a JSON file."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from gpufleet.simulator.faults import Fault, FaultError, make_fault
from gpufleet.simulator.fleet import Node

FAULTS_PER_GPU_HOUR = 2.4e-5
MAX_SCRIPT_BYTES = 4_000_000
MAX_FAULTS_PER_DAY = 200.0
# Share of each fault among hardware failures; NVLink leads, as on real B200 fleets.
MIX: tuple[tuple[float, dict[str, Any]], ...] = (
    (0.29, {"fault": "xid", "xid": 149}),
    (0.14, {"fault": "xid", "xid": 79}),
    (0.12, {"fault": "xid", "xid": 94}),
    (0.10, {"fault": "xid", "xid": 119}),
    (0.08, {"fault": "gpu_lost"}),
    (0.08, {"fault": "thermal"}),
    (0.06, {"fault": "node_down"}),
    (0.05, {"fault": "ecc"}),
    (0.03, {"fault": "pcie_degraded"}),
    (0.05, {"fault": "exporter_down"}),
)


def default_rate(gpus: int) -> float:
    """Faults a day in a fleet of `gpus`."""
    return FAULTS_PER_GPU_HOUR * 24 * gpus


def seeded(nodes: tuple[Node, ...], seed: int, per_day: float, start: float, days: int) -> list[Fault]:
    """The faults of `days` whole UTC days from the one that holds `start`; a day's faults depend on seed and day only.

    Raises FaultError for a rate outside 0 to 200 a day.
    """
    if not 0 <= per_day <= MAX_FAULTS_PER_DAY:
        raise FaultError(f"faults per day must be 0 to {MAX_FAULTS_PER_DAY:g}")
    first = math.floor(start / 86_400)
    return [fault for day in range(first, first + days) for fault in _of_day(nodes, seed, per_day, day)]


def _of_day(nodes: tuple[Node, ...], seed: int, per_day: float, day: int) -> list[Fault]:
    random = np.random.default_rng([seed, 2, day])
    made = []
    for number in range(int(random.poisson(per_day))):
        share = random.choice(len(MIX), p=[weight for weight, _ in MIX])
        node = nodes[int(random.integers(len(nodes)))]
        given = {
            **MIX[share][1],
            "node": node.name,
            "slot": int(random.integers(len(node.gpus))),
            "at": day * 86_400 + float(random.integers(86_400)),
            "seconds": float(round(random.lognormal(math.log(5_400), 0.6))),
        }
        made.append(make_fault(given, f"s{day}-{number}", 0.0, len(node.gpus), "script"))
    return made


def read_script(path: Path, nodes: tuple[Node, ...]) -> list[Fault]:
    """The faults of a JSON list in the form of POST /inject, each with `at`. Raises FaultError with the position."""
    try:
        if path.stat().st_size > MAX_SCRIPT_BYTES:
            raise FaultError(f"{path}: larger than {MAX_SCRIPT_BYTES} bytes")
        rows = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise FaultError(f"{path}: {error}") from error
    if not isinstance(rows, list):
        raise FaultError(f"{path}: a list of faults is needed")
    gpus = {node.name: len(node.gpus) for node in nodes}
    made = []
    for number, row in enumerate(rows):
        if not isinstance(row, dict) or str(row.get("node")) not in gpus or "at" not in row:
            raise FaultError(f"{path}: fault {number}: a known node and `at` are needed")
        try:
            made.append(make_fault(row, f"s{number}", 0.0, gpus[row["node"]], "script"))
        except FaultError as error:
            raise FaultError(f"{path}: fault {number}: {error}") from error
    return made
