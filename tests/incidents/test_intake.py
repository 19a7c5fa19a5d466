"""From findings to incidents: cases of flapping, repeats, lost data, races and people."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from django.db import connection
from incident_findings import START, at, finding
from shared import case

from gpufleet.accounts.models import User
from gpufleet.detect.findings import Status
from gpufleet.fleet.models import Cluster, MaintenanceWindow, Node
from gpufleet.incidents import actions, queries
from gpufleet.incidents.intake import Change, sweep, take_in
from gpufleet.incidents.lifecycle import fold
from gpufleet.incidents.log import events_of, state_of
from gpufleet.incidents.models import Incident, IncidentEvent


@pytest.fixture(autouse=True)
def rows_are_folds(db: None) -> Iterator[None]:
    """After every test each incident's row equals the fold of its events."""
    yield
    for incident in Incident.objects.all():
        assert state_of(incident) == fold(events_of(queries.events(incident.pk)))


def verbs(incident: Incident) -> list[str]:
    return [event.verb for event in queries.events(incident.pk)]


def only() -> Incident:
    return Incident.objects.get()


def pages(changes: list[Change]) -> int:
    return sum(change.paged for change in changes)


def test_opens_once_and_repeats_are_no_events(cluster: Cluster) -> None:
    changes = take_in(cluster, [finding(0)], at(0))
    assert [(change.verb, change.paged) for change in changes] == [("opened", True)]
    assert take_in(cluster, [finding(15, first_evidence_at=START.timestamp())], at(15)) == []
    incident = only()
    assert (incident.opened_at, incident.last_seen_at, incident.occurrences) == (at(0), at(15), 1)
    assert verbs(incident) == ["opened"]


def test_case_031_flapping_is_one_incident_and_one_page(cluster: Cluster) -> None:
    folder, expected = case("031")
    numbers = expected["numbers"]
    paged = 0
    for seconds in range(0, 1800, 10):
        on = seconds < 1090 and seconds % 200 < 90
        status = Status.FIRING if on else Status.CLEAR
        paged += pages(take_in(cluster, [finding(seconds, status)], at(seconds)))
        paged += pages(sweep(at(seconds)))
    incident = only()
    assert (Incident.objects.count(), paged, incident.occurrences) == (
        numbers["incidents"],
        numbers["pages"],
        numbers["occurrences"],
    )
    assert incident.resolved_at == at(numbers["resolved_at_s"])


@pytest.mark.parametrize(("rises", "expected_pages"), [(False, 1), (True, 2)])
def test_case_032_repeats_keep_what_people_wrote(cluster: Cluster, ana: User, rises: bool, expected_pages: int) -> None:
    _, expected = case("032")
    paged = pages(take_in(cluster, [finding(0, severity="warning")], at(0)))
    incident = only()
    actions.acknowledge(incident.pk, ana, now=at(120), source="page", note="riser swap at 14:00")
    actions.comment(incident.pk, ana, now=at(121), source="page", text="HW-17")
    for seconds in range(60, 3601, 60):
        severity = "critical" if rises and seconds >= 1800 else "warning"
        paged += pages(take_in(cluster, [finding(seconds, severity=severity)], at(seconds)))
    incident.refresh_from_db()
    assert paged == expected_pages == expected["numbers"]["pages_variant_B" if rises else "pages"]
    assert (incident.acknowledged_by, incident.last_seen_at) == ("ana", at(3600))
    take_in(cluster, [finding(3660, Status.CLEAR)], at(3660))
    sweep(at(4260))
    incident.refresh_from_db()
    assert (incident.resolved_at, incident.acknowledged_by) == (at(4260), "ana")
    assert Incident.objects.count() == expected["numbers"]["incidents"]
    notes = [event.detail for event in queries.events(incident.pk) if event.verb in ("acknowledged", "commented")]
    assert notes == [{"note": "riser swap at 14:00"}, {"text": "HW-17"}]


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("workers", [2, 20])
def test_case_034_many_workers_open_one(workers: int) -> None:
    case("034")
    cluster = Cluster.objects.create(name="default")
    barrier = threading.Barrier(workers)
    changes: list[Change] = []
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            barrier.wait()
            named = finding(0, kind="gpu_missing", occurrence=f"seen by {number}", node=None)
            changes.extend(take_in(cluster, [named], at(0)))
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    incident = only()
    assert (incident.occurrences, pages(changes)) == (workers, 1)
    actions.resolve(incident.pk, User.objects.create(username="ana"), now=at(30), source="api", force=True)
    take_in(cluster, [finding(900, kind="gpu_missing", occurrence="later", node=None)], at(900))
    assert Incident.objects.count() == 2


def test_case_035_no_data_is_not_recovery(cluster: Cluster) -> None:
    case("035")
    take_in(cluster, [finding(0)], at(0))
    lost = take_in(cluster, [finding(300, Status.UNKNOWN)], at(300))
    take_in(cluster, [finding(315, Status.UNKNOWN)], at(315))
    sweep(at(899))
    incident = only()
    assert [change.verb for change in lost] == ["no_data"]
    assert (incident.no_data_since, incident.recovered_at, incident.resolved_at) == (at(300), None, None)
    take_in(cluster, [finding(900, Status.CLEAR)], at(900))
    incident.refresh_from_db()
    assert (incident.no_data_since, incident.recovered_at) == (None, at(900))


