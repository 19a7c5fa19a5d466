"""Every verb of a person: what it writes, what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from incident_findings import at, finding

from gpufleet.accounts.models import AuditEntry, User
from gpufleet.detect.findings import Status
from gpufleet.fleet.models import Cluster
from gpufleet.incidents import actions, intake, queries
from gpufleet.incidents.intake import take_in
from gpufleet.incidents.models import Incident, IncidentEvent


@pytest.fixture
def incident(cluster: Cluster) -> Incident:
    take_in(cluster, [finding(0)], at(0))
    return Incident.objects.get()


def act(verb: Callable[..., Incident], incident: Incident, user: User, seconds: float = 30, **more: Any) -> Incident:
    return verb(incident.pk, user, now=at(seconds), source="api", **more)


VERBS: list[tuple[str, Callable[..., Incident], dict[str, Any], str]] = [
    ("acknowledge", actions.acknowledge, {"note": "on it"}, "acknowledged"),
    ("assign", actions.assign, {"assignee": "bo"}, "assigned"),
    ("snooze", actions.snooze, {"until": at(3600)}, "snoozed"),
    ("comment", actions.comment, {"text": "riser swap at 14:00"}, "commented"),
    ("label", actions.label, {"label": "real"}, "labelled"),
    ("resolve", actions.resolve, {"force": True}, "resolved"),
]


@pytest.mark.parametrize(("name", "verb", "arguments", "event"), VERBS)
def test_a_verb_leaves_one_event_and_one_audit_entry(
    incident: Incident,
    ana: User,
    bo: User,
    name: str,
    verb: Callable[..., Incident],
    arguments: dict[str, Any],
    event: str,
) -> None:
    changed = act(verb, incident, ana, **arguments)
    assert changed.version == incident.version + 1
    last = queries.events(incident.pk)[-1]
    assert (last.verb, last.actor, last.source, last.at) == (event, "ana", "api", at(30))
    entry = AuditEntry.objects.get(subject=f"incident:{incident.pk}")
    assert (entry.verb, entry.actor, entry.detail) == (f"incident.{name}", "ana", last.detail)


@pytest.mark.parametrize(("name", "verb", "arguments", "event"), VERBS)
def test_a_stale_version_is_a_conflict_that_shows_the_incident_and_changes_nothing(
    incident: Incident,
    ana: User,
    bo: User,
    name: str,
    verb: Callable[..., Incident],
    arguments: dict[str, Any],
    event: str,
) -> None:
    act(actions.comment, incident, bo, text="first")
    with pytest.raises(actions.Conflict) as caught:
        act(verb, incident, ana, version=incident.version, **arguments)
    assert caught.value.incident.version == incident.version + 1
    assert IncidentEvent.objects.count() == 2
    assert AuditEntry.objects.count() == 1


def test_own_acknowledgement_again_changes_nothing_and_somebody_elses_names_them(
    incident: Incident, ana: User, bo: User
) -> None:
    first = act(actions.acknowledge, incident, ana, 10)
    again = act(actions.acknowledge, incident, ana, 20, version=incident.version)
    assert (again.version, again.acknowledged_at) == (first.version, at(10))
    with pytest.raises(actions.Conflict, match="ana has acknowledged it already"):
        act(actions.acknowledge, incident, bo, 30)
    incident.refresh_from_db()
    assert (incident.acknowledged_by, incident.version) == ("ana", first.version)


def test_acknowledgement_can_be_given_back(incident: Incident, ana: User) -> None:
    act(actions.acknowledge, incident, ana)
    changed = act(actions.unacknowledge, incident, ana, 40, note="went home")
    assert (changed.acknowledged_at, changed.acknowledged_by) == (None, "")
    assert act(actions.unacknowledge, incident, ana, 50).version == changed.version


def test_resolving_while_still_failing_needs_force(incident: Incident, ana: User) -> None:
    with pytest.raises(actions.StillFailing):
        act(actions.resolve, incident, ana)
    incident.refresh_from_db()
    assert incident.resolved_at is None
    assert act(actions.resolve, incident, ana, force=True).resolved_at == at(30)


def test_resolving_after_recovery_needs_no_force(incident: Incident, cluster: Cluster, ana: User) -> None:
    take_in(cluster, [finding(15, Status.CLEAR)], at(15))
    changed = act(actions.resolve, incident, ana, 20)
    assert (changed.resolved_at, changed.resolved_by) == (at(20), "ana")
    assert act(actions.resolve, incident, ana, 25).version == changed.version


def test_without_data_a_fault_counts_as_still_seen(incident: Incident, cluster: Cluster, ana: User) -> None:
    take_in(cluster, [finding(15, Status.UNKNOWN)], at(15))
    with pytest.raises(actions.StillFailing):
        act(actions.resolve, incident, ana, 100_000)


def test_reopen_takes_it_up_again_unless_another_is_open(incident: Incident, cluster: Cluster, ana: User) -> None:
    act(actions.acknowledge, incident, ana)
    act(actions.resolve, incident, ana, force=True)
    reopened = act(actions.reopen, incident, ana, 60, note="not fixed")
    assert (reopened.resolved_at, reopened.acknowledged_at) == (None, None)
    act(actions.resolve, incident, ana, 70, force=True)
    take_in(cluster, [finding(5000)], at(5000))
    with pytest.raises(actions.Conflict, match="of the same kind on the same part is open"):
        act(actions.reopen, incident, ana, 5010)
    incident.refresh_from_db()
    assert incident.resolved_at == at(70)


@pytest.mark.parametrize(
    ("verb", "arguments", "field"),
    [
        (actions.acknowledge, {"note": "x" * 4001}, "note"),
        (actions.acknowledge, {"note": "a\x00b"}, "note"),
        (actions.acknowledge, {"expires_at": at(29)}, "expires_at"),
        (actions.assign, {"assignee": "nobody-we-know"}, "user"),
        (actions.snooze, {"until": at(30)}, "until"),
        (actions.snooze, {"until": at(91 * 86400)}, "until"),
        (actions.comment, {"text": "  "}, "text"),
        (actions.label, {"label": "maybe"}, "label"),
    ],
)
def test_what_cannot_be_used_is_refused_by_field_and_changes_nothing(
    incident: Incident, ana: User, verb: Callable[..., Incident], arguments: dict[str, Any], field: str
) -> None:
    with pytest.raises(actions.Invalid) as caught:
        act(verb, incident, ana, **arguments)
    assert caught.value.field == field
    incident.refresh_from_db()
    assert incident.version == 1
    assert AuditEntry.objects.count() == 0


def test_after_resolving_only_words_may_follow(incident: Incident, ana: User) -> None:
    act(actions.resolve, incident, ana, force=True)
    for verb, arguments in (
        (actions.acknowledge, {}),
        (actions.snooze, {"until": at(3600)}),
        (actions.assign, {"assignee": "ana"}),
    ):
        with pytest.raises(actions.Conflict, match="Reopen it first"):
            act(verb, incident, ana, **arguments)
    assert act(actions.comment, incident, ana, text="board 3 swapped").version == 3
    assert act(actions.label, incident, ana, label="real").label == "real"


def test_unknown_incident(ana: User) -> None:
    with pytest.raises(actions.NotFound):
        actions.acknowledge(987654, ana, now=at(0), source="api")


@pytest.mark.parametrize(("interval", "seconds"), [(15, 120), (60, 240), (300, 1200)])
def test_a_fault_stays_seen_for_four_long_intervals(settings: Any, interval: int, seconds: int) -> None:
    settings.ENV = {**settings.ENV, "GPUFLEET_INTERVAL_SECONDS": interval}
    assert actions.still_seen_for().total_seconds() == seconds
    assert intake.continues().total_seconds() == max(300, 4 * interval)
