"""Acts on the inventory: targets, expected GPU counts, maintenance windows. One transaction each, audited inside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db import transaction

from gpufleet.accounts import audit
from gpufleet.core.times import from_unix, rfc3339
from gpufleet.fleet.kinds import kind_of
from gpufleet.fleet.models import LIVE, Cluster, MaintenanceWindow, Node, Rack, Switch, Target
from gpufleet.fleet.specs import FleetError, TargetSpec, WindowSpec

MAX_TARGETS = 200_000
MAX_EXPECTED_GPUS = 1_024
BY_HAND = "by hand: "
FOLLOWED = "sources/"  # how the names of sources begin that are followed while they change
FACTS = ("job", "labels", "trusted", "source", "access")


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did, in targets."""

    added: int
    changed: int
    unchanged: int
    removed: int


def import_targets(
    specs: Sequence[TargetSpec],
    *,
    source: str,
    actor: str,
    now: datetime,
    trusted: bool,
    prune: bool = False,
    cluster: Cluster | None = None,
) -> Imported:
    """Adds and updates targets with their nodes, racks and switches; importing the same again changes nothing.

    `source` names where the list came from; with `prune` the targets of that source which it no longer lists are
    removed. `cluster` puts all of them into that one, whatever the list says. Raises FleetError for a list that
    contradicts itself, names a replayed cluster, or is too long; then nothing is taken.
    """
    if len(specs) > MAX_TARGETS:
        raise FleetError(f"{len(specs)} targets are more than {MAX_TARGETS}")
    by_cluster: dict[str, dict[str, TargetSpec]] = {}
    for spec in specs:
        name = cluster.name if cluster else spec.cluster
        known = by_cluster.setdefault(name, {}).setdefault(spec.url, spec)
        if known != spec:
            raise FleetError(f"{spec.url} is listed twice, with different labels")
    with transaction.atomic():
        total = Imported(0, 0, 0, 0)
        for name, wanted in sorted(by_cluster.items()):
            place = cluster or _live_cluster(name)
            done = _import_into(place, wanted, source, trusted, now)
            total = Imported(
                total.added + done.added, total.changed + done.changed, total.unchanged + done.unchanged, 0
            )
        removed = _prune(source, by_cluster, now) if prune else 0
        total = Imported(total.added, total.changed, total.unchanged, removed)
        if total.added or total.changed or total.removed:
            detail = {"added": total.added, "changed": total.changed, "removed": total.removed}
            audit.record(actor=actor, source="import", verb="import_targets", subject=source, detail=detail, at=now)
    return total


def add_target(spec: TargetSpec, *, actor: str, source: str, now: datetime) -> Target:
    """A target that a person adds; it is not trusted. Raises FleetError when the address is watched already."""
    with transaction.atomic():
        place = _live_cluster(spec.cluster)
        if Target.objects.filter(cluster=place, url=spec.url, removed_at=None).exists():
            raise FleetError(f"{spec.url} is watched already")
        done = _import_into(place, {spec.url: spec}, f"{BY_HAND}{actor}", False, now)
        target = Target.objects.select_related("node").get(cluster=place, url=spec.url, removed_at=None)
        if not done.added or target.source != f"{BY_HAND}{actor}"[-255:]:
            raise FleetError(f"{spec.url} is watched already")
        detail = {"node": target.node.name}
        audit.record(actor=actor, source=source, verb="target.add", subject=spec.url[:255], detail=detail, at=now)
    return target


def remove_target(target_id: int, *, actor: str, source: str, now: datetime) -> Target | None:
    """Stops watching a target; None when there is none. Raises FleetError for one that a followed list holds."""
    with transaction.atomic():
        found = Target.objects.select_for_update(of=("self",)).select_related("node")
        target = found.filter(id=target_id, removed_at=None).first()
        if target is None:
            return None
        if target.source.startswith(FOLLOWED):
            raise FleetError(f"the target comes from {target.source}, and would come back: take it out there")
        target.removed_at = now
        target.save(update_fields=("removed_at",))
        detail = {"node": target.node.name}
        audit.record(actor=actor, source=source, verb="target.remove", subject=target.url[:255], detail=detail, at=now)
    return target


