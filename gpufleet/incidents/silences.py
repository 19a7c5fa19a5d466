"""Silences: they mute notifications of a scope for a while and change nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from gpufleet.accounts import audit
from gpufleet.accounts.models import User
from gpufleet.fleet.models import Cluster, Node
from gpufleet.incidents.actions import Invalid, NotFound
from gpufleet.incidents.models import Incident, Silence

LONGEST = timedelta(days=90)
LONGEST_REASON = 255
LONGEST_KIND = 31
MOST_NODES = 1000


@dataclass(frozen=True, slots=True)
class Scope:
    """What a silence mutes: some nodes, or all of a rack, or (with neither) the whole cluster; of one kind, or any."""

    nodes: tuple[str, ...] = ()
    rack: str = ""
    kind: str = ""


@transaction.atomic
def create_silences(
    cluster: Cluster, scope: Scope, *, starts_at: datetime, ends_at: datetime, reason: str, actor: User, source: str,
    now: datetime,
) -> list[Silence]:  # fmt: skip
    """Mutes `scope` during `[starts_at, ends_at)`: one silence a node, or one for the cluster. Raises Invalid."""
    _check(scope, starts_at, ends_at, reason, now)
    nodes = _nodes(cluster, scope)
    made = Silence.objects.bulk_create(
        Silence(
            cluster=cluster, node=node, kind=scope.kind, starts_at=starts_at, ends_at=ends_at, reason=reason.strip(),
            created_by=actor.username,
        )
        for node in nodes
    )  # fmt: skip
    for silence in made:
        _audit("create", silence, actor, source, now)
    return made


@transaction.atomic
def end_silence(silence_id: int, *, actor: User, source: str, now: datetime) -> Silence:
    """Ends it now; one that has not begun never does. Ended already: nothing changes. Raises NotFound."""
    rows = Silence.objects.select_related("cluster", "node").select_for_update(of=("self",))
    silence = rows.filter(pk=silence_id).first()
    if silence is None:
        raise NotFound(f"there is no silence {silence_id}")
    if silence.ends_at > now:
        silence.starts_at, silence.ends_at = min(silence.starts_at, now), now
        silence.save(update_fields=("starts_at", "ends_at"))
        _audit("end", silence, actor, source, now)
    return silence


def list_silences(
    cluster: Cluster, *, at: datetime | None = None, before: int | None = None, limit: int | None = None
) -> list[Silence]:
    """Newest first; with `at` those that hold then, with `before` those made before the one with that key."""
    held = Q() if at is None else Q(starts_at__lte=at, ends_at__gt=at)
    if before is not None:
        held &= Q(pk__lt=before)
    found = Silence.objects.filter(held, cluster=cluster).select_related("cluster", "node").order_by("-id")
    return list(found[:limit])


def is_silenced(incident: Incident, at: datetime) -> bool:
    """Whether a silence mutes this incident at that moment. One query."""
    where = Q(node=None) | (Q(node_id=incident.node_id) if incident.node_id else Q(pk__in=()))
    held = Silence.objects.filter(where, cluster_id=incident.cluster_id, starts_at__lte=at, ends_at__gt=at)
    return held.filter(kind__in=("", incident.kind)).exists()


def _check(scope: Scope, starts_at: datetime, ends_at: datetime, reason: str, now: datetime) -> None:
    if not starts_at < ends_at:
        raise Invalid("ends_at", "a silence ends after it starts")
    if ends_at <= now:
        raise Invalid("ends_at", "a silence in the past mutes nothing")
    if ends_at - starts_at > LONGEST:
        raise Invalid("ends_at", f"a silence lasts at most {LONGEST.days} days")
    if not reason.strip() or len(reason) > LONGEST_REASON or "\x00" in reason:
        raise Invalid("reason", f"a silence needs a reason, at most {LONGEST_REASON} characters")
    if len(scope.kind) > LONGEST_KIND or "\x00" in scope.kind:
        raise Invalid("kind", "there is no such kind of incident")
    if scope.nodes and scope.rack:
        raise Invalid("rack", "give nodes or a rack, not both")
    if len(scope.nodes) > MOST_NODES:
        raise Invalid("nodes", f"at most {MOST_NODES} nodes at once")


def _nodes(cluster: Cluster, scope: Scope) -> list[Node | None]:
    """The nodes of the scope in order of their names; None for the whole cluster. Raises Invalid for unknown names."""
    if not scope.nodes and not scope.rack:
        return [None]
    named = Q(rack__name=scope.rack) if scope.rack else Q(name__in=scope.nodes)
    found: list[Node | None] = list(cluster.nodes.filter(named).order_by("name"))
    if scope.rack and not found:
        raise Invalid("rack", f"there is no node in a rack {scope.rack!r}")
    missing = sorted({*scope.nodes} - {node.name for node in found if node is not None})
    if missing:
        raise Invalid("nodes", f"there is no node {missing[0]!r}")
    return found


def _audit(verb: str, silence: Silence, actor: User, source: str, now: datetime) -> None:
    audit.record(
        at=now, actor=actor.username, source=source, verb=f"silence.{verb}", subject=f"silence:{silence.pk}",
        detail={
            "cluster": silence.cluster.name, "node": silence.node.name if silence.node else None, "kind": silence.kind,
            "starts_at": silence.starts_at.isoformat(), "ends_at": silence.ends_at.isoformat(),
            "reason": silence.reason,
        },
    )  # fmt: skip
