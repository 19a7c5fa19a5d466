"""Incidents: lists, one with its events, and every verb."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from dashboards.api import schemas
from dashboards.api.access import caller, needs
from dashboards.api.fleet import answer
from dashboards.api.parameters import instant
from dashboards.api.problems import Problem, invalid
from gpufleet.core.times import utc_now
from gpufleet.incidents import actions, queries
from gpufleet.incidents.intake import Change
from gpufleet.incidents.models import Incident
from gpufleet.incidents.serialize import event_json, incident_json
from gpufleet.pipeline.live import publish_incident

router = Router(tags=["incidents"])
VERB_ANSWERS = schemas.answers(schemas.IncidentOut, 400, 404, 409, 413, 422)


class ListParameters(Schema):
    status: str | None = None
    kind: str | None = None
    severity: str | None = None
    node: str | None = None
    cluster: str | None = None
    q: str | None = None
    since: str | None = None
    until: str | None = None
    limit: int = 100
    cursor: str | None = None


@router.get(
    "/incidents",
    response=schemas.answers(schemas.IncidentsOut, 422),
    summary="Incidents, newest first",
    auth=needs("read"),
)
def incident_list(request: HttpRequest, parameters: Query[ListParameters]) -> HttpResponse:
    if not 1 <= parameters.limit <= queries.MAX_LIMIT:
        raise invalid("limit", f"limit is from 1 to {queries.MAX_LIMIT}")
    filters = queries.Filters(
        statuses=_words("status", parameters.status, ("open", "acknowledged", "resolved")),
        kinds=_words("kind", parameters.kind),
        severities=_words("severity", parameters.severity, ("info", "warning", "critical")),
        node=parameters.node or "",
        cluster=parameters.cluster or "",
        text=parameters.q or "",
        since=instant("since", parameters.since),
        until=instant("until", parameters.until),
    )
    try:
        rows, following = queries.list_incidents(filters, limit=parameters.limit, cursor=parameters.cursor)
    except queries.BadCursor as error:
        raise invalid("cursor", "this cursor is not one that the list gave out") from error
    return answer({"incidents": [incident_json(row) for row in rows], "next": following})


def _words(field: str, value: str | None, allowed: tuple[str, ...] = ()) -> tuple[str, ...]:
    words = tuple(word for word in (value or "").split(",") if word)
    for word in words:
        if allowed and word not in allowed:
            raise invalid(field, f"{word!r} is none of {', '.join(allowed)}")
    return words


@router.get(
    "/incidents/{int:incident_id}",
    response=schemas.answers(schemas.IncidentOut, 404),
    summary="One incident",
    auth=needs("read"),
)
def incident(request: HttpRequest, incident_id: int) -> HttpResponse:
    return answer(incident_json(_found(incident_id)))


@router.get(
    "/incidents/{int:incident_id}/events",
    response=schemas.answers(schemas.EventsOut, 404),
    summary="Its events, oldest first",
    auth=needs("read"),
)
def incident_events(request: HttpRequest, incident_id: int) -> HttpResponse:
    _found(incident_id)
    return answer({"events": [event_json(event) for event in queries.events(incident_id)]})


def _found(incident_id: int) -> Incident:
    found = queries.incident(incident_id)
    if found is None:
        raise Problem(404, f"There is no incident {incident_id}.")
    return found


def _act(
    request: HttpRequest, verb: Callable[..., Incident], incident_id: int, version: int | None, **arguments: Any
) -> HttpResponse:
    """Carries out a verb and answers with the incident as it then is; refusals become 404, 409 or 422."""
    try:
        changed = verb(incident_id, caller(request).user, now=utc_now(), source="api", version=version, **arguments)
    except actions.NotFound as error:
        raise Problem(404, f"There is no incident {incident_id}.") from error
    except actions.Conflict as error:
        raise Problem(409, str(error), incident=incident_json(error.incident)) from error
    except actions.Invalid as error:
        raise invalid(error.field, str(error)) from error
    publish_incident(Change(incident_id, verb.__name__))
    return answer(incident_json(changed))


@router.post("/incidents/{int:incident_id}/acknowledge", response=VERB_ANSWERS, auth=needs("incident.act"))
def acknowledge(
    request: HttpRequest, incident_id: int, body: schemas.AcknowledgeIn = schemas.NO_ACKNOWLEDGEMENT
) -> HttpResponse:
    expires_at = instant("expires_at", body.expires_at)
    return _act(request, actions.acknowledge, incident_id, body.version, note=body.note, expires_at=expires_at)


@router.post("/incidents/{int:incident_id}/unacknowledge", response=VERB_ANSWERS, auth=needs("incident.act"))
def unacknowledge(request: HttpRequest, incident_id: int, body: schemas.NoteIn = schemas.NO_NOTE) -> HttpResponse:
    return _act(request, actions.unacknowledge, incident_id, body.version, note=body.note)


@router.post("/incidents/{int:incident_id}/assign", response=VERB_ANSWERS, auth=needs("incident.act"))
def assign(request: HttpRequest, incident_id: int, body: schemas.AssignIn) -> HttpResponse:
    return _act(request, actions.assign, incident_id, body.version, assignee=body.user)


@router.post("/incidents/{int:incident_id}/snooze", response=VERB_ANSWERS, auth=needs("incident.act"))
def snooze(request: HttpRequest, incident_id: int, body: schemas.SnoozeIn) -> HttpResponse:
    return _act(request, actions.snooze, incident_id, body.version, until=_snooze_end(body, utc_now()))


def _snooze_end(body: schemas.SnoozeIn, now: datetime) -> datetime:
    until = instant("until", body.until)
    if (until is None) == (body.seconds is None):
        raise invalid("until", "give either until or seconds")
    return until if until is not None else now + timedelta(seconds=body.seconds or 0)


@router.post("/incidents/{int:incident_id}/comment", response=VERB_ANSWERS, auth=needs("incident.act"))
def comment(request: HttpRequest, incident_id: int, body: schemas.CommentIn) -> HttpResponse:
    return _act(request, actions.comment, incident_id, body.version, text=body.text)


@router.post("/incidents/{int:incident_id}/label", response=VERB_ANSWERS, auth=needs("incident.act"))
def label(request: HttpRequest, incident_id: int, body: schemas.LabelIn) -> HttpResponse:
    return _act(request, actions.label, incident_id, body.version, label=body.label, note=body.note)


@router.post("/incidents/{int:incident_id}/resolve", response=VERB_ANSWERS, auth=needs("incident.act"))
def resolve(request: HttpRequest, incident_id: int, body: schemas.ResolveIn = schemas.NO_RESOLUTION) -> HttpResponse:
    return _act(request, actions.resolve, incident_id, body.version, note=body.note, force=body.force)


@router.post("/incidents/{int:incident_id}/reopen", response=VERB_ANSWERS, auth=needs("incident.act"))
def reopen(request: HttpRequest, incident_id: int, body: schemas.NoteIn = schemas.NO_NOTE) -> HttpResponse:
    return _act(request, actions.reopen, incident_id, body.version, note=body.note)
