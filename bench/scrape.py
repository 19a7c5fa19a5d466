"""CPU to fetch, read and store a million samples, beside Debian's Prometheus on the same simulated fleet, same window.

    python bench/scrape.py [--nodes 63] [--interval 15] [--minutes 5] [--alone --warm-up 60]

DATABASE_URL and BROKER_URL name the servers; the database is empty and PostgreSQL has nothing else to do.
Ours counts the scrape worker, beat and all of PostgreSQL's processes; detection has no worker here and is measured by
`bench/soak.py`. Prometheus counts its one process. Both scrape the whole time; the first minute is left out. `--alone`
leaves Prometheus out, for fleets that this machine cannot carry twice, and tells of cycles and memory twice a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psycopg

ROOT = Path(__file__).resolve().parent.parent
TICKS = os.sysconf("SC_CLK_TCK")
WORKER = ["-m", "celery", "-A", "gpufleet.celery", "worker", "-Q", "scrape", "--pool", "solo", "--without-gossip"]
WARM_UP_SECONDS = 60.0


def stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def cpu(pid: int) -> float:
    """CPU seconds of a process and of the children that it has waited for."""
    return sum(int(ticks) for ticks in stat(pid)[11:15]) / TICKS


def tree(pid: int) -> float:
    """CPU seconds of a process and all that descends from it."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return cpu(pid) + sum(tree(int(child)) for child in children)


def free_port() -> int:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return int(held.getsockname()[1])


@contextmanager
def started(command: list[str], log: Path) -> Iterator[int]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
        try:
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def wait_for(url: str, seconds: float = 60.0) -> bytes:
    until = time.monotonic() + seconds
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                body: bytes = answer.read()
                return body
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def prometheus_config(folder: Path, targets: Path, interval: int) -> Path:
    path = folder / "prometheus.yml"
    path.write_text(
        f"global: {{scrape_interval: {interval}s, scrape_timeout: {min(10, interval * 2 // 3) or 1}s}}\n"
        "scrape_configs:\n- job_name: fleet\n  file_sd_configs:\n"
        f"  - files: ['{targets}']\n"
    )
    return path


class Ours:
    """Our process group: the worker, beat, and PostgreSQL with each of its processes."""

    name = "gpufleet"

    def __init__(self, worker: int, beat: int, database: psycopg.Connection[tuple[object, ...]]) -> None:
        self.database = database
        self.pids = {"worker": worker, "beat": beat}
        self.postmaster = int(stat(database.info.backend_pid)[1])

    def seconds(self) -> dict[str, float]:
        spent = {part: tree(pid) for part, pid in self.pids.items()}
        return spent | {f"postgres {name}": seconds for name, seconds in self._servers().items()}

    def _servers(self) -> dict[str, float]:
        """CPU seconds by kind of server process; the postmaster's own include those of backends that ended."""
        spent = {"postmaster": cpu(self.postmaster)}
        children = Path(f"/proc/{self.postmaster}/task/{self.postmaster}/children").read_text().split()
        for child in children:
            title = Path(f"/proc/{child}/cmdline").read_text().split("\0")[0].split()
            name = " ".join(title[1:3]).removesuffix(" postgres") if title[1:2] != ["postgres"] else "backends"
            spent[name] = spent.get(name, 0.0) + cpu(int(child))
        return spent

    def samples(self) -> int:
        row = self.database.execute("SELECT coalesce(sum(accepted), 0) FROM store_frame").fetchone()
        return int(str(row[0])) if row else 0


class Prometheus:
    """Debian's Prometheus."""

    name = "prometheus"

    def __init__(self, pid: int, port: int) -> None:
        self.pid, self.port = pid, port

    def seconds(self) -> dict[str, float]:
        return {"all": tree(self.pid)}

    def samples(self) -> int:
        text = wait_for(f"http://127.0.0.1:{self.port}/metrics").decode()
        lines = [line for line in text.splitlines() if line.startswith("prometheus_tsdb_head_samples_appended_total")]
        return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))


CYCLES = """SELECT count(*), count(*) FILTER (WHERE shards_scraped = shards), coalesce(sum(missed_before), 0),
    coalesce(sum(shards_scraped), 0), coalesce(sum(shards), 0)
    FROM scrape_cycle WHERE started_at < now() - interval '1 min'"""


