"""How many bodies a second the simulator renders, and serves over HTTP: `python bench/simulator.py [--rounds N]`."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import time

import aiohttp

from gpufleet.simulator.server import listen
from gpufleet.simulator.world import EXPORTERS, World

START = 1_770_000_000.0
STEP = 15.0


def render(world: World, cycle: int) -> float:
    begun = time.perf_counter()
    for name in world.nodes:
        for exporter in EXPORTERS:
            world.answer(name, exporter, START + cycle * STEP)
    return len(world.nodes) * len(EXPORTERS) / (time.perf_counter() - begun)


async def fetch(world: World, rounds: int) -> list[float]:
    server, _ = await listen(world, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    rates = []
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def one(name: str, exporter: str, t: float) -> None:
            async with session.get(f"/nodes/{name}/{exporter}/metrics?t={t}") as answer:
                await answer.read()

        for cycle in range(rounds):
            begun = time.perf_counter()
            await asyncio.gather(*(one(n, e, START + cycle * STEP) for n in world.nodes for e in EXPORTERS))
            rates.append(len(world.nodes) * len(EXPORTERS) / (time.perf_counter() - begun))
    server.close()
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    world = World()
    rendered = [render(world, cycle) for cycle in range(rounds)]
    served = asyncio.run(fetch(world, rounds))
    for name, rates in (("render only", rendered), ("HTTP, client on the same core", served)):
        print(
            f"{name}: n={len(rates)} cycles of 126, median {statistics.median(rates):,.0f} bodies/s, least {min(rates):,.0f}"
        )


if __name__ == "__main__":
    main()
