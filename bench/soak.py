"""Watches a running demo for a while: missed cycles, memory, database size a sample. Resumable: it appends to a file.

python bench/soak.py DATA_FOLDER --minutes 30 [--every 30] [--log soak.jsonl]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import psycopg
from demo_client import Demo, cpu_seconds, pss_bytes

FRAMES = "SELECT count(*), coalesce(sum(accepted), 0), count(*) FILTER (WHERE layout_id IS NULL) FROM store_frame"
SIZE = """SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0) FROM pg_inherits
WHERE inhparent = 'store_frame'::regclass"""
CYCLES = """SELECT count(*), coalesce(sum(missed_before), 0), count(*) FILTER (WHERE shards_detected < shards)
FROM scrape_cycle"""


def sample(demo: Demo, connection: psycopg.Connection[Any]) -> dict[str, Any]:
    """One line of the log: counts from the database, memory and CPU by process name."""
    frames = connection.execute(FRAMES).fetchone() or (0, 0, 0)
    cycles = connection.execute(CYCLES).fetchone() or (0, 0, 0)
    size = (connection.execute(SIZE).fetchone() or (0,))[0]
    memory: dict[str, int] = {}
    cpu: dict[str, float] = {}
    for name, pid in demo.processes():
        memory[name] = memory.get(name, 0) + pss_bytes(pid)
        cpu[name] = cpu.get(name, 0.0) + cpu_seconds(pid)
    return {
        "at": time.time(),
        "frames": frames[0], "samples": int(frames[1]), "failed": frames[2],
        "cycles": cycles[0], "missed": int(cycles[1]), "undetected": cycles[2],
        "frame_bytes": int(size), "memory": memory, "cpu": cpu,
    }  # fmt: skip


def database_url(data: Path) -> str:
    for line in (data / "env").read_text().splitlines():
        name, _, value = line.removeprefix("export ").partition("=")
        if name == "DATABASE_URL":
            return value.strip("'\"")
    raise SystemExit(f"{data}/env names no DATABASE_URL")


def report(first: dict[str, Any], last: dict[str, Any]) -> None:
    grown = {key: last[key] - first[key] for key in ("at", "cycles", "missed", "failed", "samples")}
    print(
        f"{grown['at'] / 60:.1f} min: {grown['cycles']} cycles, {grown['missed']} missed, "
        f"{last['undetected']} not detected, {grown['failed']} failed scrapes, {grown['samples']:,} samples"
    )
    print(f"frames on disk: {last['frame_bytes'] / max(last['samples'], 1):.2f} bytes a sample")
    for name, seconds in sorted(last["cpu"].items()):
        spent = (seconds - first["cpu"].get(name, 0.0)) / max(grown["samples"], 1) * 1e6
        memory, before = last["memory"].get(name, 0) / 1e6, first["memory"].get(name, 0) / 1e6
        print(f"  {name:15} {spent:6.2f} CPU s per million samples  {memory:7.1f} MB now, {memory - before:+.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--every", type=float, default=30)
    parser.add_argument("--log", type=Path, default=Path("soak.jsonl"))
    options = parser.parse_args()
    demo = Demo(options.data)
    until = time.time() + options.minutes * 60
    with psycopg.connect(database_url(options.data), autocommit=True) as connection, options.log.open("a") as log:
        while time.time() < until:
            log.write(json.dumps(sample(demo, connection)) + "\n")
            log.flush()
            time.sleep(options.every)
    lines = [json.loads(line) for line in options.log.read_text().splitlines()]
    report(lines[0], lines[-1])


if __name__ == "__main__":
    main()
