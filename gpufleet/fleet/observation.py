"""What scrapes tell about boards: GPUs, the slots they are in, what runs on them, and which driver they have.

Called only when something may have changed. It locks the nodes, reads how they stand, and writes the difference, so it
may run twice or at the same time anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256

from django.db import connection, transaction
from django.db.models import Q

from gpufleet.catalogue.devices import Device
from gpufleet.fleet.models import Assignment, Cluster, Gpu, Node, NodeEvent, Placement
from gpufleet.fleet.placing import Placed, Seat, place_boards
from gpufleet.fleet.specs import BoardSeen, NodeSeen, Workload

BRIDGED_SCRAPES = 2
_FACTS = {"model": 127, "vendor": 31, "serial": 63, "driver_version": 63}  # with the lengths of their columns


@dataclass(frozen=True, slots=True)
class Observed:
    """`gpu_ids`: (node id, key) to the GPU. `unsettled`: nodes that have to be told about again in the next cycle."""

    gpu_ids: Mapping[tuple[int, str], int]
    unsettled: frozenset[int]


@dataclass(slots=True)
class _Changes:
    """The rows to write, so that each kind goes out in one statement."""

    seated: list[Placement] = field(default_factory=list)
    ended: list[Placement] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    started: list[Assignment] = field(default_factory=list)
    moved: list[Assignment] = field(default_factory=list)
    events: list[NodeEvent] = field(default_factory=list)
    facts: list[Gpu] = field(default_factory=list)


def gpu_uuid(node: str, device: Device) -> str:
    """What a GPU is known by in its cluster: its UUID, else `<node>/<pci bus id>`, else `<node>/<index>`."""
    return device.uuid or f"{node}/{device.pci_bus_id or device.index or 0}"


def observe_devices(cluster: Cluster, seen: Sequence[NodeSeen], now: datetime, *, interval_seconds: float) -> Observed:
    """Takes in what good scrapes of some nodes told. About ten statements, however many nodes there are.

    A GPU stays in its slot until it is seen in another one or another board is on its bus; not being listed ends
    nothing. A pod whose labels vanish ends only when they stay away for more than two scrapes or another one runs.
    """
    with transaction.atomic():
        ids = [told.node_id for told in seen]
        locked = Node.objects.filter(cluster=cluster, id__in=ids).order_by("id").select_for_update()
        nodes = {node.id: node for node in locked}
        told = [one for one in seen if one.node_id in nodes]
        gpus = _gpus(cluster, told, nodes, now)
        boards = {
            one.node_id: {gpus[gpu_uuid(nodes[one.node_id].name, b.device)]: b for b in one.boards} for one in told
        }
        changes = _Changes()
        _seat(boards, now, changes)
        _expect(boards, nodes, changes)
        _note_facts(boards, now, changes)
        unsettled = _assign(boards, now, timedelta(seconds=interval_seconds), changes)
        _write(changes)
    return Observed(
        {(node_id, key): gpu.id for node_id, held in boards.items() for gpu, b in held.items() for key in b.keys},
        frozenset(unsettled),
    )


Boards = Mapping[int, Mapping[Gpu, BoardSeen]]


def _gpus(cluster: Cluster, told: Iterable[NodeSeen], nodes: Mapping[int, Node], now: datetime) -> dict[str, Gpu]:
    """The GPUs by UUID; those never seen are made."""
    wanted = {gpu_uuid(nodes[one.node_id].name, b.device): b.device for one in told for b in one.boards}
    known = set(Gpu.objects.filter(cluster=cluster, uuid__in=wanted).values_list("uuid", flat=True))
    fresh = [
        Gpu(cluster=cluster, uuid=uuid, first_seen_at=now, last_seen_at=now, model=device.model[:127])
        for uuid, device in sorted(wanted.items())
        if uuid not in known
    ]
    if fresh:
        Gpu.objects.bulk_create(fresh, ignore_conflicts=True, batch_size=2_000)
    found = Gpu.objects.filter(cluster=cluster, uuid__in=wanted).order_by("id").select_for_update(no_key=True)
    return {gpu.uuid: gpu for gpu in found}


def _seat(boards: Boards, now: datetime, changes: _Changes) -> None:
    gpu_ids = {gpu.id for held in boards.values() for gpu in held}
    open_now = Placement.objects.filter(Q(gpu_id__in=gpu_ids) | Q(node_id__in=list(boards)), ends_at=None)
    rows = {place.gpu_id: place for place in open_now}
    before = {gpu_id: Seat(row.node_id, row.slot, row.pci_bus_id) for gpu_id, row in rows.items()}
    listed = {
        node_id: [Placed(gpu.id, b.device.index, b.device.pci_bus_id) for gpu, b in held.items()]
        for node_id, held in boards.items()
    }
    for gpu_id, seat in place_boards(before, listed).items():
        old = rows.get(gpu_id)
        if old is not None:
            _end(old, now, changes)
        if seat is not None:
            changes.seated.append(
                Placement(
                    gpu_id=gpu_id, node_id=seat.node_id, slot=seat.slot, pci_bus_id=seat.pci_bus_id, starts_at=now
                )
            )


def _end(place: Placement, now: datetime, changes: _Changes) -> None:
    """Half-open intervals have a length; one that would have none never was."""
    if place.starts_at >= now:
        changes.dropped.append(place.id)
    else:
        place.ends_at = now
        changes.ended.append(place)


def _expect(boards: Boards, nodes: Mapping[int, Node], changes: _Changes) -> None:
    """The largest number of boards seen is how many a node should have, unless a person said so."""
    for node_id, held in boards.items():
        node = nodes[node_id]
        if not node.expected_gpus_by and len(held) > (node.expected_gpus or 0):
            node.expected_gpus = len(held)
            changes.nodes.append(node)


def _note_facts(boards: Boards, now: datetime, changes: _Changes) -> None:
    """Model, serial and driver as last told. Each driver of a GPU makes one event; a label's new name makes none."""
    for node_id, held in boards.items():
        for gpu, board in held.items():
            driver = board.device.driver_version[: _FACTS["driver_version"]]
            if driver and driver != gpu.driver_version:
                changes.events.append(_driver_event(node_id, gpu, driver, now))
            for name, longest in _FACTS.items():
                told = str(getattr(board.device, name))[:longest]
                setattr(gpu, name, told or getattr(gpu, name))
            gpu.last_seen_at = max(gpu.last_seen_at, now)
            changes.facts.append(gpu)


