"""States of a subject cut to a period, and announced maintenance laid over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from gpufleet.core.intervals import intersect, subtract, union
from gpufleet.fleet.models import Cluster, MaintenanceWindow

Pair = tuple[float, float]
OUTSIDE = frozenset({"out_of_service", "maintenance"})


@dataclass(frozen=True, slots=True)
class Span:
    """One state of a subject, cut to the period that was asked for. `subject`: GPU key, or minus the node's key.

    `began_at`: when the state began, which may lie before the period and outside this piece of it.
    """

    subject: int
    node_id: int
    state: str
    starts_at: float
    ends_at: float
    incident_id: int | None
    began_at: float


def announced(cluster: Cluster, start: datetime, end: datetime) -> dict[int, list[Pair]]:
    """Maintenance of each node that touches `[start, end)`, as sets of Unix seconds. One query.

    A window counts whole and exactly, also one that was entered afterwards: its row says who did it, when and why.
    """
    rows = MaintenanceWindow.objects.filter(node__cluster=cluster, starts_at__lt=end, ends_at__gt=start)
    found: dict[int, list[Pair]] = {}
    for node_id, starts_at, ends_at in rows.values_list("node_id", "starts_at", "ends_at"):
        found.setdefault(node_id, []).append((starts_at.timestamp(), ends_at.timestamp()))
    return {node_id: union(pairs) for node_id, pairs in found.items()}


def planned_first(spans: Iterable[Span], windows: Mapping[int, Sequence[Pair]]) -> Iterable[Span]:
    """The spans with planned time before whatever was told in it; total length and order stay the same."""
    for span in spans:
        planned = windows.get(span.node_id)
        if not planned or span.state in OUTSIDE:
            yield span
            continue
        whole = [(span.starts_at, span.ends_at)]
        inside = [replace(span, state="maintenance", starts_at=a, ends_at=b) for a, b in intersect(whole, planned)]
        outside = [replace(span, starts_at=a, ends_at=b) for a, b in subtract(whole, planned)]
        yield from sorted([*inside, *outside], key=lambda piece: piece.starts_at)
