"""`/federate` of Debian's Prometheus and VictoriaMetrics as the source of a fleet, beside scraping it directly.

    python bench/federation.py [--nodes 63] [--interval 5] [--minutes 2]

DATABASE_URL and BROKER_URL name the servers; the database is empty. Both peers scrape a simulated fleet; the product
reads it out of each of them and directly, into a cluster each, in the same rounds. Prints how many nodes, GPUs and
samples each way shows, whether the values are those that the peer holds, what a round costs, and then takes one node's
exporter and one GPU away and says when each way notices.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpufleet.settings")

import django

django.setup()

from django.core.management import call_command  # noqa: E402

from bench.scrape import free_port, started, tree, wait_for  # noqa: E402
from gpufleet.core.times import utc_now  # noqa: E402
from gpufleet.fleet.actions import import_targets  # noqa: E402
from gpufleet.fleet.models import Cluster  # noqa: E402
from gpufleet.fleet.queries import active_targets  # noqa: E402
from gpufleet.pipeline.sources import _fetch  # noqa: E402
from gpufleet.scrape.access import PLAIN  # noqa: E402
from gpufleet.scrape.actions import store_shard  # noqa: E402
from gpufleet.scrape.collector import Collector  # noqa: E402
from gpufleet.scrape.cycle import CycleResult  # noqa: E402
from gpufleet.scrape.discovery import parse_file_sd  # noqa: E402
from gpufleet.scrape.federation import listing_url, targets_of  # noqa: E402


class Way:
    """One way to the fleet's samples: a cluster of its own with a collector of its own."""

    def __init__(self, name: str, interval: float, server_pid: int | None) -> None:
        self.name = name
        self.interval = interval
        self.pid = server_pid
        self.cluster, _ = Cluster.objects.get_or_create(name=name)
        self.collector = Collector(interval_seconds=interval, max_bytes=16 << 20, max_samples=50_000)
        self.ours: list[float] = []
        self.theirs: list[float] = []
        self.last: CycleResult = CycleResult()

    def round(self, cycle: int) -> None:
        before, server = time.process_time(), tree(self.pid) if self.pid else 0.0
        now = utc_now()
        targets = active_targets(self.cluster.id)
        self.last = self.collector.scrape(self.cluster, targets, cycle, now)
        store_shard(None, 0, self.last, utc_now())
        self.ours.append(time.process_time() - before)
        self.theirs.append(tree(self.pid) - server if self.pid else 0.0)

    def shows(self) -> tuple[int, int, int, int]:
        """(targets up, targets, GPUs listed, samples) of the last round."""
        frames = self.last.frames
        reader = self.collector._readers[self.cluster.id]
        gpus = sum(len(m.plan.boards) for f in frames if f.ok and (m := reader._targets[f.target_id]).plan)
        return sum(f.ok for f in frames), len(frames), gpus, sum(f.accepted for f in frames)


def peers(stack: ExitStack, folder: Path, targets: Path, interval: int) -> dict[str, tuple[str, int]]:
    config = folder / "prometheus.yml"
    config.write_text(
        f"global: {{scrape_interval: {interval}s, scrape_timeout: {max(1, interval * 2 // 3)}s}}\n"
        f"scrape_configs:\n- job_name: fleet\n  file_sd_configs:\n  - files: ['{targets}']\n"
        "  relabel_configs:\n  - {source_labels: [node, __address__], separator: ':', regex: '([^:]+):.*',"
        " replacement: '${1}', target_label: instance}\n"
    )
    found = {}
    for name in ("prometheus", "victoria-metrics"):
        port = free_port()
        command = {
            "prometheus": [
                *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"),
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            "victoria-metrics": [
                *("victoria-metrics", f"-promscrape.config={config}", f"-storageDataPath={folder / 'vm'}"),
                f"-httpListenAddr=127.0.0.1:{port}",
            ],
        }[name]
        pid = stack.enter_context(started(command, folder / f"{name}.log"))
        wait_for(f"http://127.0.0.1:{port}/metrics")
        found[name] = f"http://127.0.0.1:{port}", pid
    return found


def inject(simulator: str, **fault: object) -> None:
    request = urllib.request.Request(f"{simulator}/inject", json.dumps(fault).encode(), method="POST")
    urllib.request.urlopen(request, timeout=5).close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=63)
    parser.add_argument("--interval", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=2)
    options = parser.parse_args()
    if not shutil.which("prometheus") or not shutil.which("victoria-metrics"):
        return int(bool(sys.stderr.write("needs prometheus and victoria-metrics (apt)\n")))
    call_command("migrate", verbosity=0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        simulator = f"http://127.0.0.1:{(port := free_port())}"
        command = [sys.executable, "-m", "gpufleet.simulator", "--port", str(port), "--nodes", str(options.nodes)]
        stack.enter_context(started([*command, "--faults-per-day", "0"], folder / "simulator.log"))
        listing = wait_for(f"{simulator}/targets.json").decode()
        (folder / "targets.json").write_text(listing)
        ways = [Way("direct", options.interval, None)]
        specs = parse_file_sd(listing, is_json=True)
        import_targets(specs, source="x", actor="x", now=utc_now(), trusted=True, cluster=ways[0].cluster)
        for name, (url, pid) in peers(stack, folder, folder / "targets.json", options.interval).items():
            time.sleep(3 * options.interval)
            way = Way(name, options.interval, pid)
            specs = targets_of(url, "{}", _fetch(listing_url(url, "{}"), PLAIN), "")
            specs = [spec for spec in specs if spec.job != name]
            import_targets(specs, source=name, actor="x", now=utc_now(), trusted=True, cluster=way.cluster)
            ways.append(way)
        rounds = int(options.minutes * 60 / options.interval)
        cycle = int(time.time() // options.interval)
        for _ in range(rounds):
            cycle += 1
            time.sleep(max(0.0, cycle * options.interval - time.time()))
            for way in ways:
                way.round(cycle)
        for way in ways:
            up, total, gpus, samples = way.shows()
            ours, theirs = statistics.median(way.ours[3:]), statistics.median(way.theirs[3:])
            print(
                f"{way.name:17} {up}/{total} targets up, {gpus} GPUs, {samples:,} samples; a round (median of "
                f"{rounds - 3}): ours {ours * 1000:.0f} ms CPU, the server {theirs * 1000:.0f} ms"
            )
        names = sorted({spec.node for spec in parse_file_sd(listing, is_json=True)})
        inject(simulator, node=names[1], fault="exporter_down", mode="refused")
        inject(simulator, node=names[2], fault="gpu_lost", slot=3)
        began, noticed = time.time(), {}
        before = {way.name: way.shows() for way in ways}
        while time.time() - began < 330 and len(noticed) < 2 * len(ways):
            cycle += 1
            time.sleep(max(0.0, cycle * options.interval - time.time()))
            for way in ways:
                way.round(cycle)
                up, _, gpus, _ = way.shows()
                lost = before[way.name][2] - gpus
                if up < before[way.name][0]:
                    noticed.setdefault((way.name, "exporter down"), time.time() - began)
                if lost in {1, 9}:
                    noticed.setdefault((way.name, "GPU gone"), time.time() - began)
        for (name, what), seconds in sorted(noticed.items()):
            print(f"{name:17} {what}: noticed after {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
