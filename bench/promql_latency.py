"""How long the usual queries of a dashboard take: gpufleet, Prometheus and VictoriaMetrics on the same samples.

Fill a database and the peers first, then run this in the same environment:

    python bench/history_fill.py && python bench/history_peers.py fill --data /tmp/gpufleet-peers
    python bench/promql_latency.py [--data /tmp/gpufleet-peers] [--rounds 30]

All three are asked over HTTP without compression, one after the other in every round; VictoriaMetrics' cache of
results is off, since only it would answer from one.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import Request, urlopen

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpufleet.settings")

import django  # noqa: E402

django.setup()

from prometheus_server import free_port, wait_for  # noqa: E402

from gpufleet.accounts.models import User  # noqa: E402
from gpufleet.accounts.tokens import create_token  # noqa: E402

HOUR = 3600.0
SIX = ("GPU_TEMP", "POWER_USAGE", "GPU_UTIL", "SM_CLOCK", "FB_USED", "MEMORY_TEMP")
ENERGY, TEMP = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_TEMP"
# what: [(query, hours, step)]; a step of 0 is one instant.
QUERIES: dict[str, list[tuple[str, float, float]]] = {
    "latest value of all GPUs": [(TEMP, 0, 0)],
    "24 h x 6 metrics x 8 GPUs at 60 s": [(f'DCGM_FI_DEV_{name}{{Hostname="gpu-001"}}', 24, 60) for name in SIX],
    "fleet p95 over 24 h at 300 s": [(f"quantile(0.95, {TEMP})", 24, 300)],
    "panel of all GPUs, 15 min at 15 s": [(f'{TEMP}{{instance=~"gpu-.+:9400"}}', 0.25, 15)],
    "panel of all GPUs, 6 h at 60 s": [(TEMP, 6, 60)],
    "power by node from energy, 6 h at 60 s": [(f"sum by (Hostname) (rate({ENERGY}[5m]))", 6, 60)],
    "hottest by node, 24 h at 300 s": [(f"max by (Hostname) (max_over_time({TEMP}[5m]))", 24, 300)],
}


class Peer:
    def __init__(self, name: str, base: str, headers: dict[str, str]) -> None:
        self.name, self._base, self._headers = name, base, headers

    def ask(self, query: str, start: float, end: float, step: float) -> tuple[float, list[Any]]:
        """(seconds, result)."""
        form: dict[str, Any] = {"query": query, "time": end}
        if step:
            form = {"query": query, "start": start, "end": end, "step": step}
        path = "query_range" if step else "query"
        request = Request(self._base + path, urlencode(form).encode(), self._headers)
        began = time.perf_counter()
        with urlopen(request, timeout=120) as answer:
            body = answer.read()
        return time.perf_counter() - began, json.loads(body)["data"]["result"]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--data", type=Path, default=Path("/tmp/gpufleet-peers"))  # noqa: S108
    options.add_argument("--rounds", type=int, default=30)
    chosen = options.parse_args()
    starts = [json.loads(line)["start"] for line in (chosen.data / "record.jsonl").read_text().splitlines()]
    end = max(starts) + 2 * HOUR - 30
    with ExitStack() as running:
        peers = [_ours(running), _prometheus(running, chosen.data), _victoria(running, chosen.data)]
        for what, queries in QUERIES.items():
            _compare(what, queries, peers, end, chosen.rounds)


def _compare(what: str, queries: list[tuple[str, float, float]], peers: list[Peer], end: float, rounds: int) -> None:
    taken: dict[str, list[float]] = {peer.name: [] for peer in peers}
    sizes: dict[str, tuple[int, int]] = {}
    for round_number in range(rounds + 1):
        for peer in peers:
            seconds, series, points = 0.0, 0, 0
            for query, hours, step in queries:
                took, result = peer.ask(query, end - hours * HOUR, end, step)
                seconds += took
                series += len(result)
                points += sum(len(row.get("values", [0])) for row in result)
            sizes[peer.name] = series, points
            if round_number:  # the first one warms up
                taken[peer.name].append(seconds * 1000)
    print(f"{what} (n={rounds})")
    for name, times in taken.items():
        p95 = statistics.quantiles(times, n=20)[-1]
        print(
            f"    {name:16} p50 {statistics.median(times):7.1f} ms  p95 {p95:7.1f} ms  "
            f"{sizes[name][0]} series, {sizes[name][1]} points",
            flush=True,
        )


def _started(running: ExitStack, command: list[str], ready: str) -> None:
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    running.callback(lambda: (process.terminate(), process.wait(30)))
    wait_for(ready, 60)


def _ours(running: ExitStack) -> Peer:
    user, _ = User.objects.get_or_create(username="bench", defaults={"role": "viewer"})
    token = create_token(user, now=datetime.now(tz=UTC), days=1, actor="bench")
    port = free_port()
    server = [sys.executable, "-m", "gunicorn", "gpufleet.wsgi", "--worker-class", "gthread", "--threads", "4"]
    _started(running, [*server, "--bind", f"127.0.0.1:{port}"], f"http://127.0.0.1:{port}/healthz")
    return Peer("gpufleet", f"http://127.0.0.1:{port}/prometheus/api/v1/", {"Authorization": f"Bearer {token}"})


def _prometheus(running: ExitStack, data: Path) -> Peer:
    config = data / "prometheus-latency.yml"
    config.write_text("global: {scrape_interval: 15s}\n")
    port = free_port()
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}/prometheus"]
    command += ["--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}"]
    _started(running, command, f"http://127.0.0.1:{port}/-/ready")
    return Peer("Prometheus", f"http://127.0.0.1:{port}/api/v1/", {})


def _victoria(running: ExitStack, data: Path) -> Peer:
    port = free_port()
    command = ["victoria-metrics", f"-storageDataPath={data}/victoria", f"-httpListenAddr=127.0.0.1:{port}"]
    command += ["-retentionPeriod=10y", "-search.latencyOffset=0s", "-search.disableCache"]
    _started(running, command, f"http://127.0.0.1:{port}/health")
    return Peer("VictoriaMetrics", f"http://127.0.0.1:{port}/api/v1/", {})


if __name__ == "__main__":
    main()
