"""Has Prometheus scrape what a running demo scrapes, breaks some nodes, and compares what both see end, and when.

    bin/demo --data data
    python bench/promql_live.py data

A GPU falls off the bus, an exporter refuses, another is cut off in its answer, a whole node goes: each takes its series
with it. Sample values differ by the instant of the scrape, so counts of series and `up` are compared.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from prometheus_server import prometheus

WARM_UP, SETTLE, STEP = 45, 60, 15
FAULTS: tuple[dict[str, Any], ...] = (
    {"node": "gpu-010", "fault": "gpu_lost", "slot": 3},
    {"node": "gpu-011", "fault": "exporter_down", "mode": "refused"},
    {"node": "gpu-012", "fault": "exporter_down", "mode": "cut_off"},
    {"node": "gpu-013", "fault": "node_down"},
)
QUERIES = (
    *(f'count(DCGM_FI_DEV_GPU_TEMP{{node="gpu-01{last}"}})' for last in range(4)),
    *(f'up{{node="gpu-01{last}",job="{job}"}}' for last in range(4) for job in ("dcgm", "node")),
    'count({node="gpu-013",job="node",__name__=~"node_.*"})',
    'count({__name__=~"DCGM_.*"})',
    'count({__name__=~"node_.*"})',
    "count by (modelName) (DCGM_FI_DEV_POWER_USAGE)",
    "sum(up)",
)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("data", type=Path, help="the demo's folder")
    folder = options.parse_args().data
    facts = json.loads((folder / "demo.json").read_text())
    simulator = facts["simulator_url"]
    token = b64encode(f"bench:{(folder / 'api-token').read_text().strip()}".encode()).decode()
    with tempfile.TemporaryDirectory() as made, prometheus(scrape=_targets(simulator, Path(made))) as address:
        ours = (f"{facts['url'].rstrip('/')}/prometheus/api/v1/query", {"Authorization": f"Basic {token}"})
        theirs = (f"{address}/api/v1/query", {})
        time.sleep(WARM_UP)
        differing = _compare("before", ours, theirs)
        ids = [_call("POST", f"{simulator}/inject", fault)["id"] for fault in FAULTS]
        try:
            time.sleep(SETTLE)
            differing += _compare("while broken", ours, theirs)
        finally:
            for fault in ids:
                _call("DELETE", f"{simulator}/inject/{fault}")
        time.sleep(SETTLE)
        differing += _compare("after repair", ours, theirs)
    print(f"{differing} differ" if differing else "both see the same series")
    return 1 if differing else 0


def _targets(simulator: str, folder: Path) -> str:
    """A scrape configuration; the simulator's cluster is the demo's default one."""
    groups = _call("GET", f"{simulator}/targets.json")
    for group in groups:
        group["labels"]["cluster"] = "default"
    path = folder / "targets.json"
    path.write_text(json.dumps(groups))
    return f"scrape_configs: [{{job_name: sim, file_sd_configs: [{{files: ['{path}']}}]}}]\n"


def _call(method: str, url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, method=method), timeout=30) as answer:
        return json.loads(answer.read() or b"null")


def _compare(when: str, ours: tuple[str, dict[str, str]], theirs: tuple[str, dict[str, str]]) -> int:
    at = time.time() // STEP * STEP - STEP
    differing = 0
    for query in QUERIES:
        here, there = _values(ours, query, at), _values(theirs, query, at)
        differing += here != there
        print(f"{when:13} {'differs' if here != there else 'same':8} {there!s:10} {query}")
        if here != there:
            print(f"{'':22} ours: {here}")
    return differing


def _values(source: tuple[str, dict[str, str]], query: str, at: float) -> list[str]:
    url, headers = source
    with urlopen(Request(url, urlencode({"query": query, "time": at}).encode(), headers), timeout=60) as answer:
        return sorted(row["value"][1] for row in json.load(answer)["data"]["result"])


if __name__ == "__main__":
    sys.exit(main())
