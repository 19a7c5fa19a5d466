"""The simulated machines: names, places and identities, all from the seed."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass

MODEL = "NVIDIA B200"
DRIVER = "580.95.05"
RACK_NODES = 8
SPARES = 3
MAX_NODES = 20_000
MAX_GPUS = 16
BUSES = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")


@dataclass(frozen=True)
class Gpu:
    slot: int
    uuid: str
    pci_bus_id: str


@dataclass(frozen=True)
class Node:
    index: int
    name: str
    rack: str
    switch: str
    spare: bool
    gpus: tuple[Gpu, ...]


def make_nodes(count: int, gpus: int, seed: int) -> tuple[Node, ...]:
    """`count` nodes of `gpus` GPUs each; the last three of a fleet of at least 16 are spares.

    Raises ValueError when a number is outside its limits.
    """
    if not 1 <= count <= MAX_NODES or not 1 <= gpus <= MAX_GPUS:
        raise ValueError(f"nodes must be 1 to {MAX_NODES} and gpus 1 to {MAX_GPUS}")
    spares = SPARES if count >= 2 * RACK_NODES else 0
    return tuple(_node(index, gpus, seed, index >= count - spares) for index in range(count))


def _node(index: int, gpus: int, seed: int, spare: bool) -> Node:
    rack = index // RACK_NODES + 1
    made = tuple(_gpu(index, slot, seed) for slot in range(gpus))
    return Node(index, f"gpu-{index + 1:03d}", f"R{rack:02d}", f"leaf-{rack:02d}", spare, made)


def _gpu(node: int, slot: int, seed: int) -> Gpu:
    digest = hashlib.sha256(f"{seed}/{node}/{slot}".encode()).digest()
    domain, place = divmod(slot, len(BUSES))
    return Gpu(slot, f"GPU-{uuid.UUID(bytes=digest[:16])}", f"{domain:08X}:{BUSES[place]}:00.0")
