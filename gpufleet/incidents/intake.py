"""Takes in what detection found: opens, extends, recovers and, after the quiet time, resolves incidents.

Safe to run twice and at the same time as itself: the partial unique index lets one opening win, every change is made
under the row's lock, and each named occurrence counts once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import Q

from gpufleet.core.times import from_unix
from gpufleet.detect.findings import Evidence, Finding, Status
from gpufleet.fleet.models import Cluster, Gpu, MaintenanceWindow, Node
from gpufleet.incidents.lifecycle import SEVERITIES
from gpufleet.incidents.log import RULE, add_event
from gpufleet.incidents.models import Incident

CONTINUES_SECONDS = 300
MOST_EVIDENCE_A_FINDING = 16
MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Change:
    """One event that intake wrote."""

    incident_id: int
    verb: str
    paged: bool = False


def continues() -> timedelta:
    """How long a fault may be unheard of and still be the same: five minutes, four intervals where they are long."""
    return timedelta(seconds=max(CONTINUES_SECONDS, 4 * settings.ENV["GPUFLEET_INTERVAL_SECONDS"]))


def take_in(cluster: Cluster, findings: Sequence[Finding], now: datetime) -> list[Change]:
    """Carries findings into incidents, parents before their members. Returns what changed, in order."""
    if not findings:
        return []
    keys = Q()
    for kind, subject in {(finding.kind, finding.subject) for finding in findings}:
        keys |= Q(kind=kind, subject=subject)
    unresolved = Incident.objects.filter(keys, cluster=cluster, resolved_at=None)
    known = {(incident.kind, incident.subject): incident for incident in unresolved}
    changes: list[Change] = []
    still: list[int] = []
    for finding in sorted(findings, key=lambda one: bool(one.cause)):
        incident = known.get((finding.kind, finding.subject))
        if incident is None:
            changes.extend(_open_new(cluster, finding, now) if finding.status is Status.FIRING else [])
        elif _is_quiet_repeat(incident, finding):
            still.append(incident.pk)
        else:
            changes.extend(_carry_on(incident.pk, finding, now))
    # A fault that goes on is no event: one update for all of them, only forward.
    Incident.objects.filter(pk__in=still, last_seen_at__lt=now).update(last_seen_at=now)
    return changes


def _is_quiet_repeat(incident: Incident, finding: Finding) -> bool:
    """A firing finding that only says again what the incident knows."""
    return (
        finding.status is Status.FIRING
        and incident.recovered_at is None
        and incident.no_data_since is None
        and not _is_new_occurrence(incident, finding)
        and not _is_worse(incident, finding)
        and not (finding.cause and incident.parent_id is None)
    )


def _is_new_occurrence(incident: Incident, finding: Finding) -> bool:
    return bool(finding.occurrence) and finding.occurrence not in incident.occurrence_ids


def _is_worse(incident: Incident, finding: Finding) -> bool:
    return SEVERITIES.index(finding.severity) > SEVERITIES.index(incident.severity)


def _open_new(cluster: Cluster, finding: Finding, now: datetime, attempts: int = MOST_ATTEMPTS) -> list[Change]:
    """Opens an incident, unless this very happening was dealt with before. A race lost goes on with the winner's."""
    if _dealt_with(cluster, finding, now):
        return []
    try:
        with transaction.atomic():
            incident = _new_row(cluster, finding, now)
            detail = _opening(finding, _pages(cluster, finding, now), _parent_id(cluster, finding))
            add_event(incident, "opened", at=now, actor="", source=RULE, detail=detail)
            adopted = _adopt_members(incident, finding, now)
    except IntegrityError:
        winner = _unresolved(cluster, finding)
        if winner is not None:
            return _carry_on(winner.pk, finding, now)
        # The winner was resolved in between, so the key is free again. Any other breach stays one.
        if attempts == 1:
            raise
        return _open_new(cluster, finding, now, attempts - 1)
    return [Change(incident.pk, "opened", incident.paged), *adopted]


def _dealt_with(cluster: Cluster, finding: Finding, now: datetime) -> bool:
    """A resolved incident stays resolved for an occurrence it knows, and while its fault just goes on; one that a
    person called known also when nobody could see it for a while."""
    same = Incident.objects.filter(cluster=cluster, kind=finding.kind, subject=finding.subject)
    last = same.exclude(resolved_at=None).order_by("-id").first()
    if last is None:
        return False
    if finding.occurrence:
        return finding.occurrence in last.occurrence_ids
    if last.label == "known" and last.resolved_at and from_unix(finding.first_evidence_at) <= last.resolved_at:
        return True
    if last.recovered_at is not None or now - last.last_seen_at > continues():
        return False
    Incident.objects.filter(pk=last.pk, last_seen_at__lt=now).update(last_seen_at=now)
    return True


