"""`python -m gpufleet.simulator --port P`: serves the simulated fleet until TERM or INT."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path

from gpufleet.simulator.faults import Fault, FaultError
from gpufleet.simulator.fleet import Node, make_nodes
from gpufleet.simulator.schedule import default_rate, read_script, seeded
from gpufleet.simulator.server import listen
from gpufleet.simulator.world import World

SCHEDULED_DAYS = 60


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m gpufleet.simulator", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--nodes", type=int, default=63)
    parser.add_argument("--gpus", type=int, default=8, help="GPUs of each node")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=float, help="Unix seconds the seeded faults begin at (default: now)")
    parser.add_argument(
        "--faults-per-day", type=float, help="seeded faults of the whole fleet (default: a real fleet's)"
    )
    parser.add_argument(
        "--script", type=Path, help="JSON list of faults in the form of POST /inject, instead of seeded"
    )
    return parser.parse_args(arguments)


def build(given: argparse.Namespace) -> World:
    """The world that the options describe. Raises FaultError or ValueError."""
    if given.seed < 0:
        raise ValueError("the seed must not be negative")
    nodes = make_nodes(given.nodes, given.gpus, given.seed)
    return World(given.nodes, given.gpus, given.seed, _faults(given, nodes))


def _faults(given: argparse.Namespace, nodes: tuple[Node, ...]) -> list[Fault]:
    if given.script is not None:
        return read_script(given.script, nodes)
    per_day = default_rate(given.nodes * given.gpus) if given.faults_per_day is None else given.faults_per_day
    start = time.time() if given.start is None else given.start
    return seeded(nodes, given.seed, per_day, start, SCHEDULED_DAYS)


async def serve(world: World, host: str, port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server, connections = await listen(world, host, port)
    address = server.sockets[0].getsockname()
    print(f"simulator: http://{address[0]}:{address[1]}", flush=True)
    await stop.wait()
    server.close()
    for connection in list(connections):
        connection.transport.abort()


def main() -> int:
    given = parse()
    try:
        asyncio.run(serve(build(given), given.host, given.port))
    except (FaultError, ValueError, OSError, OverflowError) as error:
        print(f"simulator: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
