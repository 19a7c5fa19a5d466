"""What an incident is, as a pure fold over its events. No clock, no database: the same events give the same state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

SEVERITIES = ("info", "warning", "critical")
MOST_EVIDENCE = 50
MOST_OCCURRENCES = 500


class IllegalEvent(ValueError):
    """An event that cannot follow; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Event:
    """One act. `detail` holds JSON values only; instants in it are ISO text."""

    verb: str
    at: datetime
    actor: str
    source: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class State:
    """Everything of an incident that its events decide. `version` is the number of events."""

    version: int = 0
    severity: str = ""
    title: str = ""
    recommended_action: str = ""
    rule: str = ""
    evidence: tuple[Mapping[str, Any], ...] = ()
    occurrences: int = 0
    occurrence_ids: tuple[str, ...] = ()
    paged: bool = False
    needs_person: bool = False
    parent_id: int | None = None
    first_evidence_at: datetime | None = None
    last_event_at: datetime | None = None
    opened_at: datetime | None = None
    no_data_since: datetime | None = None
    recovered_at: datetime | None = None
    acknowledged_at: datetime | None = None
    acknowledged_by: str = ""
    acknowledgement_expires_at: datetime | None = None
    assignee: str = ""
    snoozed_until: datetime | None = None
    label: str = ""
    resolved_at: datetime | None = None
    resolved_by: str = ""

    @property
    def status(self) -> str:
        if self.resolved_at is not None:
            return "resolved"
        return "acknowledged" if self.acknowledged_at is not None else "open"


def fold(events: Iterable[Event]) -> State:
    """The state after all events. Raises IllegalEvent where one cannot follow."""
    state = State()
    for event in events:
        state = apply(state, event)
    return state


def apply(state: State, event: Event) -> State:
    """The state after one more event."""
    step = STEPS.get(event.verb)
    if step is None:
        raise IllegalEvent(f"{event.verb!r} is no verb of an incident")
    if (state.version == 0) != (event.verb == "opened"):
        raise IllegalEvent("an incident begins with 'opened', once")
    if state.resolved_at is not None and event.verb not in AFTER_RESOLVED:
        raise IllegalEvent(f"{event.verb!r} cannot follow after it was resolved")
    return replace(step(state, event), version=state.version + 1)


def _opened(state: State, event: Event) -> State:
    detail = event.detail
    return replace(
        _occurred(state, event),
        severity=detail["severity"],
        title=detail["title"],
        recommended_action=detail["recommended_action"],
        rule=detail["rule"],
        paged=detail["paged"],
        needs_person=detail["needs_person"],
        parent_id=detail.get("parent_id"),
        first_evidence_at=_instant(detail["first_evidence_at"]),
        opened_at=event.at,
    )


def _extended(state: State, event: Event) -> State:
    return replace(_occurred(state, event), no_data_since=None)


def _relapsed(state: State, event: Event) -> State:
    return replace(_occurred(state, event), recovered_at=None, no_data_since=None)


def _occurred(state: State, event: Event) -> State:
    """One more occurrence: its evidence is kept (the first ones and the newest), and its name, if it has one."""
    detail = event.detail
    name = detail.get("occurrence") or ""
    names = (*state.occurrence_ids, name)[-MOST_OCCURRENCES:] if name else state.occurrence_ids
    seen_at = _instant(detail["event_at"])
    newest = seen_at if state.last_event_at is None or seen_at > state.last_event_at else state.last_event_at
    return replace(
        state,
        occurrences=state.occurrences + 1,
        occurrence_ids=names,
        last_event_at=newest,
        evidence=_kept((*state.evidence, *detail["evidence"])),
    )


def _kept(evidence: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
    half = MOST_EVIDENCE // 2
    return evidence if len(evidence) <= MOST_EVIDENCE else (*evidence[:half], *evidence[-half:])


def _escalated(state: State, event: Event) -> State:
    detail = event.detail
    return replace(
        state,
        severity=detail["severity"],
        title=detail["title"],
        recommended_action=detail["recommended_action"],
        rule=detail["rule"],
        paged=state.paged or detail["paged"],
        needs_person=state.needs_person or detail["needs_person"],
        evidence=_kept((*state.evidence, *detail["evidence"])),
    )


def _acknowledged(state: State, event: Event) -> State:
    expires_at = event.detail.get("expires_at")
    return replace(
        state,
        acknowledged_at=event.at,
        acknowledged_by=event.actor,
        acknowledgement_expires_at=_instant(expires_at) if expires_at else None,
    )


def _unacknowledged(state: State, event: Event) -> State:
    return replace(state, acknowledged_at=None, acknowledged_by="", acknowledgement_expires_at=None)


def _snoozed(state: State, event: Event) -> State:
    return replace(state, snoozed_until=_instant(event.detail["until"]))


def _unlinked(state: State, event: Event) -> State:
    return replace(state, parent_id=None, paged=state.paged or event.detail["paged"])


def _resolved(state: State, event: Event) -> State:
    return replace(state, resolved_at=event.at, resolved_by=event.actor, snoozed_until=None)


def _reopened(state: State, event: Event) -> State:
    if state.resolved_at is None:
        raise IllegalEvent("only a resolved incident can be reopened")
    return replace(_unacknowledged(state, event), resolved_at=None, resolved_by="", recovered_at=None)


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


Step = Callable[[State, Event], State]
STEPS: Mapping[str, Step] = {
    "opened": _opened,
    "extended": _extended,
    "relapsed": _relapsed,
    "escalated": _escalated,
    "no_data": lambda state, event: replace(state, no_data_since=event.at),
    "data_returned": lambda state, event: replace(state, no_data_since=None),
    "recovered": lambda state, event: replace(state, recovered_at=event.at, no_data_since=None),
    "acknowledged": _acknowledged,
    "unacknowledged": _unacknowledged,
    "acknowledgement_expired": _unacknowledged,
    "assigned": lambda state, event: replace(state, assignee=event.detail.get("assignee") or ""),
    "snoozed": _snoozed,
    "commented": lambda state, event: state,
    "labelled": lambda state, event: replace(state, label=event.detail["label"]),
    "linked": lambda state, event: replace(state, parent_id=event.detail["parent_id"]),
    "unlinked": _unlinked,
    "resolved": _resolved,
    "reopened": _reopened,
}
AFTER_RESOLVED = frozenset({"reopened", "commented", "labelled", "linked"})
FOLDED = tuple(name for name in State.__dataclass_fields__)
