"""Incidents and events as the API writes them. Unknown is null; instants are RFC 3339 in UTC."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from django.conf import settings

from gpufleet.core.times import from_unix, rfc3339
from gpufleet.incidents.models import Incident, IncidentEvent


def status_of(incident: Incident) -> str:
    if incident.resolved_at is not None:
        return "resolved"
    return "acknowledged" if incident.acknowledged_at is not None else "open"


def incident_json(incident: Incident) -> dict[str, Any]:
    """One incident. Fields may be added; none is renamed or dropped."""
    return {
        "id": incident.pk,
        "version": incident.version,
        "kind": incident.kind,
        "severity": incident.severity,
        "cluster": incident.cluster.name,
        "node": incident.node.name if incident.node else None,
        "gpu_uuid": incident.gpu.uuid if incident.gpu else None,
        "slot": incident.slot,
        "opened_at": rfc3339(incident.opened_at),
        "first_evidence_at": _instant(incident.first_evidence_at),
        "last_seen_at": _instant(incident.last_seen_at),
        "no_data_since": _instant(incident.no_data_since),
        "recovered_at": _instant(incident.recovered_at),
        "acknowledged_at": _instant(incident.acknowledged_at),
        "acknowledged_by": incident.acknowledged_by or None,
        "acknowledgement_expires_at": _instant(incident.acknowledgement_expires_at),
        "assignee": incident.assignee or None,
        "snoozed_until": _instant(incident.snoozed_until),
        "label": incident.label or None,
        "resolved_at": _instant(incident.resolved_at),
        "resolved_by": incident.resolved_by or None,
        "status": status_of(incident),
        "title": incident.title,
        "rule": incident.rule,
        "recommended_action": incident.recommended_action,
        "occurrences": incident.occurrences,
        "paged": incident.paged,
        "parent_id": incident.parent_id,
        "members": [_member(member) for member in incident.children.all()],
        "evidence": [evidence_json(piece) for piece in incident.evidence],
        "url": f"{settings.ENV['GPUFLEET_BASE_URL'].rstrip('/')}/incidents/{incident.pk}/",
    }


def _member(member: Incident) -> dict[str, Any]:
    return {
        "id": member.pk,
        "kind": member.kind,
        "severity": member.severity,
        "node": member.node.name if member.node else None,
        "gpu_uuid": member.gpu.uuid if member.gpu else None,
        "slot": member.slot,
        "title": member.title,
        "first_evidence_at": _instant(member.first_evidence_at),
        "evidence": [evidence_json(piece) for piece in member.evidence],
    }


def evidence_json(piece: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "signal": piece["signal"],
        "node": piece.get("node"),
        "gpu_uuid": piece.get("gpu_uuid"),
        "at": rfc3339(from_unix(float(piece["at"]))),
        "value": piece.get("value"),
        "expected": piece.get("expected"),
    }


def event_json(event: IncidentEvent) -> dict[str, Any]:
    return {
        "id": event.pk,
        "at": rfc3339(event.at),
        "actor": event.actor or None,
        "verb": event.verb,
        "source": event.source,
        "detail": event.detail,
    }


def _instant(at: datetime | None) -> str | None:
    return None if at is None else rfc3339(at)
