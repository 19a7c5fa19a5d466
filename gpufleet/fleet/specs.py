"""What is handed to the inventory: targets to watch, and what a scrape of a node told."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpufleet.catalogue.devices import Device


class FleetError(ValueError):
    """What was handed in cannot be taken; the message is one sentence for the person who did."""


@dataclass(frozen=True, slots=True)
class TargetSpec:
    """One URL to scrape. `labels` are those of the file, without the ones that start with `__`.

    `access` names the job of the sources file that says how to ask; empty: without credentials.
    """

    url: str
    node: str
    cluster: str
    rack: str = ""
    switch: str = ""
    job: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    access: str = ""


@dataclass(frozen=True, slots=True)
class WindowSpec:
    """A maintenance window: node name, Unix seconds `[starts_at, ends_at)`, reason."""

    node: str
    starts_at: float
    ends_at: float
    reason: str


# What a GPU runs, as sorted pairs of the catalogue's words: (("namespace", "r"), ("pod", "train-1")).
Workload = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class BoardSeen:
    """A board that a good scrape listed, under every `key` that its lines use, with what runs on it."""

    keys: frozenset[str]
    device: Device
    workloads: frozenset[Workload]


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """What all good scrapes of a node told in one cycle. A node without a good GPU scrape is not told about."""

    node_id: int
    boards: tuple[BoardSeen, ...]
