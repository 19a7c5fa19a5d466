"""Reads of the inventory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil

from django.db.models import F, Q

from gpufleet.fleet.models import Cluster, MaintenanceWindow, Node, Placement, Target


@dataclass(frozen=True, slots=True)
class ActiveTarget:
    """A target that is to be scraped."""

    id: int
    node_id: int
    node: str
    url: str
    job: str
    kind: str
    trusted: bool
    access: str = ""


@dataclass(frozen=True, slots=True)
class PlacedGpu:
    """A GPU in the slot where it was last seen."""

    id: int
    uuid: str
    model: str
    slot: int
    pci_bus_id: str
    since: datetime


@dataclass(frozen=True, slots=True)
class InventoryNode:
    """A node with the GPUs that are placed in it, in slot order. `expected_gpus` is None when nobody knows."""

    id: int
    name: str
    rack: str | None
    switch: str | None
    expected_gpus: int | None
    gpus: tuple[PlacedGpu, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """The nodes of a cluster that are not retired, by id."""

    cluster_id: int
    nodes: Mapping[int, InventoryNode]


_ACTIVE = ("id", "node_id", "node__name", "url", "job", "kind", "trusted", "access")


def active_targets(cluster_id: int, shard: int = 0, shards: int = 1) -> list[ActiveTarget]:
    """The targets of a cluster, or of one of its `shards`. All targets of a node are in the same shard; one query."""
    if not 0 <= shard < shards:
        raise ValueError(f"there is no shard {shard} of {shards}")
    found = Target.objects.filter(cluster_id=cluster_id, removed_at=None, node__retired_at=None)
    if shards > 1:
        found = found.annotate(place=F("node_id") % shards).filter(place=shard)
    return [ActiveTarget(*row) for row in found.order_by("node_id", "id").values_list(*_ACTIVE, named=False)]


def active_target(target_id: int) -> ActiveTarget | None:
    """One target, None when it is not to be scraped any more."""
    row = Target.objects.filter(pk=target_id, removed_at=None, node__retired_at=None).values_list(*_ACTIVE).first()
    return None if row is None else ActiveTarget(*row)


def shard_count(cluster_id: int, targets_a_shard: int) -> int:
    """How many shards the targets of a cluster make; 0 without targets."""
    count = Target.objects.filter(cluster_id=cluster_id, removed_at=None, node__retired_at=None).count()
    return ceil(count / targets_a_shard)


def inventory(cluster: Cluster) -> Inventory:
    """Nodes and the GPUs placed in them. Two queries."""
    placed: dict[int, list[PlacedGpu]] = {}
    for place in (
        Placement.objects.filter(node__cluster=cluster, ends_at=None).select_related("gpu").order_by("slot", "id")
    ):
        placed.setdefault(place.node_id, []).append(
            PlacedGpu(place.gpu_id, place.gpu.uuid, place.gpu.model, place.slot, place.pci_bus_id, place.starts_at)
        )
    nodes = Node.objects.filter(cluster=cluster, retired_at=None).select_related("rack", "switch").order_by("id")
    return Inventory(
        cluster.id,
        {
            node.id: InventoryNode(
                id=node.id,
                name=node.name,
                rack=node.rack.name if node.rack else None,
                switch=node.switch.name if node.switch else None,
                expected_gpus=node.expected_gpus,
                gpus=tuple(placed.get(node.id, ())),
            )
            for node in nodes
        },
    )


def windows_between(node_ids: Sequence[int], start: datetime, end: datetime) -> list[MaintenanceWindow]:
    """Maintenance windows of these nodes that overlap `[start, end)`, by start. One query."""
    overlap = Q(starts_at__lt=end) & Q(ends_at__gt=start)
    return list(MaintenanceWindow.objects.filter(overlap, node_id__in=node_ids).order_by("starts_at", "id"))


def list_windows(
    cluster: Cluster, *, at: datetime | None = None, before: int | None = None, limit: int | None = None
) -> list[MaintenanceWindow]:
    """Newest first; with `at` those that hold then, with `before` those made before the one with that key."""
    held = Q() if at is None else Q(starts_at__lte=at, ends_at__gt=at)
    if before is not None:
        held &= Q(pk__lt=before)
    found = MaintenanceWindow.objects.filter(held, node__cluster=cluster).select_related("node__cluster")
    return list(found.order_by("-id")[:limit])
