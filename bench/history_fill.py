"""Fills the store with what the simulated fleet would have sent, as text, through the product's own reader.

Every body is rendered, read, appended as frames and, two hours at a time, sealed; only HTTP is left out. Scrapes begin
a little late each time, as real ones do. Run it in a database of its own; it goes on where it was stopped:

    DATABASE_URL=postgresql:///gpufleet_history python manage.py migrate
    DATABASE_URL=postgresql:///gpufleet_history python bench/history_fill.py [--hours 24] [--nodes 63]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpufleet.settings")

import django  # noqa: E402

django.setup()

from django.db import connection  # noqa: E402

from gpufleet.fleet.models import Cluster, Node, Target  # noqa: E402
from gpufleet.fleet.queries import ActiveTarget, active_targets  # noqa: E402
from gpufleet.scrape.cycle import Reader  # noqa: E402
from gpufleet.scrape.fetch import Fetched  # noqa: E402
from gpufleet.simulator.dcgm import FIELDS  # noqa: E402
from gpufleet.simulator.workload import FloatArray  # noqa: E402
from gpufleet.simulator.world import World  # noqa: E402
from gpufleet.store.append import append_frames  # noqa: E402
from gpufleet.store.chunks import SPAN_SECONDS  # noqa: E402
from gpufleet.store.partitions import CHUNKS, FIVE_MINUTES, FRAMES, HOURS, present  # noqa: E402
from gpufleet.store.seal import GRACE, seal  # noqa: E402

START = datetime(2026, 11, 29, tzinfo=UTC)
INTERVAL = 15
# How far values of a training GPU scatter from one scrape to the next, as a share of the value. The simulator's own
# repeat after three scrapes to the last digit, which no real sensor does and which flatters whoever packs repetitions.
SCATTER = {
    "POWER_USAGE": 0.02, "GPU_UTIL": 0.01, "MEM_COPY_UTIL": 0.03, "GR_ENGINE_ACTIVE": 0.01, "SM_ACTIVE": 0.02,
    "SM_OCCUPANCY": 0.02, "PIPE_TENSOR_ACTIVE": 0.03, "DRAM_ACTIVE": 0.03, "PCIE_TX_BYTES": 0.1,
    "PCIE_RX_BYTES": 0.1, "NVLINK_BANDWIDTH_TOTAL": 0.03, "SM_CLOCK": 0.005, "GPU_TEMP": 0.008, "MEMORY_TEMP": 0.008,
    "TOTAL_ENERGY_CONSUMPTION": 2e-9, "POWER_VIOLATION": 1e-7,
}  # fmt: skip
RECORD = Path("/tmp/gpufleet-history-fill.jsonl")  # noqa: S108


class ScatteredWorld(World):
    """The simulated fleet with values that scatter."""

    def _instant(self, t: float) -> FloatArray:
        known = self._instants.get(t)
        if known is not None:
            return known
        values = super()._instant(t).copy()
        chance = np.random.default_rng(round(t))
        for row, field in enumerate(FIELDS):
            share = SCATTER.get(field.name.removeprefix("DCGM_FI_DEV_").removeprefix("DCGM_FI_PROF_"), 0.0)
            if share:
                scattered = values[row] * (1 + share * chance.standard_normal(values.shape[1]))
                values[row] = np.minimum(scattered, 1.0) if "ACTIVE" in field.name else scattered
        self._instants[t] = values
        return values


def fleet_of(world: World) -> tuple[Cluster, list[ActiveTarget]]:
    """The simulated nodes with their DCGM targets, made once."""
    cluster, _ = Cluster.objects.get_or_create(name="default")
    if not Target.objects.filter(cluster=cluster).exists():
        for node in world.nodes.values():
            made = Node.objects.create(cluster=cluster, name=node.name, expected_gpus=world.gpus)
            url = f"http://{node.name}:9400/metrics"
            Target.objects.create(cluster=cluster, node=made, url=url, job="dcgm", created_at=START)
    return cluster, active_targets(cluster.id)


def sizes() -> dict[str, int]:
    """Bytes on disk with TOAST and indexes, after VACUUM: of each table and, as "all", of everything samples need."""
    found = {}
    with connection.cursor() as cursor:
        for ladder in (FRAMES, CHUNKS, FIVE_MINUTES, HOURS):
            for name in present(ladder):
                cursor.execute(f'VACUUM (ANALYZE) "{name}"')
            cursor.execute(
                "SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0)"
                " FROM pg_inherits WHERE inhparent = %s::regclass",
                [ladder.parent],
            )
            found[ladder.parent] = int(cursor.fetchone()[0])
        for name in ("store_series", "store_layout", "store_name"):
            cursor.execute("SELECT pg_total_relation_size(%s::regclass)", [name])
            found[name] = int(cursor.fetchone()[0])
    return found


def server_cpu() -> float:
    """CPU seconds of the server process of this connection; NaN when it is on another machine."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        path = Path(f"/proc/{cursor.fetchone()[0]}/stat")
    if not path.exists():
        return float("nan")
    fields = path.read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def append_span(
    world: World, cluster: Cluster, targets: list[ActiveTarget], reader: Reader, start: float, seconds: float
) -> dict[str, float]:
    """Appends `seconds` of the fleet; returns samples, and seconds of CPU of this process and of the server."""
    spent = dict.fromkeys(("samples", "append_cpu", "append_server"), 0.0)
    chance = np.random.default_rng(round(start))
    for cycle in range(round(start) // INTERVAL, round(start + seconds) // INTERVAL):
        late = chance.gamma(2.0, 0.002, len(targets))
        fetched = []
        for number, target in enumerate(targets):
            at = cycle * INTERVAL + 0.2 * number + late[number]
            body = world.answer(target.node, "dcgm", at).body
            fetched.append(Fetched(target.id, at, float(0.01 + late[number]), len(body), body))
        now = datetime.fromtimestamp(cycle * INTERVAL + INTERVAL, tz=UTC)
        result = reader.take(cluster, targets, fetched, cycle, now)
        before = time.process_time(), server_cpu()
        append_frames(result.frames, now)
        spent["append_cpu"] += time.process_time() - before[0]
        spent["append_server"] += server_cpu() - before[1]
        spent["samples"] += sum(frame.accepted for frame in result.frames)
    return spent


def seal_span(targets: list[ActiveTarget], start: float) -> dict[str, float]:
    spent: dict[str, float] = {}
    before, wall = (time.process_time(), server_cpu()), time.perf_counter()
    done = seal(datetime.fromtimestamp(start + SPAN_SECONDS, tz=UTC) + GRACE)
    assert done.spans == len(targets)
    assert done.dropped >= 1
    spent["seal_cpu"] = time.process_time() - before[0]
    spent["seal_server"] = server_cpu() - before[1]
    spent["seal_wall"] = time.perf_counter() - wall
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--nodes", type=int, default=63)
    parser.add_argument("--open-minutes", type=int, default=0, help="then append so many minutes that stay frames")
    parser.add_argument("--scatter", action="store_true", help="let values scatter as those of real sensors do")
    parser.add_argument("--record", type=Path, default=RECORD)
    given = parser.parse_args()
    world = (ScatteredWorld if given.scatter else World)(nodes=given.nodes)
    cluster, targets = fleet_of(world)
    reader = Reader(max_samples=50_000, interval_seconds=INTERVAL)
    done = (
        {json.loads(line)["start"] for line in given.record.read_text().splitlines()}
        if given.record.exists()
        else set()
    )
    for number in range(given.hours * 3600 // round(SPAN_SECONDS)):
        start = (START + number * timedelta(seconds=SPAN_SECONDS)).timestamp()
        if start not in done:
            row = {"start": start, **append_span(world, cluster, targets, reader, start, SPAN_SECONDS)}
            row |= seal_span(targets, start)
            with given.record.open("a") as record:
                record.write(json.dumps(row) + "\n")
    if given.open_minutes:
        start = (START + timedelta(hours=given.hours)).timestamp()
        append_span(world, cluster, targets, reader, start, given.open_minutes * 60)
        return
    report([json.loads(line) for line in given.record.read_text().splitlines()])


def report(rows: list[dict[str, float]]) -> None:
    samples = sum(row["samples"] for row in rows)
    print(f"{len(rows)} spans of two hours, {samples:,.0f} samples")
    for name in ("append_cpu", "append_server", "seal_cpu", "seal_server"):
        print(f"{name:24} {sum(row[name] for row in rows) / samples * 1e6:8.4f} us a sample")
    print(
        f"{'seal_wall':24} {max(row['seal_wall'] for row in rows):8.2f} s for the longest span of {SPAN_SECONDS:.0f} s"
    )
    for name, size in sizes().items():
        print(f"{name:24} {size:14,} bytes {size / samples:8.4f} a sample")


if __name__ == "__main__":
    main()
