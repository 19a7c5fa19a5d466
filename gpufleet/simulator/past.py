"""`python -m gpufleet.simulator.past --days N --out FILE`: a made-up record of outages, the same for the same seed.

Hardware failures at the rate and in the mix of `schedule.py`, some nodes far above the others, maintenance of each
rack once a month. Columns as `import_outages` reads them; names and UUIDs are those of the simulated fleet.
"""

from __future__ import annotations

import argparse
import csv
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpufleet.core.times import parse_rfc3339, rfc3339
from gpufleet.simulator.fleet import Node, make_nodes
from gpufleet.simulator.schedule import FAULTS_PER_GPU_HOUR

FloatArray = npt.NDArray[np.float64]
COLUMNS = ("node", "gpu_uuid", "starts_at", "ends_at", "planned", "reason")
MAX_DAYS = 400
LEMON_SHARE, LEMON_FACTOR = 0.05, 12.0
MAINTENANCE_HOURS = 4
# What broke, whether it took the whole node, its share of all failures, and the median hours until it was back.
MIX: tuple[tuple[str, bool, float, float], ...] = (
    ("XID 149, NVLink", False, 0.27, 1.5),
    ("XID 145, NVLink", False, 0.08, 1.5),
    ("XID 79, GPU has fallen off the bus", False, 0.22, 6.0),
    ("XID 119, GSP timeout", False, 0.14, 1.0),
    ("HBM, uncorrectable memory error", False, 0.13, 30.0),
    ("GPU missing", False, 0.08, 8.0),
    ("node down", True, 0.08, 5.0),
)
SPREAD = 0.8


@dataclass(frozen=True, slots=True)
class Row:
    """`gpu_uuid` empty: the whole node."""

    node: str
    gpu_uuid: str
    starts_at: datetime
    ends_at: datetime
    planned: bool
    reason: str


def make_past(nodes: tuple[Node, ...], seed: int, days: int, until: datetime) -> list[Row]:
    """All outages of the `days` before `until`, in order of time, cut to that time.

    Each UTC day has its own randomness, so two records of overlapping time agree.
    Raises ValueError for a number of days outside 1 to 400.
    """
    if not 1 <= days <= MAX_DAYS:
        raise ValueError(f"days must be 1 to {MAX_DAYS}")
    start = until - timedelta(days=days)
    midnight = datetime(start.year, start.month, start.day, tzinfo=UTC)
    weights = _weights(nodes, seed)
    found: list[Row] = []
    for day in (midnight + timedelta(days=number) for number in range(days + 1)):
        found.extend(_failures(nodes, weights, seed, day))
        found.extend(_maintenance(nodes, day))
    cut = [_cut(row, start, until) for row in found if row.starts_at < until and row.ends_at > start]
    return sorted(cut, key=lambda row: (row.starts_at, row.node, row.gpu_uuid))


def _weights(nodes: tuple[Node, ...], seed: int) -> FloatArray:
    """Each node's share of the failures: a few lemons have far more than the others."""
    random = np.random.default_rng([seed, 7])
    weights = np.ones(len(nodes))
    weights[random.choice(len(nodes), max(1, round(LEMON_SHARE * len(nodes))), replace=False)] = LEMON_FACTOR
    found: FloatArray = weights / weights.sum()
    return found


def _failures(nodes: tuple[Node, ...], weights: FloatArray, seed: int, day: datetime) -> Iterator[Row]:
    random = np.random.default_rng([seed, 8, day.toordinal()])
    gpus = sum(len(node.gpus) for node in nodes)
    shares = np.array([share for _, _, share, _ in MIX])
    for _ in range(int(random.poisson(FAULTS_PER_GPU_HOUR * 24 * gpus))):
        node = nodes[int(random.choice(len(nodes), p=weights))]
        reason, whole, _, median_hours = MIX[int(random.choice(len(MIX), p=shares / shares.sum()))]
        gpu = node.gpus[int(random.integers(len(node.gpus)))]
        starts_at = day + timedelta(seconds=int(random.integers(86_400)))
        hours = min(96.0, float(random.lognormal(math.log(median_hours), SPREAD)))
        ends_at = starts_at + timedelta(seconds=max(60, round(hours * 3600)))
        yield Row(node.name, "" if whole else gpu.uuid, starts_at, ends_at, False, reason)


def _maintenance(nodes: tuple[Node, ...], day: datetime) -> Iterator[Row]:
    """Rack n is worked on in the morning of the n-th day of the month; rack 29 begins again with the first.

    A row for each GPU: so the record names every board of the fleet, also those that never failed.
    """
    starts_at = day + timedelta(hours=8)
    for node in nodes:
        if day.day <= 28 and (int(node.rack[1:]) - 1) % 28 + 1 == day.day:
            for gpu in node.gpus:
                ends_at = starts_at + timedelta(hours=MAINTENANCE_HOURS)
                yield Row(node.name, gpu.uuid, starts_at, ends_at, True, f"{node.rack} firmware")


def _cut(row: Row, start: datetime, until: datetime) -> Row:
    span = max(row.starts_at, start), min(row.ends_at, until)
    return Row(row.node, row.gpu_uuid, *span, row.planned, row.reason)


def write_past(path: Path, rows: list[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        for row in rows:
            planned = "true" if row.planned else "false"
            out.writerow(
                [row.node, row.gpu_uuid, rfc3339(row.starts_at), rfc3339(row.ends_at), planned, row.reason]
            )  # fmt: skip


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gpufleet.simulator.past", description=__doc__)
    parser.add_argument("--days", type=int, required=True)
    parser.add_argument("--until", required=True, help="ISO time with an offset")
    parser.add_argument("--out", type=Path, required=True, help="the CSV file")
    parser.add_argument("--nodes", type=int, default=63)
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of each node")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    given = parse(arguments)
    try:
        if given.seed < 0:
            raise ValueError("the seed must not be negative")
        nodes = make_nodes(given.nodes, given.gpus, given.seed)
        rows = make_past(nodes, given.seed, given.days, parse_rfc3339(given.until))
        write_past(given.out, rows)
    except (ValueError, OSError, OverflowError) as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 2
    print(f"{len(rows)} rows, {sum(not row.planned for row in rows)} of them failures")
    return 0


if __name__ == "__main__":
    sys.exit(main())