def _new_row(cluster: Cluster, finding: Finding, now: datetime) -> Incident:
    node = Node.objects.filter(cluster=cluster, name=finding.node).first() if finding.node else None
    gpu = Gpu.objects.filter(cluster=cluster, uuid=finding.gpu_uuid).first() if finding.gpu_uuid else None
    return Incident(
        cluster=cluster,
        kind=finding.kind,
        subject=finding.subject,
        node=node,
        gpu=gpu,
        slot=finding.slot,
        last_seen_at=now,
    )


def _opening(finding: Finding, pages: bool, parent_id: int | None) -> dict[str, Any]:
    return {
        **_statement(finding, pages and parent_id is None),
        **_occurrence(finding),
        "first_evidence_at": from_unix(finding.first_evidence_at).isoformat(),
        **({"parent_id": parent_id} if parent_id is not None else {}),
    }


def _statement(finding: Finding, pages: bool) -> dict[str, Any]:
    return {
        "severity": finding.severity,
        "title": finding.title[:255],
        "recommended_action": finding.recommended_action,
        "rule": finding.rule,
        "paged": pages,
        "needs_person": finding.needs_person,
    }


def _occurrence(finding: Finding) -> dict[str, Any]:
    pieces = finding.evidence or (_rule_as_evidence(finding),)
    evidence = [
        {
            "signal": piece.signal,
            "node": piece.node,
            "gpu_uuid": piece.gpu_uuid,
            "at": piece.at,
            "value": _finite(piece.value),
            "expected": _finite(piece.expected),
        }
        for piece in pieces[:MOST_EVIDENCE_A_FINDING]
    ]
    found = {"evidence": evidence, "event_at": from_unix(finding.first_evidence_at).isoformat()}
    return {**found, "occurrence": finding.occurrence} if finding.occurrence else found


def _rule_as_evidence(finding: Finding) -> Evidence:
    """Evidence is never empty: a rule that names none is itself what was seen."""
    return Evidence(finding.rule, finding.node, finding.gpu_uuid, finding.first_evidence_at, finding.title, None)


def _finite(value: float | str | None) -> float | str | None:
    """JSON knows neither NaN nor infinity: they are unknown."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _pages(cluster: Cluster, finding: Finding, now: datetime) -> bool:
    """The default policy: critical pages, warning pages unless its rule says not, info never; planned time is mute."""
    if finding.severity == "info" or (finding.severity == "warning" and not finding.pages):
        return False
    return finding.node is None or not _is_planned(cluster, finding.node, now)


def _is_planned(cluster: Cluster, node: str, now: datetime) -> bool:
    windows = MaintenanceWindow.objects.filter(node__cluster=cluster, node__name=node)
    return windows.filter(starts_at__lte=now, ends_at__gt=now).exists()


def _unresolved(cluster: Cluster, finding: Finding) -> Incident | None:
    return Incident.objects.filter(
        cluster=cluster, kind=finding.kind, subject=finding.subject, resolved_at=None
    ).first()


def _parent_id(cluster: Cluster, finding: Finding) -> int | None:
    kind, _, subject = finding.cause.partition("|")
    if not finding.cause or (kind, subject) == (finding.kind, finding.subject):
        return None
    parent = Incident.objects.filter(cluster=cluster, kind=kind, subject=subject, resolved_at=None)
    found = parent.values_list("parent_id", "pk").first()
    return None if found is None else found[0] or found[1]


def _adopt_members(incident: Incident, finding: Finding, now: datetime) -> list[Change]:
    """A node that is down is the cause of what its GPUs and exporters show at that time: they become its members."""
    if finding.kind != "node_down" or incident.node is None:
        return []
    since = incident.first_evidence_at - continues()
    members = Incident.objects.select_for_update().filter(
        cluster=incident.cluster, node=incident.node, resolved_at=None, parent=None, recovered_at=None,
        kind__in=("exporter_down", "gpu_missing", "telemetry_frozen"), first_evidence_at__gte=since,
    )  # fmt: skip
    changes = []
    for member in members.exclude(pk=incident.pk):
        add_event(member, "linked", at=now, actor="", source=RULE, detail={"parent_id": incident.pk})
        changes.append(Change(member.pk, "linked"))
    return changes


def _carry_on(incident_id: int, finding: Finding, now: datetime) -> list[Change]:
    """What the finding changes in an unresolved incident, under the row's lock."""
    with transaction.atomic():
        incident = Incident.objects.select_for_update().select_related("cluster").get(pk=incident_id)
        if incident.resolved_at is not None:
            return []
        before, seen_at = incident.version, incident.last_seen_at
        verbs = {Status.FIRING: _fires, Status.CLEAR: _clears, Status.UNKNOWN: _loses_data}[finding.status](
            incident, finding, now
        )
        if incident.version == before and finding.status is Status.FIRING and seen_at < now:
            Incident.objects.filter(pk=incident.pk).update(last_seen_at=now)
    return [Change(incident.pk, verb, paged) for verb, paged in verbs]