def rss(pid: int) -> float:
    """Resident megabytes of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def watch(ours: Ours, simulator: int, seconds: float) -> None:
    """Says every half minute how the fleet is kept up with."""
    until = time.monotonic() + seconds
    samples, spent, before = ours.samples(), sum(ours.seconds().values()), time.monotonic()
    theirs = tree(simulator)
    while time.monotonic() < until:
        time.sleep(min(30.0, until - time.monotonic()))
        counts = ours.database.execute(CYCLES).fetchone()
        assert counts is not None
        wall = time.monotonic() - before
        got, cpu_now, sim_now = ours.samples(), sum(ours.seconds().values()), tree(simulator)
        print(
            f"cycles {counts[0]}, whole {counts[1]}, never begun {counts[2]}, shards {counts[3]} of {counts[4]}; "
            f"{(got - samples) / wall:,.0f} samples/s, ours {(cpu_now - spent) / wall:.2f} cores, simulator "
            f"{(sim_now - theirs) / wall:.2f}; worker {rss(ours.pids['worker']):.0f} MB",
            flush=True,
        )
        samples, spent, theirs, before = got, cpu_now, sim_now, time.monotonic()


def measure(parts: list[Ours | Prometheus], minutes: float, warm_up: float) -> None:
    time.sleep(warm_up)
    before = [(part.seconds(), part.samples()) for part in parts]
    time.sleep(minutes * 60)
    print(f"{'':12} {'samples':>12} {'CPU s':>8} {'CPU s per million':>18}")
    rates = []
    for part, (seconds, samples) in zip(parts, before, strict=True):
        by_part = {name: spent - seconds.get(name, 0.0) for name, spent in part.seconds().items()}
        spent, got = sum(by_part.values()), part.samples() - samples
        rates.append(spent / got * 1e6)
        print(f"{part.name:12} {got:12,} {spent:8.2f} {rates[-1]:18.3f}")
        if len(by_part) > 1:
            for name, seconds in sorted(by_part.items(), key=lambda pair: -pair[1]):
                print(f"  {name:24} {seconds:8.2f} {seconds / got * 1e6:18.3f}")
    if len(rates) > 1:
        print(f"ours / theirs: {rates[0] / rates[1]:.2f}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=63)
    parser.add_argument("--interval", type=int, default=15)
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_SECONDS)
    options = parser.parse_args()
    prometheus = shutil.which("prometheus")
    if prometheus is None or "DATABASE_URL" not in os.environ:
        return int(bool(sys.stderr.write("needs prometheus (apt), DATABASE_URL and BROKER_URL\n")))
    os.environ["GPUFLEET_INTERVAL_SECONDS"] = str(options.interval)
    python = sys.executable
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        simulator, web = free_port(), free_port()
        command = [python, "-m", "gpufleet.simulator", "--port", str(simulator), "--nodes", str(options.nodes)]
        simulator_pid = stack.enter_context(started(command, folder / "simulator.log"))
        targets = folder / "targets.json"
        targets.write_text(json.dumps(json.loads(wait_for(f"http://127.0.0.1:{simulator}/targets.json", 600))))
        for arguments in (["migrate", "-v0"], ["import_targets", str(targets)]):
            subprocess.run([python, "manage.py", *arguments], cwd=ROOT, check=True)
        worker = stack.enter_context(started([python, *WORKER], folder / "worker.log"))
        beat_command = [python, "-m", "celery", "-A", "gpufleet.celery", "beat", "-s", str(folder / "beat")]
        beat = stack.enter_context(started(beat_command, folder / "beat.log"))
        database = stack.enter_context(psycopg.connect(os.environ["DATABASE_URL"], autocommit=True))
        ours = Ours(worker, beat, database)
        if options.alone:
            watch(ours, simulator_pid, options.warm_up)
            print("warmed up")
            watch(ours, simulator_pid, options.minutes * 60)
            return 0
        config = prometheus_config(folder, targets, options.interval)
        peer = [
            *(prometheus, f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}"),
            f"--web.listen-address=127.0.0.1:{web}",
        ]
        peer_pid = stack.enter_context(started(peer, folder / "prometheus.log"))
        wait_for(f"http://127.0.0.1:{web}/-/ready")
        measure([ours, Prometheus(peer_pid, web)], options.minutes, options.warm_up)
    return 0


if __name__ == "__main__":
    sys.exit(main())
