"""Reads of incidents. The number of queries does not depend on the number of rows."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Case, F, IntegerField, JSONField, Prefetch, Q, QuerySet, Value, When

from gpufleet.core.times import from_unix
from gpufleet.detect.rules import load_rules
from gpufleet.detect.windows import OpenKey
from gpufleet.fleet.models import Cluster, Node
from gpufleet.incidents.models import Incident, IncidentEvent

MAX_LIMIT = 1000
SEVERITY_RANK = Case(
    When(severity="critical", then=Value(0)),
    When(severity="warning", then=Value(1)),
    default=Value(2),
    output_field=IntegerField(),
)


class BadCursor(ValueError):
    """A cursor that no list gave out."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What to list; an empty field does not filter. Without `cluster` replayed clusters are left out."""

    statuses: tuple[str, ...] = ()
    severities: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    node: str = ""
    cluster: str = ""
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def condition(self) -> Q:
        found = Q(cluster__name=self.cluster) if self.cluster else Q(cluster__is_replay=False)
        if self.statuses:
            found &= _status_condition(self.statuses)
        if self.severities:
            found &= Q(severity__in=self.severities)
        if self.kinds:
            found &= Q(kind__in=self.kinds)
        if self.node:
            found &= Q(node__name=self.node)
        if self.text:
            found &= Q(title__icontains=self.text) | Q(subject__icontains=self.text)
        if self.since is not None:
            found &= Q(opened_at__gte=self.since)
        if self.until is not None:
            found &= Q(opened_at__lt=self.until)
        return found


def _status_condition(statuses: Sequence[str]) -> Q:
    each = {
        "open": Q(resolved_at=None, acknowledged_at=None),
        "acknowledged": Q(resolved_at=None, acknowledged_at__isnull=False),
        "resolved": Q(resolved_at__isnull=False),
    }
    found = Q()
    for status in statuses:
        found |= each[status]
    return found


def _rows() -> QuerySet[Incident]:
    members = Incident.objects.select_related("node", "gpu").order_by("id")
    return Incident.objects.select_related("cluster", "node", "gpu").prefetch_related(
        Prefetch("children", queryset=members)
    )


def incident(incident_id: int) -> Incident | None:
    return _rows().select_related("parent").filter(pk=incident_id).first()


def list_incidents(filters: Filters, *, limit: int, cursor: str | None) -> tuple[list[Incident], str | None]:
    """Newest first, and the cursor of the next page (None on the last). Stays stable while rows are added."""
    found = _rows().filter(filters.condition()).order_by("-opened_at", "-id")
    if cursor:
        opened_at, pk = _read_cursor(cursor)
        found = found.filter(Q(opened_at__lt=opened_at) | Q(opened_at=opened_at, pk__lt=pk))
    rows = list(found[: limit + 1])
    following = _cursor(rows[limit - 1]) if len(rows) > limit else None
    return rows[:limit], following


def _cursor(row: Incident) -> str:
    micros = round(row.opened_at.timestamp() * 1_000_000)
    return base64.urlsafe_b64encode(f"{micros}.{row.pk}".encode()).decode().rstrip("=")


def _read_cursor(cursor: str) -> tuple[datetime, int]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii")
        micros, pk = text.split(".")
        instant, number = from_unix(int(micros) / 1_000_000), int(pk)
    except (ValueError, binascii.Error, OverflowError, OSError) as error:
        raise BadCursor(cursor) from error
    if not 0 <= number < 2**63:
        raise BadCursor(cursor)
    return instant, number


def open_incidents(
    cluster: Cluster | None = None, *, filters: Filters | None = None, limit: int = MAX_LIMIT
) -> list[Incident]:
    """Unresolved ones: unacknowledged first, then by severity and age. Members stand with their parent."""
    condition = (filters or Filters()).condition() if cluster is None else Q(cluster=cluster)
    found = _rows().filter(condition, resolved_at=None, parent=None)
    return list(found.order_by(F("acknowledged_at").asc(nulls_first=True), SEVERITY_RANK, "opened_at", "id")[:limit])


def of_node(node: Node, *, limit: int) -> list[Incident]:
    """The newest incidents of a node, unresolved ones first."""
    found = _rows().filter(node=node).order_by(F("resolved_at").desc(nulls_first=True), "-opened_at")
    return list(found[:limit])


def members(incident_id: int) -> list[Incident]:
    return list(Incident.objects.filter(parent_id=incident_id).select_related("node", "gpu").order_by("id"))


def similar(of: Incident, *, limit: int) -> list[Incident]:
    """Earlier ones of the same kind on the same part; without a part, on the same subject."""
    part = Q(gpu=of.gpu) if of.gpu_id else Q(subject=of.subject)
    earlier = Incident.objects.filter(part, cluster=of.cluster, kind=of.kind, opened_at__lt=of.opened_at)
    return list(earlier.select_related("node", "gpu").order_by("-opened_at")[:limit])


def events(incident_id: int) -> list[IncidentEvent]:
    """Oldest first."""
    return list(IncidentEvent.objects.filter(incident_id=incident_id).order_by("id"))


def known_kinds() -> set[str]:
    return {rule.kind for rule in load_rules()}


def open_keys(cluster: Cluster) -> dict[tuple[str, str], OpenKey]:
    """The unresolved incidents as detection needs them, by (kind, subject). One query."""
    # Evidence may be long, and only one kind is judged by what its own names.
    named = Case(When(kind="field_missing", then=F("evidence")), default=Value([], JSONField()))
    rows = Incident.objects.filter(cluster=cluster, resolved_at=None).values_list(
        "kind", "subject", "opened_at", "first_evidence_at", "last_event_at", "recovered_at", "label", named
    )
    return {
        (kind, subject): OpenKey(
            kind,
            subject,
            opened_at.timestamp(),
            first.timestamp(),
            last.timestamp(),
            None if recovered is None else recovered.timestamp(),
            label == "known",
            frozenset(piece["signal"] for piece in evidence),
        )
        for kind, subject, opened_at, first, last, recovered, label, evidence in rows
    }