def _fires(incident: Incident, finding: Finding, now: datetime) -> list[tuple[str, bool]]:
    written: list[tuple[str, bool]] = []
    incident.last_seen_at = max(incident.last_seen_at, now)
    if incident.recovered_at is not None and not (finding.occurrence and finding.occurrence in incident.occurrence_ids):
        _rule_event(incident, "relapsed", now, _occurrence(finding))
        written.append(("relapsed", False))
    elif _is_new_occurrence(incident, finding):
        _rule_event(incident, "extended", now, _occurrence(finding))
        written.append(("extended", False))
    elif incident.no_data_since is not None and not finding.occurrence:
        _rule_event(incident, "data_returned", now, {})
        written.append(("data_returned", False))
    if _is_worse(incident, finding):
        pages = incident.parent_id is None and _pages(incident.cluster, finding, now)
        evidence = _occurrence(finding)["evidence"]
        _rule_event(incident, "escalated", now, {**_statement(finding, pages), "evidence": evidence})
        written.append(("escalated", pages))
    parent_id = _parent_id(incident.cluster, finding) if incident.parent_id is None else None
    if parent_id is not None and parent_id != incident.pk and not incident.children.exists():
        _rule_event(incident, "linked", now, {"parent_id": parent_id})
        written.append(("linked", False))
    return written


def _clears(incident: Incident, finding: Finding, now: datetime) -> list[tuple[str, bool]]:
    if incident.recovered_at is not None:
        return []
    _rule_event(incident, "recovered", now, {"reason": finding.title})
    return [("recovered", False)]


def _loses_data(incident: Incident, finding: Finding, now: datetime) -> list[tuple[str, bool]]:
    if incident.no_data_since is not None or incident.recovered_at is not None:
        return []
    _rule_event(incident, "no_data", now, {})
    return [("no_data", False)]


def _rule_event(incident: Incident, verb: str, now: datetime, detail: dict[str, Any]) -> None:
    add_event(incident, verb, at=max(now, incident.opened_at), actor="", source=RULE, detail=detail)


def sweep(now: datetime, cluster: Cluster | None = None) -> list[Change]:
    """Resolves what has stayed recovered for the quiet time, ends acknowledgements that expire, and frees members that
    outlive their cause. Without a cluster it sweeps all live ones; a replay sweeps itself in its own time."""
    scope = Q(cluster=cluster) if cluster is not None else Q(cluster__is_replay=False)
    quiet = timedelta(seconds=settings.ENV["GPUFLEET_QUIET_SECONDS"])
    due = Incident.objects.filter(scope, resolved_at=None, needs_person=False, recovered_at__lte=now - quiet)
    expired = Incident.objects.filter(scope, resolved_at=None, acknowledgement_expires_at__lte=now)
    changes = [change for pk in due.values_list("pk", flat=True) for change in _resolve_quiet(pk, quiet, now)]
    changes += [change for pk in expired.values_list("pk", flat=True) for change in _expire(pk, now)]
    left = Incident.objects.filter(scope, resolved_at=None, recovered_at=None, parent__resolved_at__isnull=False)
    return changes + [change for pk in left.values_list("pk", flat=True) for change in _stand_alone(pk, now)]


@transaction.atomic
def _resolve_quiet(incident_id: int, quiet: timedelta, now: datetime) -> list[Change]:
    incident = Incident.objects.select_for_update().filter(pk=incident_id, resolved_at=None).first()
    if incident is None or incident.recovered_at is None or incident.recovered_at > now - quiet:
        return []
    at = max(incident.recovered_at + quiet, incident.opened_at)
    _rule_event(incident, "resolved", at, {"reason": f"quiet for {int(quiet.total_seconds())} s"})
    return [Change(incident.pk, "resolved")]


@transaction.atomic
def _expire(incident_id: int, now: datetime) -> list[Change]:
    incident = Incident.objects.select_for_update().filter(pk=incident_id, resolved_at=None).first()
    if incident is None or incident.acknowledgement_expires_at is None or incident.acknowledgement_expires_at > now:
        return []
    _rule_event(incident, "acknowledgement_expired", now, {})
    return [Change(incident.pk, "acknowledgement_expired")]


@transaction.atomic
def _stand_alone(incident_id: int, now: datetime) -> list[Change]:
    """A member that still fails after its cause was resolved is a fault of its own, and shown as one.

    It pages if it is critical and woke nobody yet, unless a person ended the cause: they know what is left of it.
    """
    rows = Incident.objects.select_related("cluster", "node", "parent").select_for_update(of=("self",))
    incident = rows.filter(pk=incident_id, resolved_at=None, recovered_at=None).first()
    if incident is None or incident.parent is None or incident.parent.resolved_at is None:
        return []
    planned = incident.node is not None and _is_planned(incident.cluster, incident.node.name, now)
    unheard = incident.severity == "critical" and not incident.paged and not incident.parent.resolved_by
    pages = unheard and not planned
    _rule_event(incident, "unlinked", now, {"from": incident.parent_id, "paged": pages})
    return [Change(incident.pk, "unlinked", pages)]
