"""What a person does to an incident. One function a verb, one transaction, one event, one audit entry."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction

from gpufleet.accounts import audit
from gpufleet.accounts.models import Role, User
from gpufleet.incidents.log import add_event
from gpufleet.incidents.models import Incident

MAX_TEXT = 4000
LONGEST_SNOOZE = timedelta(days=90)
STILL_SEEN_SECONDS = 120
LABELS = ("real", "false", "known")


class NotFound(Exception):
    """There is no such incident."""


class Conflict(Exception):
    """The incident is not as the caller believes; `incident` is as it is now."""

    def __init__(self, incident: Incident, message: str) -> None:
        super().__init__(message)
        self.incident = incident


class StillFailing(Conflict):
    """Resolving needs `force` while the fault is still seen."""


class Invalid(ValueError):
    """An argument that cannot be used; `field` names it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class Act:
    """One act in progress: the locked row, and how to write the event."""

    def __init__(self, incident: Incident, actor: User, now: datetime, source: str) -> None:
        self.incident, self.actor, self.now, self.source = incident, actor, now, source

    def write(self, verb: str, audit_verb: str, **detail: object) -> Incident:
        kept = {name: value for name, value in detail.items() if value not in (None, "")}
        name = self.actor.username
        add_event(self.incident, verb, at=self.now, actor=name, source=self.source, detail=kept)
        audit.record(
            at=self.now,
            actor=name,
            source=self.source,
            verb=f"incident.{audit_verb}",
            subject=f"incident:{self.incident.pk}",
            detail=kept,
        )
        return self.incident


@contextmanager
def _acting(incident_id: int, actor: User, now: datetime, source: str, version: int | None) -> Iterator[Act]:
    with transaction.atomic():
        related = Incident.objects.select_related("cluster", "node", "gpu")
        incident = related.select_for_update(of=("self",)).filter(pk=incident_id).first()
        if incident is None:
            raise NotFound(f"there is no incident {incident_id}")
        if version is not None and version != incident.version:
            raise Conflict(incident, f"It has changed since: it is at version {incident.version}, not {version}.")
        yield Act(incident, actor, max(now, incident.opened_at), source)


def acknowledge(
    incident_id: int, actor: User, *, now: datetime, source: str, version: int | None = None, note: str = "",
    expires_at: datetime | None = None,
) -> Incident:  # fmt: skip
    """Somebody takes it. One's own again changes nothing; somebody else's is a Conflict that names them."""
    _check_text("note", note)
    if expires_at is not None and expires_at <= now:
        raise Invalid("expires_at", "an acknowledgement cannot expire in the past")
    with _acting(incident_id, actor, now, source, None) as act:
        incident = act.incident
        if incident.acknowledged_by == actor.username and incident.resolved_at is None:
            return incident
        if version is not None and version != incident.version:
            raise Conflict(incident, f"It has changed since: it is at version {incident.version}, not {version}.")
        _refuse_resolved(incident)
        if incident.acknowledged_at is not None:
            raise Conflict(incident, f"{incident.acknowledged_by} has acknowledged it already.")
        until = expires_at.isoformat() if expires_at else None
        return act.write("acknowledged", "acknowledge", note=note, expires_at=until)


def unacknowledge(
    incident_id: int, actor: User, *, now: datetime, source: str, version: int | None = None, note: str = ""
) -> Incident:
    """Gives it back. Without an acknowledgement nothing changes."""
    _check_text("note", note)
    with _acting(incident_id, actor, now, source, version) as act:
        _refuse_resolved(act.incident)
        if act.incident.acknowledged_at is None:
            return act.incident
        return act.write("unacknowledged", "unacknowledge", note=note)


