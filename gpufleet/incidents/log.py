"""Writes an event and what follows from it: the one way in which an incident changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from gpufleet.incidents.lifecycle import FOLDED, Event, State, apply
from gpufleet.incidents.models import Incident, IncidentEvent

RULE, PAGE, API, IMPORT = "rule", "page", "api", "import"


def state_of(incident: Incident) -> State:
    """The row as a state of the fold."""
    fields = {name: getattr(incident, name) for name in FOLDED}
    fields["evidence"] = tuple(fields["evidence"])
    fields["occurrence_ids"] = tuple(fields["occurrence_ids"])
    return State(**fields)


def write_state(incident: Incident, state: State) -> None:
    """Puts a state into the row, without saving it."""
    for name in FOLDED:
        value = getattr(state, name)
        setattr(incident, name, list(value) if isinstance(value, tuple) else value)


def add_event(
    incident: Incident, verb: str, *, at: datetime, actor: str, source: str, detail: Mapping[str, Any] | None = None
) -> IncidentEvent:
    """Appends the event and saves the row. Call it with the row locked, inside the act's transaction."""
    event = Event(verb, at, actor, source, dict(detail or {}))
    write_state(incident, apply(state_of(incident), event))
    incident.save()
    return record_event(incident, event)


def record_event(incident: Incident, event: Event) -> IncidentEvent:
    return IncidentEvent.objects.create(
        incident=incident,
        at=event.at,
        actor=event.actor,
        source=event.source,
        verb=event.verb,
        detail=dict(event.detail),
    )


def events_of(rows: Iterable[IncidentEvent]) -> list[Event]:
    """Stored events as the fold reads them."""
    return [Event(row.verb, row.at, row.actor, row.source, row.detail) for row in rows]
