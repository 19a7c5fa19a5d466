"""The list of incidents: open ones first by default, filters in the address, further pages by cursor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboards.incident_panel import evidence_line, short_title, subject_of
from dashboards.shell import shell
from dashboards.time_range import TimeExpressionError, read_instant, zone
from gpufleet.accounts.roles import can
from gpufleet.incidents import queries
from gpufleet.incidents.models import Incident

PAGE_SIZE = 100
STATUSES = ("open", "acknowledged", "resolved")
SEVERITIES = ("critical", "warning", "info")
UNRESOLVED = ("open", "acknowledged")
KEPT = ("status", "severity", "kind", "node", "q", "since", "until", "cluster", "tz")


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the list."""

    incident: Incident
    subject: str
    what: str
    evidence: str


def line(incident: Incident) -> Line:
    node = incident.node.name if incident.node else ""
    subject = subject_of(incident.subject, node, incident.slot)
    return Line(incident, subject, short_title(incident.title, subject, node), evidence_line(incident.evidence))


@require_safe
def incident_list(request: HttpRequest) -> HttpResponse:
    """Without a filter the unresolved ones, unacknowledged first. htmx gets the rows alone."""
    frame = shell(request)["shell"]
    problem, filters = _filters(request)
    rows, following = _rows(request, filters)
    context: dict[str, Any] = {
        "section": "incidents",
        "lines": [line(row) for row in rows],
        "next_query": _query(request, cursor=following) if following else "",
        "is_further": bool(request.GET.get("cursor")),
        "first_query": _query(request),
        "moment": frame.now,
        "problem": problem,
        "statuses": filters.statuses,
        "all_statuses": STATUSES,
        "severities": filters.severities,
        "all_severities": SEVERITIES,
        "kinds": sorted(queries.known_kinds()),
        "may_act": can(request.user.role, "incident.act"),  # type: ignore[union-attr]
        "rows_query": _query(request, cursor=request.GET.get("cursor", "")),
    }
    template = "incidents/_rows.html" if request.headers.get("HX-Request") else "incidents/list.html"
    return render(request, template, context)


def _rows(request: HttpRequest, filters: queries.Filters) -> tuple[list[Incident], str | None]:
    if filters.statuses == UNRESOLVED and not request.GET.get("cursor"):
        worst_first = queries.open_incidents(filters=filters, limit=PAGE_SIZE + 1)
        if len(worst_first) <= PAGE_SIZE:
            return worst_first, None
    try:
        return queries.list_incidents(filters, limit=PAGE_SIZE, cursor=request.GET.get("cursor") or None)
    except queries.BadCursor:
        return queries.list_incidents(filters, limit=PAGE_SIZE, cursor=None)


def _filters(request: HttpRequest) -> tuple[str, queries.Filters]:
    """What the address asks for; the first of the pair says what of it could not be used."""
    frame = shell(request)["shell"]
    times, problem = {}, ""
    for name in ("since", "until"):
        text = request.GET.get(name, "")
        if text:
            try:
                times[name] = read_instant(text, frame.now, zone(request.GET.get("tz", "")))
            except TimeExpressionError as error:
                problem = f"{name}: {error}; it is left out."
    asked = _words(request, "status", STATUSES)
    return problem, queries.Filters(
        statuses=asked or UNRESOLVED,
        severities=_words(request, "severity", SEVERITIES),
        kinds=tuple(word for word in _text(request, "kind").split(",") if word),
        node=_text(request, "node"),
        cluster=_text(request, "cluster"),
        text=_text(request, "q"),
        since=times.get("since"),
        until=times.get("until"),
    )


def _text(request: HttpRequest, name: str) -> str:
    """What a column can hold of a parameter."""
    return request.GET.get(name, "").replace("\x00", "").strip()[:255]


def _words(request: HttpRequest, name: str, allowed: tuple[str, ...]) -> tuple[str, ...]:
    """The allowed words of a parameter, in the order of `allowed`; given as a comma list or several times."""
    asked = {word for value in request.GET.getlist(name) for word in value.split(",")}
    return tuple(word for word in allowed if word in asked)


def _query(request: HttpRequest, **more: str) -> str:
    kept = [(name, value) for name in KEPT for value in request.GET.getlist(name) if value]
    return urlencode([*kept, *((name, value) for name, value in more.items() if value)])
