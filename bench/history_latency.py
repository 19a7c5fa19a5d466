"""How long history takes over HTTP: gpufleet's own API beside Prometheus and VictoriaMetrics, on the same samples.

Fill a database and the peers first (`history_fill.py`, then with `--open-minutes 60`; `history_peers.py fill` and
`open`), then run this in the same environment:

    python bench/history_latency.py [--data /tmp/gpufleet-peers] [--rounds 50] [--month]

All three are asked one after the other in every round, through one kept connection each. For bands the peers are asked
for p95 alone; ours always brings p5, p50 and p95. `--month` first adds roll-ups of the 29 days before, which the peers
have no samples of.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode, urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent))
import numpy as np  # noqa: E402
import promql_latency as promql  # noqa: E402

from gpufleet.store.models import Series  # noqa: E402
from gpufleet.store.rollups import add_rollups  # noqa: E402

DAY = 86_400.0
METRICS = {
    "gpu_power_watts": "POWER_USAGE",
    "gpu_temperature_celsius": "GPU_TEMP",
    "gpu_utilization_ratio": "GPU_UTIL",
    "gpu_sm_clock_hertz": "SM_CLOCK",
    "gpu_memory_used_bytes": "FB_USED",
    "gpu_memory_temperature_celsius": "MEMORY_TEMP",
}
POWER = "DCGM_FI_DEV_POWER_USAGE"


class Server:
    """One server and the connection to it."""

    def __init__(self, peer: promql.Peer) -> None:
        base = urlsplit(peer._base)
        self.name, self.headers = peer.name, peer._headers
        self.prefix = "/api/v1/"
        self.connection = HTTPConnection(base.hostname or "", base.port, timeout=120)

    def ask(self, path: str, **query: object) -> tuple[float, bytes]:
        """(milliseconds, body)."""
        began = time.perf_counter()
        self.connection.request("GET", f"{self.prefix}{path}?{urlencode(query)}", headers=self.headers)
        answer = self.connection.getresponse()
        body = answer.read()
        took = (time.perf_counter() - began) * 1000
        assert answer.status == 200, body[:300]
        return took, body


def iso(at: float) -> str:
    return datetime.fromtimestamp(at, tz=UTC).isoformat().replace("+00:00", "Z")


def questions(end: float, chance: random.Random) -> dict[str, tuple[tuple[str, dict[str, object]], ...]]:
    """What is asked: (ours, the peers')."""
    six = "|".join(f"DCGM_FI_DEV_{name}" for name in METRICS.values())
    day = {"start": end - DAY, "end": end}
    ours = {"start": iso(end - DAY), "end": iso(end)}
    past = end - chance.uniform(3 * 3600, DAY)
    return {
        "latest of one metric, 504 GPUs": (
            ("values", {"metric": "gpu_power_watts", "at": iso(end)}),
            ("query", {"query": POWER, "time": end}),
        ),
        "24 h x 6 metrics x 8 GPUs at 60 s": (
            ("series", {"metric": ",".join(METRICS), "node": "gpu-010", "step": 60, **ours}),
            ("query_range", {"query": f'{{__name__=~"{six}",Hostname="gpu-010"}}', "step": 60, **day}),
        ),
        "fleet p5, p50, p95 over 24 h at 300 s": (
            ("bands", {"metric": "gpu_power_watts", "step": 300, **ours}),
            ("query_range", {"query": f"quantile(0.95, {POWER})", "step": 300, **day}),
        ),
        "one metric of 504 GPUs at a random past minute": (
            ("values", {"metric": "gpu_power_watts", "at": iso(past)}),
            ("query", {"query": POWER, "time": past}),
        ),
    }  # fmt: skip


def month_of(end: float) -> dict[str, tuple[str, dict[str, object]]]:
    window = {"metric": "gpu_power_watts", "start": iso(end - 30 * DAY), "end": iso(end)}
    return {
        "30 days of one metric, 504 GPUs at 1 h": ("series", {**window, "step": 3600}),
        "fleet p5, p50, p95 over 30 days at 1 h": ("bands", {**window, "step": 3600}),
    }


def add_month(end: float) -> None:
    """Roll-ups of one metric for the 29 days before the samples."""
    chance = np.random.default_rng(5)
    first = (end - DAY) // DAY * DAY
    starts = first - 29 * DAY + 3600.0 * np.arange(29 * 24)
    of_target: dict[int, list[int]] = {}
    for series_id, target_id in Series.objects.filter(name=POWER).order_by("id").values_list("id", "target_id"):
        of_target.setdefault(target_id, []).append(series_id)
    for target_id, ids in of_target.items():
        mean = np.round(850 + chance.normal(0, 40, (starts.size, len(ids))), 3)
        count = np.full(mean.shape, 240)
        add_rollups(
            "1h", target_id, ids, starts, count=count, mean=mean, min=mean - 60, max=mean + 60, last=mean,
            now=datetime.now(tz=UTC),
        )  # fmt: skip


def told(name: str, times: list[float], size: int) -> None:
    p95 = statistics.quantiles(times, n=20)[-1]
    print(f"    {name:16} p50 {statistics.median(times):7.1f} ms  p95 {p95:7.1f} ms  {size:9,} bytes", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("/tmp/gpufleet-peers"))  # noqa: S108
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--month", action="store_true")
    given = parser.parse_args()
    starts = [json.loads(line)["start"] for line in (given.data / "record.jsonl").read_text().splitlines()]
    end = max(starts) + 3600 - 60
    if given.month:
        add_month(end)
    with ExitStack() as running:
        made = [
            make(running)
            for make in (
                promql._ours,
                lambda on: promql._prometheus(on, given.data),
                lambda on: promql._victoria(on, given.data),
            )
        ]
        servers = [Server(peer) for peer in made]
        for name in questions(end, random.Random(0)):
            chance = random.Random(1)
            taken: dict[str, list[float]] = {server.name: [] for server in servers}
            sizes: dict[str, int] = {}
            for number in range(given.rounds + 3):
                ours, theirs = questions(end, chance)[name]
                for server in servers:
                    path, query = ours if server is servers[0] else theirs
                    took, body = server.ask(path, **query)
                    sizes[server.name] = len(body)
                    if number >= 3:
                        taken[server.name].append(took)
            print(f"{name} (n={given.rounds})")
            for server_name, times in taken.items():
                told(server_name, times, sizes[server_name])
        for name, (path, query) in month_of(end).items() if given.month else ():
            asked = [servers[0].ask(path, **query) for _ in range(given.rounds)]
            print(f"{name} (n={given.rounds})")
            told("gpufleet", [took for took, _ in asked], len(asked[-1][1]))


if __name__ == "__main__":
    main()