def set_expected_gpus(node_id: int, count: int | None, *, actor: str, source: str, now: datetime) -> Node:
    """Says how many GPUs a node should have; None gives it back to what scrapes see. Raises FleetError."""
    if count is not None and not 0 <= count <= MAX_EXPECTED_GPUS:
        raise FleetError(f"a node has 0 to {MAX_EXPECTED_GPUS} GPUs")
    with transaction.atomic():
        node = Node.objects.select_for_update().filter(id=node_id).first()
        if node is None:
            raise FleetError(f"there is no node {node_id}")
        by = "" if count is None else actor
        if (node.expected_gpus, node.expected_gpus_by) == (count, by):
            return node
        before = node.expected_gpus
        seen = node.placements.filter(ends_at=None).count()
        node.expected_gpus = (seen or None) if count is None else count
        node.expected_gpus_by = by
        node.save(update_fields=("expected_gpus", "expected_gpus_by"))
        detail = {"before": before, "after": node.expected_gpus}
        audit.record(
            actor=actor, source=source, verb="set_expected_gpus", subject=f"node:{node.name}", detail=detail, at=now
        )
    return node


def create_windows(
    cluster: Cluster, specs: Sequence[WindowSpec], *, actor: str, source: str, now: datetime
) -> list[MaintenanceWindow]:
    """Announces maintenance; windows that are there already are left out. Returns the new ones. Raises FleetError."""
    if len(specs) > MAX_TARGETS:
        raise FleetError(f"{len(specs)} windows are more than {MAX_TARGETS}")
    with transaction.atomic():
        # The nodes are locked, so that the same list twice at the same moment makes each window once.
        wanted = Node.objects.filter(cluster=cluster, name__in={spec.node for spec in specs})
        nodes = {node.name: node for node in wanted.order_by("id").select_for_update()}
        windows: list[MaintenanceWindow] = []
        for spec in specs:
            if spec.node not in nodes:
                raise FleetError(f"there is no node {spec.node} in the cluster {cluster.name}")
            if not spec.starts_at < spec.ends_at:
                raise FleetError(f"the window of {spec.node} ends before it starts")
            windows.append(_window(nodes[spec.node], spec, actor, now))
        present = {_window_key(window) for window in MaintenanceWindow.objects.filter(node__in=nodes.values())}
        new = list({_window_key(window): window for window in windows if _window_key(window) not in present}.values())
        MaintenanceWindow.objects.bulk_create(new)
        if new:
            names = sorted({window.node.name for window in new})
            detail = {"windows": len(new), "nodes": names[:100], "first": rfc3339(min(w.starts_at for w in new))}
            audit.record(actor=actor, source=source, verb="maintenance", subject=cluster.name, detail=detail, at=now)
    return new


def end_window(window_id: int, *, actor: str, source: str, now: datetime) -> MaintenanceWindow:
    """Ends a window now; one that has not begun is over before it begins, one that is over stays as it is."""
    with transaction.atomic():
        window = MaintenanceWindow.objects.select_for_update().select_related("node").filter(id=window_id).first()
        if window is None:
            raise FleetError(f"there is no maintenance window {window_id}")
        if window.ends_at <= now:
            return window
        window.ends_at = max(now, window.starts_at)
        window.save(update_fields=("ends_at",))
        subject = f"node:{window.node.name}"
        detail = {"window": window.id, "reason": window.reason}
        audit.record(actor=actor, source=source, verb="end_maintenance", subject=subject, detail=detail, at=now)
    return window


def _live_cluster(name: str) -> Cluster:
    place, _ = Cluster.objects.get_or_create(name=name or LIVE)
    if place.is_replay:
        raise FleetError(f"the cluster {name} holds a replay; it is not scraped")
    return place


