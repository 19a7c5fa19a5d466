"""One incident: what is broken, since when, what to do, the evidence, and every act on it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboards.incident_list import line
from dashboards.incident_words import ACTION_WORDS, EVENT_GLYPH, EVENT_WORDS
from dashboards.shell import shell
from gpufleet.accounts.models import User
from gpufleet.accounts.roles import can
from gpufleet.catalogue.metrics import METRICS
from gpufleet.catalogue.xids import XIDS
from gpufleet.core.times import from_unix
from gpufleet.detect.rules import Rule, load_rules
from gpufleet.incidents import queries
from gpufleet.incidents.models import Incident, IncidentEvent

SAID = ("note", "text", "label", "assignee", "until", "title", "reason")
SIMILAR = 5
AROUND = timedelta(minutes=30)


@dataclass(frozen=True, slots=True)
class EventLine:
    event: IncidentEvent
    words: str
    icon: tuple[str, str]
    detail: str


@require_safe
def incident(request: HttpRequest, incident_id: int) -> HttpResponse:
    found = queries.incident(incident_id)
    if found is None:
        raise Http404("There is no such incident.")
    frame = shell(request)["shell"]
    rule = next((rule for rule in load_rules() if rule.id == found.rule), None)
    context: dict[str, Any] = {
        "section": "incidents",
        "incident": found,
        "line": line(found),
        "moment": frame.now,
        "action": ACTION_WORDS.get(found.recommended_action, found.recommended_action),
        "runbook": _runbook(found, rule),
        "clears": rule.clears_when if rule else "",
        "rule": rule,
        "evidence": [_observation(piece) for piece in reversed(found.evidence)],
        "events": [_event_line(event) for event in reversed(queries.events(incident_id))],
        "members": [line(member) for member in queries.members(incident_id)],
        "similar": [line(other) for other in queries.similar(found, limit=SIMILAR)],
        "may_act": can(request.user.role, "incident.act"),  # type: ignore[union-attr]
        "people": list(User.objects.filter(is_active=True).exclude(role="ingest").values_list("username", flat=True)),
        "labels": ("real", "false", "known"),
        "charts": _charts(found),
    }
    return render(request, "incidents/page.html", context)


def _runbook(found: Incident, rule: Rule | None) -> str:
    """What to do, in words: the catalogue's text of the XID that the evidence names, else the rule's reason."""
    for piece in reversed(found.evidence):
        value = piece.get("value")
        if found.kind == "xid" and isinstance(value, (int, float)) and int(value) in XIDS:
            xid = XIDS[int(value)]
            return f"XID {xid.code}: {xid.summary} {xid.runbook}"
    return rule.reason if rule else ""


def _observation(piece: dict[str, Any]) -> dict[str, Any]:
    """A piece of evidence with its value and expectation as a person reads them."""
    metric = METRICS.get(str(piece.get("signal")))
    return {
        "at": from_unix(float(piece["at"])),
        "signal": metric.title if metric else str(piece.get("signal", "")).replace("_", " "),
        "node": piece.get("node"),
        "gpu_uuid": piece.get("gpu_uuid"),
        "value": _shown(piece.get("value"), metric),
        "expected": _shown(piece.get("expected"), metric),
    }


def _shown(value: Any, metric: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, str) or metric is None:
        return f"{value:g}" if isinstance(value, float) else str(value)
    return f"{value * metric.display_factor:,.{metric.digits}f} {metric.display_unit}".strip()


def _event_line(event: IncidentEvent) -> EventLine:
    """What happened, in words. Notes and comments stand as they were written."""
    said = [str(event.detail[name]) for name in SAID if event.detail.get(name)]
    return EventLine(
        event, EVENT_WORDS.get(event.verb, event.verb), EVENT_GLYPH.get(event.verb, ("ext", "t2")), " · ".join(said)
    )


def _charts(found: Incident) -> dict[str, Any] | None:
    """Where the page's charts get their series: the node around the incident. None without a node."""
    if found.node is None:
        return None
    signals = [str(piece.get("signal")) for piece in found.evidence if str(piece.get("signal")) in METRICS]
    wanted = [*dict.fromkeys(signals), "gpu_temperature_celsius", "gpu_power_watts", "gpu_utilization_ratio"]
    end = (found.resolved_at or found.last_seen_at) + AROUND
    return {
        "node": found.node.name,
        "from": int((found.first_evidence_at - AROUND).timestamp() * 1000),
        "to": int(end.timestamp() * 1000),
        "metrics": ",".join(list(dict.fromkeys(wanted))[:3]),
        "slot": found.slot,
    }