def assign(
    incident_id: int, actor: User, *, now: datetime, source: str, version: int | None = None, assignee: str | None
) -> Incident:
    """Names who is to deal with it: a user, or None for nobody."""
    known = User.objects.filter(username=assignee, is_active=True).exclude(role=Role.INGEST)
    if assignee and not known.exists():
        raise Invalid("user", f"there is no active user {assignee!r}")
    with _acting(incident_id, actor, now, source, version) as act:
        _refuse_resolved(act.incident)
        if act.incident.assignee == (assignee or ""):
            return act.incident
        return act.write("assigned", "assign", assignee=assignee)


def snooze(
    incident_id: int, actor: User, *, now: datetime, source: str, version: int | None = None, until: datetime
) -> Incident:
    """Keeps it quiet until then, through flapping. At most 90 days."""
    if not now < until <= now + LONGEST_SNOOZE:
        raise Invalid("until", "a snooze ends in the future, at most 90 days from now")
    with _acting(incident_id, actor, now, source, version) as act:
        _refuse_resolved(act.incident)
        return act.write("snoozed", "snooze", until=until.isoformat())


def comment(
    incident_id: int, actor: User, *, now: datetime, source: str, version: int | None = None, text: str
) -> Incident:
    """Adds words; also after it was resolved."""
    _check_text("text", text)
    if not text.strip():
        raise Invalid("text", "a comment needs words")
    with _acting(incident_id, actor, now, source, version) as act:
        return act.write("commented", "comment", text=text)


def label(
    incident_id: int, actor: User, *, now: datetime, source: str, version: int | None = None, label: str, note: str = ""
) -> Incident:
    """Says whether it was real, false or known; also after it was resolved."""
    if label not in LABELS:
        raise Invalid("label", f"a label is one of {', '.join(LABELS)}")
    _check_text("note", note)
    with _acting(incident_id, actor, now, source, version) as act:
        return act.write("labelled", "label", label=label, note=note)


def resolve(
    incident_id: int, actor: User, *, now: datetime, source: str, version: int | None = None, note: str = "",
    force: bool = False,
) -> Incident:  # fmt: skip
    """Ends it. StillFailing while the fault is seen, unless `force`. Resolved already: nothing changes."""
    _check_text("note", note)
    with _acting(incident_id, actor, now, source, version) as act:
        incident = act.incident
        if incident.resolved_at is not None:
            return incident
        if is_still_seen(incident, act.now) and not force:
            raise StillFailing(incident, "The fault is still seen. Resolve it with force if you know better.")
        return act.write("resolved", "resolve", note=note, force=force or None)


def still_seen_for() -> timedelta:
    """How long after its last sight a fault counts as seen: two minutes, four intervals where they are long."""
    return timedelta(seconds=max(STILL_SEEN_SECONDS, 4 * settings.ENV["GPUFLEET_INTERVAL_SECONDS"]))


def is_still_seen(incident: Incident, now: datetime) -> bool:
    """The fault was seen lately and its end was not; without data nobody can tell, which is no recovery."""
    if incident.recovered_at is not None:
        return False
    return incident.no_data_since is not None or now - incident.last_seen_at <= still_seen_for()


def reopen(
    incident_id: int, actor: User, *, now: datetime, source: str, version: int | None = None, note: str = ""
) -> Incident:
    """Takes it up again. Conflict when another one of the same kind and subject is open."""
    _check_text("note", note)
    with _acting(incident_id, actor, now, source, version) as act:
        incident = act.incident
        if incident.resolved_at is None:
            return incident
        same = Incident.objects.filter(cluster=incident.cluster, kind=incident.kind, subject=incident.subject)
        other = same.filter(resolved_at=None).first()
        if other is not None:
            raise Conflict(incident, f"Incident {other.pk} of the same kind on the same part is open: use that one.")
        return act.write("reopened", "reopen", note=note)


def _refuse_resolved(incident: Incident) -> None:
    if incident.resolved_at is not None:
        raise Conflict(incident, "It is resolved. Reopen it first.")


def _check_text(field: str, text: str) -> None:
    if len(text) > MAX_TEXT:
        raise Invalid(field, f"at most {MAX_TEXT} characters")
    if "\x00" in text:
        raise Invalid(field, "the text holds a NUL character")
