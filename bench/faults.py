"""Kills each part of a running demo with SIGKILL and measures what was lost and how long until all is well.

    python bench/faults.py DATA_FOLDER [--runs 1] [--only web,beat] [--hold 20]

Just before each kill a new incident is acknowledged through the API. Afterwards every row that was committed before
(frames, incident events, acknowledgements), by its key, must still be there. "Well" is: the part runs as a new
process, /readyz answers 200, and a cycle that began after the kill is scraped and detected in full. A missed cycle
must show as unknown in the ledger of every node. The exit code is 1 when any of that does not hold.

With `--hold` the part is killed again and again for so many seconds, so that there is a gap; the seconds to well then
count from the end of it.

Runs are a minute apart, so that the supervisor's back-off has begun anew.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import time
import urllib.error
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from demo_client import Demo, wait_for
from soak import database_url

PARTS = ("worker-scrape", "worker-detect", "beat", "web", "valkey", "postgres")
CALM_SECONDS = 62  # the supervisor forgets a death after a minute
GOOD = """SELECT count(*) FROM scrape_cycle
WHERE started_at > to_timestamp(%s) AND shards_scraped >= shards AND shards_detected >= shards"""
FRAMES = "SELECT target_id, scraped_at FROM store_frame WHERE scraped_at > now() - interval '10 minutes'"
EVENTS = "SELECT id, verb, actor FROM incidents_incidentevent"
CYCLES = """SELECT coalesce(sum(missed_before), 0) + count(*) FILTER (WHERE shards_scraped < shards),
count(*) FILTER (WHERE shards_scraped >= shards AND shards_detected < shards)
FROM scrape_cycle WHERE started_at > to_timestamp(%s) AND started_at < to_timestamp(%s)"""
UNKNOWN = """SELECT count(DISTINCT node_id) FROM availability_stateinterval WHERE gpu_id IS NULL AND state = 'unknown'
AND starts_at < to_timestamp(%s) AND coalesce(ends_at, 'infinity') > to_timestamp(%s)"""


@dataclass(frozen=True)
class Outcome:
    """What one kill did. `lost` counts committed rows that are gone; `unknown_nodes` those with a gap in the ledger."""

    part: str
    seconds: float
    lost: int
    missed: int
    undetected: int
    unknown_nodes: int
    nodes: int

    @property
    def holds(self) -> bool:
        """Nothing lost, and a gap is shown where there was one."""
        return self.lost == 0 and (self.missed == 0 or self.unknown_nodes == self.nodes)

    def __str__(self) -> str:
        return (
            f"{self.part:14} lost {self.lost} committed rows, {self.missed} cycles missed, {self.undetected} not "
            f"detected, unknown in the ledger of {self.unknown_nodes} nodes, well after {self.seconds:.1f} s"
        )


def rows(data: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with psycopg.connect(database_url(data), autocommit=True, connect_timeout=2) as connection:
        return connection.execute(sql, values).fetchall()


def is_well(demo: Demo, part: str, killed: int, since: float) -> bool:
    try:
        pid = demo.state["pids"].get(part, killed)
        good = pid != killed and Path(f"/proc/{pid}").exists() and rows(demo.data, GOOD, since)[0][0] > 0
        return bool(good and demo.call("GET", "/readyz"))
    except (psycopg.Error, urllib.error.URLError, OSError, ValueError):
        return False


def new_incident(demo: Demo, node: str) -> tuple[int, str]:
    """(incident, fault in the simulator): an XID 79 on `node`, and a moment anywhere within an interval."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    fault = demo.simulator("POST", "/inject", {"node": node, "fault": "xid", "xid": 79, "slot": 3})["id"]
    path = f"/api/v1/incidents?node={node}&kind=xid&since={since}"
    wait_for(lambda: demo.call("GET", path)["incidents"], timeout=120)
    incident = demo.call("GET", path)["incidents"][0]["id"]
    time.sleep(random.uniform(0, demo.state["interval_seconds"]))
    return incident, fault


def quiet_nodes(demo: Demo) -> list[str]:
    """Nodes that had no incident yet: on others a fault would extend an old one."""
    known = {incident["node"] for incident in demo.call("GET", "/api/v1/incidents?limit=500")["incidents"]}
    return [node["name"] for node in demo.call("GET", "/api/v1/fleet")["nodes"] if node["name"] not in known]


def kill(demo: Demo, part: str, hold_seconds: float) -> int:
    """Kills the part, and whatever takes its place for `hold_seconds`. Returns the last process id."""
    killed = int(demo.state["pids"][part])
    os.kill(killed, signal.SIGKILL)
    until = time.monotonic() + hold_seconds
    while time.monotonic() < until:
        time.sleep(0.05)
        found = int(demo.state["pids"].get(part, killed))
        if found != killed:
            killed = found
            os.kill(killed, signal.SIGKILL)
    return killed


def one(demo: Demo, part: str, node: str, hold_seconds: float) -> Outcome:
    interval = demo.state["interval_seconds"]
    incident, fault = new_incident(demo, node)
    frames = set(rows(demo.data, FRAMES))
    demo.call("POST", f"/api/v1/incidents/{incident}/acknowledge", {"note": f"before the kill of {part}"})
    events = set(rows(demo.data, EVENTS))
    killed_at = time.time()
    killed = kill(demo, part, hold_seconds)
    held_until = time.time() if hold_seconds else killed_at
    seconds = wait_for(lambda: is_well(demo, part, killed, held_until), timeout=180, every=0.1)
    well_at = time.time()
    time.sleep(2 * interval)  # a cycle that was under way may still be ended, and the ledger told of the gap
    missing = len(frames - set(rows(demo.data, FRAMES.replace("10 minutes", "20 minutes"))))
    missing += len(events - set(rows(demo.data, EVENTS)))
    forgotten = demo.call("GET", f"/api/v1/incidents/{incident}")["status"] != "acknowledged"
    missed, undetected = rows(demo.data, CYCLES, killed_at - interval, well_at + interval)[0]
    unknown = rows(demo.data, UNKNOWN, well_at, killed_at)[0][0]
    demo.simulator("DELETE", f"/inject/{fault}")
    nodes = len(demo.call("GET", "/api/v1/fleet")["nodes"])
    return Outcome(part, seconds, missing + forgotten, int(missed), int(undetected), int(unknown), nodes)


def table(outcomes: list[Outcome]) -> str:
    """Markdown: one row a part, over all its runs."""
    lines = ["| killed | runs | committed rows lost | cycles missed | seconds to well, median (max) |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for part in dict.fromkeys(one.part for one in outcomes):
        mine = [one for one in outcomes if one.part == part]
        seconds = [one.seconds for one in mine]
        missed = ", ".join(str(one.missed) for one in mine)
        lines.append(
            f"| {part} | {len(mine)} | {sum(one.lost for one in mine)} | {missed} | "
            f"{statistics.median(seconds):.1f} ({max(seconds):.1f}) |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--hold", type=float, default=0.0, help="seconds for which the part is kept dead")
    options = parser.parse_args()
    demo = Demo(options.data)
    healthy = quiet_nodes(demo)
    outcomes: list[Outcome] = []
    for run in range(options.runs):
        began = time.monotonic()
        for part in options.only.split(","):
            outcomes.append(one(demo, part, healthy[len(outcomes) % len(healthy)], options.hold))
            print(f"run {run + 1}: {outcomes[-1]}", flush=True)
        if run + 1 < options.runs:
            time.sleep(max(0.0, CALM_SECONDS - (time.monotonic() - began)))
    print(table(outcomes))
    return 0 if all(one.holds for one in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