def _import_into(place: Cluster, wanted: dict[str, TargetSpec], source: str, trusted: bool, now: datetime) -> Imported:
    nodes = _nodes(place, wanted.values(), now)
    present = {t.url: t for t in Target.objects.select_for_update().filter(cluster=place, removed_at=None)}
    new: list[Target] = []
    changed: list[Target] = []
    for url, spec in wanted.items():
        facts = {
            "node_id": nodes[spec.node].id,
            "job": spec.job,
            "labels": spec.labels,
            "trusted": trusted,
            "source": source[-255:],
            "access": spec.access,
        }
        target = present.get(url)
        if target is None:
            kind = kind_of(spec.job)
            new.append(Target(cluster=place, url=url, kind=kind, created_at=now, **facts))
        elif any(getattr(target, name) != value for name, value in facts.items()):
            for name, value in facts.items():
                setattr(target, name, value)
            changed.append(target)
    # Another import of the same list at the same moment: whoever comes second finds its targets there.
    Target.objects.bulk_create(new, ignore_conflicts=True, batch_size=2_000)
    Target.objects.bulk_update(changed, ("node_id", *FACTS), batch_size=2_000)
    return Imported(len(new), len(changed), len(wanted) - len(new) - len(changed), 0)


def _nodes(place: Cluster, specs: Iterable[TargetSpec], now: datetime) -> dict[str, Node]:
    """Nodes by name, made and moved to the racks and switches of the list. A list that names none moves nothing."""
    specs = list(specs)
    racks, switches = _racks(place, specs), _switches(place, specs)
    names = {spec.node for spec in specs}
    known = set(Node.objects.filter(cluster=place, name__in=names).values_list("name", flat=True))
    fresh = [Node(cluster=place, name=name, commissioned_at=now) for name in sorted(names - known)]
    Node.objects.bulk_create(fresh, ignore_conflicts=True, batch_size=2_000)
    nodes = {node.name: node for node in Node.objects.filter(cluster=place, name__in=names)}
    moved: dict[int, Node] = {}
    for spec in specs:
        node = nodes[spec.node]
        rack_id = racks.get(spec.rack, node.rack_id)
        switch_id = switches.get(spec.switch, node.switch_id)
        if (node.rack_id, node.switch_id, node.retired_at) != (rack_id, switch_id, None):
            node.rack_id, node.switch_id, node.retired_at = rack_id, switch_id, None
            moved[node.id] = node
    Node.objects.bulk_update(moved.values(), ("rack_id", "switch_id", "retired_at"), batch_size=2_000)
    return nodes


def _racks(place: Cluster, specs: Iterable[TargetSpec]) -> dict[str, int]:
    names = sorted({spec.rack for spec in specs} - {""})
    Rack.objects.bulk_create([Rack(cluster=place, name=name) for name in names], ignore_conflicts=True)
    return dict(Rack.objects.filter(cluster=place, name__in=names).values_list("name", "id"))


def _switches(place: Cluster, specs: Iterable[TargetSpec]) -> dict[str, int]:
    names = sorted({spec.switch for spec in specs} - {""})
    Switch.objects.bulk_create([Switch(cluster=place, name=name) for name in names], ignore_conflicts=True)
    return dict(Switch.objects.filter(cluster=place, name__in=names).values_list("name", "id"))


def _prune(source: str, by_cluster: dict[str, dict[str, TargetSpec]], now: datetime) -> int:
    """Removes what the source no longer lists. Frames and history of a removed target stay."""
    gone = [
        target.id
        for target in Target.objects.filter(source=source[-255:], removed_at=None).select_related("cluster")
        if target.url not in by_cluster.get(target.cluster.name, {})
    ]
    return Target.objects.filter(id__in=gone).update(removed_at=now)


def _window(node: Node, spec: WindowSpec, actor: str, now: datetime) -> MaintenanceWindow:
    return MaintenanceWindow(
        node=node,
        starts_at=from_unix(spec.starts_at),
        ends_at=from_unix(spec.ends_at),
        reason=spec.reason,
        created_by=actor,
        created_at=now,
    )


def _window_key(window: MaintenanceWindow) -> tuple[int, datetime, datetime, str]:
    return window.node_id, window.starts_at, window.ends_at, window.reason
