"""What the store costs: bytes and CPU a sample at append, and the time of the everyday reads.

63 nodes with 8 GPUs and two targets each (45 fields x 8 GPUs; 250 series of the node), 240 scrapes 15 s apart, one call
of `append_frames` for all 126 frames of a scrape. Values move as a training job moves them. Run it in a database of its
own, migrated and without frames:

    DATABASE_URL=postgresql:///gpufleet_bench python manage.py migrate
    DATABASE_URL=postgresql:///gpufleet_bench python bench/store.py [--cycles 240]
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpufleet.settings")

import django  # noqa: E402

django.setup()

from django.db import connection  # noqa: E402

from gpufleet.fleet.models import Cluster, Gpu, Node, Target  # noqa: E402
from gpufleet.store import queries  # noqa: E402
from gpufleet.store.append import append_frames  # noqa: E402
from gpufleet.store.codec import decode, encode  # noqa: E402
from gpufleet.store.frames import FloatArray, Frame, SeriesSpec  # noqa: E402
from gpufleet.store.series import ensure_layout, ensure_series  # noqa: E402

NODES, GPUS, FIELDS, NODE_SERIES, INTERVAL = 63, 8, 45, 250, 15
START = 1_796_083_200.0
NOW = datetime.fromtimestamp(START, tz=UTC)


def moving_values(cycles: int, chance: np.random.Generator) -> FloatArray:
    """cycles x 610 raw values of one node, with the spelling (digits) of the exporters."""
    at = np.arange(cycles)
    busy = 0.5 + 0.5 * np.sign(np.sin(at / 9 + chance.random()))
    columns: list[FloatArray] = []
    for field in range(FIELDS):
        for gpu in range(GPUS):
            columns.append(np.abs(_gpu_field(field % 9, gpu, busy, chance)))
    for number in range(NODE_SERIES):
        columns.append(_node_field(number % 5, cycles, chance))
    return np.column_stack(columns)


def _gpu_field(kind: int, gpu: int, busy: FloatArray, chance: np.random.Generator) -> FloatArray:
    size = busy.size
    watts = 700 + 250 * busy + chance.normal(0, 20, size)
    match kind:
        case 0:
            return np.round(60 + 8 * busy + np.cumsum(chance.normal(0, 0.06, size)))
        case 1:
            return np.round(watts, 3)
        case 2:
            return np.round(0.6 + 0.3 * busy + chance.normal(0, 0.03, size), 6)
        case 3:
            return np.round(2e10 + np.cumsum(watts * 15000))
        case 5:
            return np.round(170_000 + chance.integers(-3, 3, size))
        case 7:
            return np.round(3e10 * busy + chance.normal(0, 2e9, size))
    return np.full(size, {4: 0.0, 6: 1965.0}.get(kind, 2.0 * gpu))


def _node_field(kind: int, cycles: int, chance: np.random.Generator) -> FloatArray:
    match kind:
        case 0 | 1:
            return np.round(np.cumsum(chance.uniform(0, 15, cycles)), 2) + chance.integers(0, 1_000_000)
        case 2:
            return np.full(cycles, float(chance.integers(0, 1_000_000)))
        case 3:
            return np.cumsum(chance.integers(0, 2**30, cycles)).astype(np.float64) + 2.0**44
    return np.round(chance.uniform(0, 2e12, cycles) / 4096) * 4096


def make_fleet() -> tuple[int, list[int], list[int], list[list[int]]]:
    """(cluster, targets, layouts, GPUs by node)."""
    cluster = Cluster.objects.create(name=f"bench-{time.time():.0f}")
    targets, layouts, gpus_by_node = [], [], []
    for number in range(NODES):
        node = Node.objects.create(cluster=cluster, name=f"gpu-{number:03}")
        gpus = Gpu.objects.bulk_create(
            Gpu(cluster=cluster, uuid=f"GPU-{number:03}-{slot}", first_seen_at=NOW, last_seen_at=NOW)
            for slot in range(GPUS)
        )
        ids = [gpu.id for gpu in gpus]
        fields = [_spec(f"field_{field:02}", gpu, "dcgm") for field in range(FIELDS) for gpu in ids]
        for job, specs in (("dcgm", fields), ("node", [_spec(f"node_{n:03}", None, "") for n in range(NODE_SERIES)])):
            target = Target.objects.create(cluster=cluster, node=node, url=f"http://{node.name}/{job}", created_at=NOW)
            targets.append(target.id)
            layouts.append(ensure_layout(target.id, ensure_series(target.id, specs, NOW), NOW))
        gpus_by_node.append(ids)
    return cluster.id, targets, layouts, gpus_by_node


def _spec(name: str, gpu_id: int | None, sentinels: str) -> SeriesSpec:
    return SeriesSpec(name, name, {}, gpu_id, "gauge", "", 1.0, None, None, sentinels)


def append_all(targets: list[int], layouts: list[int], cycles: int) -> tuple[list[float], list[float]]:
    """Seconds of CPU of this process, and of wall time, of each call of `append_frames`."""
    chance = np.random.default_rng(20261201)
    nodes = [moving_values(cycles, chance) for _ in range(NODES)]
    cut = FIELDS * GPUS
    values = [part for node in nodes for part in (node[:, :cut], node[:, cut:])]
    cpu, wall = [], []
    for cycle in range(cycles):
        at = START + cycle * INTERVAL
        frames = [
            Frame(
                targets[n],
                at + 0.001 * n,
                int(at // INTERVAL),
                "",
                0.1,
                150_000,
                part.shape[1],
                0,
                0,
                layouts[n],
                part[cycle].copy(),
            )
            for n, part in enumerate(values)
        ]
        before = time.process_time(), time.perf_counter()
        append_frames(frames, datetime.fromtimestamp(at, tz=UTC))
        cpu.append(time.process_time() - before[0])
        wall.append(time.perf_counter() - before[1])
    return cpu, wall


def server_cpu() -> float:
    """CPU seconds of the server process of this connection; NaN when it is on another machine."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        path = Path(f"/proc/{cursor.fetchone()[0]}/stat")
    if not path.exists():
        return float("nan")
    fields = path.read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def size_on_disk() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits WHERE inhparent = 'store_frame'::regclass"
        )
        return int(cursor.fetchone()[0] or 0)