def test_case_025_a_resolved_xid_stays_resolved_for_its_happening(cluster: Cluster, ana: User) -> None:
    case("025")
    happened = finding(60, kind="xid", occurrence="xid:48:60")
    take_in(cluster, [happened], at(60))
    actions.acknowledge(only().pk, ana, now=at(360), source="page")
    resolved = actions.resolve(only().pk, ana, now=at(7260), source="page")
    assert resolved.resolved_at == at(7260)
    assert take_in(cluster, [happened], at(40_090)) == []
    assert only().resolved_at == at(7260)
    take_in(cluster, [finding(90_000, kind="xid", occurrence="xid:48:90000")], at(90_000))
    assert Incident.objects.count() == 2


def test_a_fault_that_a_person_resolved_does_not_come_back_while_it_just_goes_on(cluster: Cluster, ana: User) -> None:
    take_in(cluster, [finding(0)], at(0))
    actions.resolve(only().pk, ana, now=at(10), source="page", force=True)
    for seconds in range(15, 700, 15):
        assert take_in(cluster, [finding(seconds)], at(seconds)) == []
    assert Incident.objects.count() == 1
    changes = take_in(cluster, [finding(1500)], at(1500))
    assert [change.verb for change in changes] == ["opened"]


def test_same_occurrence_counts_once_and_a_new_one_extends(cluster: Cluster) -> None:
    take_in(cluster, [finding(0, kind="xid", occurrence="a")], at(0))
    for seconds in (0, 15):
        take_in(cluster, [finding(seconds, kind="xid", occurrence="a")], at(seconds))
    take_in(cluster, [finding(30, kind="xid", occurrence="b")], at(30))
    incident = only()
    assert (incident.occurrences, incident.occurrence_ids, verbs(incident)) == (2, ["a", "b"], ["opened", "extended"])
    assert len(incident.evidence) == 2


def test_member_points_at_its_cause_and_is_not_paged(cluster: Cluster) -> None:
    subject = finding(0).subject
    cause = finding(0, kind="xid", occurrence="a")
    member = finding(0, kind="gpu_missing", cause=f"xid|{subject}")
    changes = take_in(cluster, [member, cause], at(0))
    parent, child = Incident.objects.get(kind="xid"), Incident.objects.get(kind="gpu_missing")
    assert (child.parent_id, child.paged, parent.paged, pages(changes)) == (parent.pk, False, True, 1)
    assert queries.members(parent.pk) == [child]
    assert queries.open_incidents(cluster) == [parent]


def test_node_down_adopts_what_its_silence_explains(cluster: Cluster) -> None:
    take_in(cluster, [finding(0, kind="gpu_missing")], at(0))
    down = finding(30, kind="node_down", subject="node:gpu-n01", gpu_uuid=None, slot=None)
    take_in(cluster, [down], at(30))
    child, parent = Incident.objects.get(kind="gpu_missing"), Incident.objects.get(kind="node_down")
    assert (child.parent_id, child.paged, parent.paged) == (parent.pk, True, True)


@pytest.mark.parametrize(
    ("severity", "rule_pages", "paged"),
    [("critical", True, True), ("critical", False, True), ("warning", True, True), ("warning", False, False),
     ("info", True, False)],
)  # fmt: skip
def test_default_paging_policy(cluster: Cluster, severity: str, rule_pages: bool, paged: bool) -> None:
    take_in(cluster, [finding(0, severity=severity, pages=rule_pages)], at(0))
    assert only().paged is paged


def test_planned_time_pages_nobody(cluster: Cluster) -> None:
    MaintenanceWindow.objects.create(
        node=Node.objects.get(), starts_at=at(-60), ends_at=at(60), reason="swap", created_by="ana", created_at=at(-60)
    )
    take_in(cluster, [finding(0)], at(0))
    assert only().paged is False


def test_clear_and_unknown_open_nothing(cluster: Cluster) -> None:
    assert take_in(cluster, [finding(0, Status.CLEAR), finding(0, Status.UNKNOWN)], at(0)) == []
    assert IncidentEvent.objects.count() == 0


def test_needs_a_person_is_never_swept(cluster: Cluster) -> None:
    take_in(cluster, [finding(0, needs_person=True)], at(0))
    take_in(cluster, [finding(15, Status.CLEAR)], at(15))
    assert sweep(at(100_000)) == []
    assert only().resolved_at is None


def test_expired_acknowledgement_is_open_again(cluster: Cluster, ana: User) -> None:
    take_in(cluster, [finding(0)], at(0))
    actions.acknowledge(only().pk, ana, now=at(10), source="api", expires_at=at(100))
    assert sweep(at(99)) == []
    assert [change.verb for change in sweep(at(100))] == ["acknowledgement_expired"]
    assert only().acknowledged_at is None


def test_evidence_keeps_the_first_and_the_newest(cluster: Cluster) -> None:
    for number in range(80):
        take_in(cluster, [finding(number, kind="xid", occurrence=str(number))], at(number))
    evidence = only().evidence
    assert len(evidence) == 50
    assert evidence[0]["at"] == START.timestamp()
    assert evidence[-1]["at"] == at(79).timestamp()


def test_open_keys_tell_detection_what_is_open(cluster: Cluster) -> None:
    take_in(cluster, [finding(0, kind="xid", occurrence="a")], at(5))
    take_in(cluster, [finding(60, kind="xid", occurrence="b")], at(65))
    ((key, known),) = queries.open_keys(cluster).items()
    assert key == ("xid", finding(0).subject)
    assert (known.opened_at, known.first_evidence_at, known.last_event_at) == (
        at(5).timestamp(),
        at(0).timestamp(),
        at(60).timestamp(),
    )
