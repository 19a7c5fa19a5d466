"""From a fault at the exporter to the incident: XID 79 with the GPU vanishing, n times on a running demo.

    python bench/detection_latency.py DATA_FOLDER [-n 10]

Prints each run, and the median and largest seconds to the incident in the API. Each run acknowledges over the API
and repairs; with `--wait-clear` it also waits until the clear rule has ended the last incident.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from pathlib import Path
from typing import Any

from demo_client import Demo, wait_for


def open_xid(demo: Demo, node: str, since: str) -> dict[str, Any] | None:
    listed = demo.call("GET", f"/api/v1/incidents?node={node}&kind=xid&since={since}")["incidents"]
    return listed[0] if listed else None


def one_run(demo: Demo, node: str, slot: int) -> tuple[float, int]:
    """(seconds from the fault to the incident, its id). Acknowledges it and repairs the GPU."""
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 1))
    injected = demo.simulator("POST", "/inject", {"node": node, "fault": "xid", "xid": 79, "slot": slot})
    seconds = wait_for(lambda: open_xid(demo, node, since), timeout=120)
    incident = open_xid(demo, node, since)
    assert incident is not None
    demo.call("POST", f"/api/v1/incidents/{incident['id']}/acknowledge", {"note": "latency run"})
    answer = demo.call("GET", f"/api/v1/incidents/{incident['id']}")
    assert answer["status"] == "acknowledged", answer["status"]
    time.sleep(2 * demo.state["interval_seconds"])
    demo.simulator("DELETE", f"/inject/{injected['id']}")
    return seconds, incident["id"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("-n", type=int, default=10)
    parser.add_argument("--wait-clear", action="store_true")
    options = parser.parse_args()
    demo = Demo(options.data)
    nodes = [node["name"] for node in demo.call("GET", "/api/v1/fleet")["nodes"] if node["state"] == "healthy"]
    chosen = random.Random(7).sample(nodes, options.n)
    seconds, last = [], 0
    for index, node in enumerate(chosen):
        time.sleep(random.Random(index).uniform(0, demo.state["interval_seconds"]))
        taken, last = one_run(demo, node, index % 8)
        seconds.append(taken)
        print(f"run {index + 1}: {node} slot {index % 8}: incident {last} after {taken:.2f} s", flush=True)
    middle, interval = statistics.median(seconds), demo.state["interval_seconds"]
    print(f"n {len(seconds)}  median {middle:.2f} s  max {max(seconds):.2f} s  interval {interval} s")
    if options.wait_clear:
        ended = wait_for(lambda: demo.call("GET", f"/api/v1/incidents/{last}")["status"] == "resolved", 1800, 2)
        incident = demo.call("GET", f"/api/v1/incidents/{last}")
        print(f"incident {last}: recovered {incident['recovered_at']}, resolved {incident['resolved_at']}")
        print(f"ended {ended:.0f} s after the last repair")


if __name__ == "__main__":
    main()
