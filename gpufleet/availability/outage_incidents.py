"""Imported outages as incidents of kind `external`, so that counts, repair times and the list know them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q

from gpufleet.core.times import rfc3339
from gpufleet.fleet.models import Cluster
from gpufleet.incidents.lifecycle import Event, apply
from gpufleet.incidents.log import IMPORT, add_event, state_of, write_state
from gpufleet.incidents.models import Incident, IncidentEvent

KIND, RULE = "external", "import"
BATCH = 2_000
TITLE = 255


@dataclass(frozen=True, slots=True)
class PastOutage:
    """Overlapping unplanned rows of one subject. `ends_at` None: still going on."""

    subject: str
    node_id: int
    node: str
    gpu_id: int | None
    gpu_uuid: str
    starts_at: datetime
    ends_at: datetime | None
    reason: str

    @property
    def key(self) -> tuple[str, datetime]:
        return (self.subject, self.starts_at)


def take_in_outages(cluster: Cluster, outages: Sequence[PastOutage], actor: str, now: datetime) -> dict[int, int]:
    """Incident id by the outage's place in `outages`. Outages known already keep their incident; its end is brought
    up to date unless a person resolved or reopened it. Call it inside the import's transaction."""
    known = _known(cluster, {one.subject for one in outages})
    free = _without_unresolved(cluster, outages)
    found: dict[int, int] = {}
    new: list[tuple[int, Incident, list[Event]]] = []
    for place, one in enumerate(outages):
        incident = known.get(one.key)
        if incident is None:
            # A subject has one unresolved incident of a kind: where another source opened it, the import's is closed.
            ends_at = one.ends_at or (None if one.subject in free else now)
            new.append((place, *_made(cluster, one, ends_at, actor, now)))
        else:
            found[place] = incident.pk
            _bring_up_to_date(incident, one.ends_at, actor, now)
    Incident.objects.bulk_create([incident for _, incident, _ in new], batch_size=BATCH)
    rows = [_row(incident, event) for _, incident, events in new for event in events]
    IncidentEvent.objects.bulk_create(rows, batch_size=BATCH)
    found.update({place: incident.pk for place, incident, _ in new})
    return found


def withdraw_outages(cluster: Cluster, subjects: Iterable[str], kept: set[int], actor: str, now: datetime) -> int:
    """Labels as false what an earlier import opened for these subjects and the ledger no longer holds."""
    known = Incident.objects.filter(cluster=cluster, kind=KIND, rule=RULE, subject__in=list(subjects), label="")
    gone = known.exclude(pk__in=kept).select_for_update()
    for incident in gone:
        if incident.resolved_at is None:
            add_event(incident, "resolved", at=now, actor=actor, source=IMPORT)
        detail = {"label": "false", "note": "no longer in the imported record"}
        add_event(incident, "labelled", at=now, actor=actor, source=IMPORT, detail=detail)
    return len(gone)


def _known(cluster: Cluster, subjects: set[str]) -> dict[tuple[str, datetime], Incident]:
    rows = Incident.objects.filter(cluster=cluster, kind=KIND, rule=RULE, subject__in=list(subjects))
    return {(row.subject, row.first_evidence_at): row for row in rows.order_by("id").select_for_update()}


def _without_unresolved(cluster: Cluster, outages: Sequence[PastOutage]) -> set[str]:
    going_on = {one.subject for one in outages if one.ends_at is None}
    taken = Incident.objects.filter(cluster=cluster, kind=KIND, subject__in=list(going_on), resolved_at=None)
    return going_on - set(taken.values_list("subject", flat=True))


def _made(
    cluster: Cluster, one: PastOutage, ends_at: datetime | None, actor: str, now: datetime
) -> tuple[Incident, list[Event]]:
    events = [Event("opened", one.starts_at, actor, IMPORT, _opening(one))]
    if ends_at is not None:
        events.append(Event("resolved", ends_at, actor, IMPORT, {}))
    incident = Incident(
        cluster=cluster, kind=KIND, subject=one.subject, node_id=one.node_id, gpu_id=one.gpu_id,
        last_seen_at=ends_at or now,
    )  # fmt: skip
    state = state_of(Incident())
    for event in events:
        state = apply(state, event)
    write_state(incident, state)
    return incident, events


def _opening(one: PastOutage) -> dict[str, object]:
    evidence = {
        "signal": "imported_outage",
        "node": one.node,
        "gpu_uuid": one.gpu_uuid or None,
        "at": one.starts_at.timestamp(),
        "value": None,
        "expected": None,
    }
    return {
        "severity": "critical",
        "title": (one.reason or "Outage from an imported record")[:TITLE],
        "recommended_action": "none",
        "rule": RULE,
        "paged": False,
        "needs_person": False,
        "occurrence": f"import {rfc3339(one.starts_at)}",
        "event_at": one.starts_at.isoformat(),
        "evidence": [evidence],
        "first_evidence_at": one.starts_at.isoformat(),
    }


def _bring_up_to_date(incident: Incident, ends_at: datetime | None, actor: str, now: datetime) -> None:
    if incident.resolved_at == ends_at or _a_person_decided(incident):
        return
    if incident.resolved_at is not None:
        other = Incident.objects.filter(cluster=incident.cluster, kind=KIND, subject=incident.subject, resolved_at=None)
        if ends_at is None and other.exists():
            return
        add_event(incident, "reopened", at=now, actor=actor, source=IMPORT)
    if ends_at is not None:
        add_event(incident, "resolved", at=ends_at, actor=actor, source=IMPORT)


def _a_person_decided(incident: Incident) -> bool:
    return incident.events.exclude(source=IMPORT).filter(Q(verb="resolved") | Q(verb="reopened")).exists()


def _row(incident: Incident, event: Event) -> IncidentEvent:
    return IncidentEvent(
        incident=incident, at=event.at, actor=event.actor, source=event.source, verb=event.verb,
        detail=dict(event.detail),
    )  # fmt: skip
