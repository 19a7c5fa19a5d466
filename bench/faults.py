"""Kills each part of a running demo with SIGKILL and measures what was lost and how long until all is well.

    python bench/faults.py DATA_FOLDER [--runs 1] [--only web,beat]

"Well" is: /readyz answers 200 and a cycle that began after the kill is scraped and detected. Before each kill an
incident is commented through the API; afterwards the comment and every committed frame must still be there.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
import urllib.error
from pathlib import Path
from typing import Any

import psycopg
from demo_client import Demo, wait_for
from soak import database_url

PARTS = ("worker-scrape", "worker-detect", "beat", "web", "valkey", "postgres")
GOOD = "SELECT count(*) FROM scrape_cycle WHERE started_at > to_timestamp(%s) AND shards_detected >= shards"
STATE = """SELECT (SELECT count(*) FROM store_frame), (SELECT count(*) FROM incidents_incidentevent),
(SELECT coalesce(sum(missed_before), 0) FROM scrape_cycle)"""


def query(data: Path, sql: str, *values: object) -> Any:
    try:
        with psycopg.connect(database_url(data), autocommit=True, connect_timeout=2) as connection:
            return connection.execute(sql, values).fetchone()
    except psycopg.Error:
        return None


def is_well(demo: Demo, since: float) -> bool:
    row = query(demo.data, GOOD, since)
    if not row or not row[0]:
        return False
    try:
        return bool(demo.call("GET", "/readyz"))
    except (urllib.error.URLError, OSError, ValueError):
        return False


def one(demo: Demo, part: str) -> str:
    """Kills `part` and returns one line of the table."""
    incident = demo.call("GET", "/api/v1/incidents?limit=1")["incidents"][0]["id"]
    demo.call("POST", f"/api/v1/incidents/{incident}/comment", {"text": f"before the kill of {part}"})
    frames, events, missed = query(demo.data, STATE)
    killed_at = time.time()
    os.kill(int(demo.state["pids"][part]), signal.SIGKILL)
    seconds = wait_for(lambda: is_well(demo, killed_at), timeout=180, every=0.2)
    after_frames, after_events, after_missed = query(demo.data, STATE)
    lost = max(0, frames - after_frames) + max(0, events - after_events)
    return f"{part:15} lost {lost} committed rows, {after_missed - missed} cycles missed, well after {seconds:5.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", default=",".join(PARTS))
    options = parser.parse_args()
    demo = Demo(options.data)
    for run in range(options.runs):
        for part in options.only.split(","):
            print(f"run {run + 1}: {one(demo, part)}", flush=True)


if __name__ == "__main__":
    main()