def timed(work: Callable[[], object], times: int) -> list[float]:
    work()
    found = []
    for _ in range(times):
        before = time.perf_counter()
        work()
        found.append((time.perf_counter() - before) * 1000)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--cycles", type=int, default=240)
    cycles = parser.parse_args().cycles
    cluster, targets, layouts, gpus = make_fleet()
    before, server = size_on_disk(), server_cpu()
    cpu, wall = append_all(targets, layouts, cycles)
    server = server_cpu() - server
    samples = NODES * 610 * cycles
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE store_frame")
    print(f"{'append: bytes on disk a sample':48} {(size_on_disk() - before) / samples:9.2f}")
    print(f"{'append: CPU us a sample, this process':48} {sum(cpu) / samples * 1e6:9.3f}")
    print(f"{'append: CPU us a sample, server process':48} {server / samples * 1e6:9.3f}")
    print(f"{'append: ms a call of 126 targets (n, median)':48} {len(wall):5} {statistics.median(wall) * 1000:7.2f}")
    end = START + cycles * INTERVAL
    frame = moving_values(1, np.random.default_rng(1))[0]
    blob = encode(frame)
    reads: list[tuple[str, int, Callable[[], object]]] = [
        ("encode one frame", 1000, lambda: encode(frame)),
        ("decode one frame", 1000, lambda: decode(blob)),
        ("latest frames of 63 GPU targets", 200, lambda: queries.read_latest(targets[::2])),
        ("one cycle of 126 targets", 200, lambda: queries.read_cycle(targets, int(end // INTERVAL) - 1)),
        ("1 h of 1 metric, 8 GPUs, 15 s", 50, lambda: _hour(1, gpus[0], end)),
        ("1 h of 6 metrics, 8 GPUs, 15 s", 20, lambda: _hour(6, gpus[0], end)),
        ("1 h of all frames of a node (2 targets)", 50, lambda: queries.read_frames(targets[:2], end - 3600, end)),
        ("1 h of 1 metric, 504 GPUs, 60 s", 10, lambda: _hour(1, [gpu for ids in gpus for gpu in ids], end, 60)),
        ("1 h band over 504 GPUs, 300 s", 10, lambda: queries.read_band("field_00", cluster, end - 3600, end, 300)),
        ("last value of 8 GPUs", 50, lambda: queries.read_last_before("field_00", gpus[0], end)),
        ("1 h of scrape health, 126 targets", 20, lambda: queries.read_health(targets, end - 3600, end)),
    ]
    print(f"\n{'read':48} {'n':>5} {'ms':>7}")
    for name, times, work in reads:
        print(f"{name:48} {times:5} {statistics.median(timed(work, times)):7.3f}")


def _hour(metrics: int, gpus: list[int], end: float, step: float = INTERVAL) -> None:
    for field in range(metrics):
        queries.read_range(f"field_{field:02}", gpus, start=end - 3600, end=end, step=step)


if __name__ == "__main__":
    main()