def _driver_event(node_id: int, gpu: Gpu, driver: str, now: datetime) -> NodeEvent:
    text = f"driver {driver}" if not gpu.driver_version else f"driver {gpu.driver_version} to {driver}"
    mark = sha256(f"driver {gpu.id} {driver} {now.isoformat()}".encode()).hexdigest()
    return NodeEvent(node_id=node_id, gpu=gpu, at=now, kind="driver", source="scrape", text=text, fingerprint=mark)


def _assign(boards: Boards, now: datetime, interval: timedelta, changes: _Changes) -> set[int]:
    """Starts, bridges and ends what runs on the GPUs. Returns the nodes where a loss is not decided yet."""
    node_of = {gpu.id: node_id for node_id, held in boards.items() for gpu in held}
    running: dict[int, dict[Workload, Assignment]] = {gpu_id: {} for gpu_id in node_of}
    for row in Assignment.objects.filter(gpu_id__in=list(node_of), ends_at=None).order_by("starts_at", "id"):
        running[row.gpu_id].setdefault(tuple(sorted(row.workload.items())), row)
    # Half an interval of slack: scrapes are not exactly one interval apart.
    patience = interval * (BRIDGED_SCRAPES - 0.5)
    unsettled: set[int] = set()
    for held in boards.values():
        for gpu, board in held.items():
            for workload in sorted(board.workloads - running[gpu.id].keys()):
                changes.started.append(_assignment(gpu, workload, now))
            for workload, row in running[gpu.id].items():
                lost = row.lost_at
                if workload in board.workloads:
                    row.lost_at = None
                elif board.workloads or (lost is not None and now - lost > patience):
                    row.ends_at = max(lost or now, row.starts_at + timedelta(microseconds=1))
                else:
                    row.lost_at = lost or now
                    unsettled.add(node_of[gpu.id])
                if row.ends_at is not None or row.lost_at != lost:
                    changes.moved.append(row)
    return unsettled


def _assignment(gpu: Gpu, workload: Workload, now: datetime) -> Assignment:
    facts = dict(workload)
    job = facts.get("job") or facts.get("pod") or facts.get("container") or workload[0][1]
    return Assignment(gpu=gpu, job=job[:255], workload=facts, starts_at=now)


def _write(changes: _Changes) -> None:
    if changes.dropped:
        Placement.objects.filter(id__in=changes.dropped).delete()
    if changes.ended:
        Placement.objects.bulk_update(changes.ended, ("ends_at",), batch_size=2_000)
    if changes.seated:
        Placement.objects.bulk_create(changes.seated, batch_size=2_000)
    if changes.nodes:
        Node.objects.bulk_update(changes.nodes, ("expected_gpus",), batch_size=2_000)
    if changes.started:
        Assignment.objects.bulk_create(changes.started, batch_size=2_000)
    if changes.moved:
        _write_ends(changes.moved)
    if changes.events:
        NodeEvent.objects.bulk_create(changes.events, ignore_conflicts=True, batch_size=2_000)
    if changes.facts:
        _write_facts(changes.facts)


def _write_ends(moved: Sequence[Assignment]) -> None:
    columns = [[getattr(row, name) for row in moved] for name in ("id", "lost_at", "ends_at")]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE fleet_assignment AS row SET (lost_at, ends_at) = (told.lost_at, told.ends_at)"
            " FROM unnest(%s::bigint[], %s::timestamptz[], %s::timestamptz[]) AS told (id, lost_at, ends_at)"
            " WHERE row.id = told.id",
            columns,
        )


def _write_facts(gpus: Sequence[Gpu]) -> None:
    """One statement for any number of rows; Django's bulk update would make a CASE of each."""
    columns = [[getattr(gpu, name) for gpu in gpus] for name in ("id", *_FACTS, "last_seen_at")]
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE fleet_gpu AS gpu SET (model, vendor, serial, driver_version, last_seen_at) ="
            " (told.model, told.vendor, told.serial, told.driver_version, told.last_seen_at)"
            " FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::timestamptz[])"
            " AS told (id, model, vendor, serial, driver_version, last_seen_at) WHERE gpu.id = told.id",
            columns,
        )
