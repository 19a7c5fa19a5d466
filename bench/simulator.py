"""How many bodies a second the simulator renders, and serves over HTTP: `python bench/simulator.py [--rounds N]`.

Rates are bodies per CPU second of the simulator (what one core can do, whatever else runs) and per second of the clock.
The start of the serving process is taken off by a first run that serves nothing.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpufleet.scrape.fetch import Fetcher
from gpufleet.simulator.world import EXPORTERS, World

START = 1_770_000_000.0
STEP = 15.0


def render(world: World, cycle: int) -> tuple[float, float]:
    """Bodies per CPU second and per second for one cycle of the fleet."""
    wall, cpu = time.perf_counter(), time.process_time()
    for name in world.nodes:
        for exporter in EXPORTERS:
            world.answer(name, exporter, START + cycle * STEP)
    bodies = len(world.nodes) * len(EXPORTERS)
    return bodies / (time.process_time() - cpu), bodies / (time.perf_counter() - wall)


@dataclass(frozen=True)
class Page:
    """One body to ask for."""

    id: int
    url: str
    trusted: bool = True
    access: str = ""


def fetch(url: str, names: list[str], rounds: int) -> list[float]:
    """Bodies per second of each cycle, all asked for together by the product's own client."""
    pages = [f"{url}/nodes/{name}/{exporter}/metrics" for name in names for exporter in EXPORTERS]
    rates = []
    with closing(Fetcher(max_bytes=1 << 22, inside=[])) as fetcher:
        for cycle in range(rounds):
            begun = time.perf_counter()
            query = f"t={START + cycle * STEP}"
            assert all(
                answer.body for answer in fetcher.fetch([Page(n, page) for n, page in enumerate(pages)], 30.0, query)
            )
            rates.append(len(pages) / (time.perf_counter() - begun))
    return rates


def serve(names: list[str], rounds: int) -> tuple[float, list[float]]:
    """CPU seconds of a serving process, and the rates its client saw."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "gpufleet.simulator", "--port", "0", "--faults-per-day", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip().removeprefix("simulator: ")
        rates = fetch(url, names, rounds)
        process.terminate()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    world = World()
    names = list(world.nodes)
    render(world, -1)  # fills the templates
    rendered = [render(world, cycle) for cycle in range(rounds)]
    bodies = len(names) * len(EXPORTERS)
    cpu, wall = (statistics.median(rates) for rates in zip(*rendered, strict=True))
    print(f"render only: n={rounds} cycles of {bodies}, median {cpu:,.0f} bodies/CPU s, {wall:,.0f} bodies/s")
    idle, _ = serve(names, 0)
    spent, rates = serve(names, rounds)
    rate, clock = rounds * bodies / (spent - idle), statistics.median(rates)
    print(f"over HTTP: n={rounds} cycles of {bodies}, {rate:,.0f} bodies/CPU s, median {clock:,.0f} bodies/s")


if __name__ == "__main__":
    main()
