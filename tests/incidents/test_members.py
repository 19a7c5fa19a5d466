"""Members that outlive their cause, evidence at its limits, and breaches that are no race."""

from __future__ import annotations

import math
from typing import Any

import pytest
from django.db import IntegrityError
from incident_findings import START, at, finding

from gpufleet.accounts.models import User
from gpufleet.detect.findings import Evidence, Status
from gpufleet.fleet.models import Cluster, MaintenanceWindow, Node
from gpufleet.incidents import actions, intake, queries
from gpufleet.incidents.intake import sweep, take_in
from gpufleet.incidents.models import Incident

NODE = "node:gpu-n01"
MISSING: dict[str, Any] = {"kind": "gpu_missing", "cause": f"node_down|{NODE}"}
QUIET = 600


def node_dies_and_comes_back_without_a_gpu() -> tuple[Incident, Incident]:
    down: dict[str, Any] = {"kind": "node_down", "subject": NODE, "gpu_uuid": None, "slot": None}
    take_in(Cluster.objects.get(), [finding(0, **down), finding(0, **MISSING)], at(0))
    take_in(Cluster.objects.get(), [finding(60, Status.CLEAR, **down), finding(60, **MISSING)], at(60))
    return Incident.objects.get(kind="node_down"), Incident.objects.get(kind="gpu_missing")


def test_member_that_outlives_its_cause_stands_alone_and_pages(cluster: Cluster) -> None:
    cause, member = node_dies_and_comes_back_without_a_gpu()
    assert (member.parent_id, member.paged) == (cause.pk, False)
    assert sweep(at(60 + QUIET - 1)) == []
    changes = [(change.incident_id, change.verb, change.paged) for change in sweep(at(60 + QUIET))]
    assert changes == [(cause.pk, "resolved", False), (member.pk, "unlinked", True)]
    member.refresh_from_db()
    assert (member.parent_id, member.paged, member.resolved_at) == (None, True, None)
    assert queries.open_incidents(cluster) == [member]
    assert sweep(at(60 + QUIET)) == []


def test_member_stays_when_it_recovered_with_its_cause(cluster: Cluster) -> None:
    cause, member = node_dies_and_comes_back_without_a_gpu()
    take_in(cluster, [finding(75, Status.CLEAR, **MISSING)], at(75))
    assert {change.verb for change in sweep(at(75 + QUIET))} == {"resolved"}
    member.refresh_from_db()
    assert (member.parent_id, member.paged, member.resolved_at) == (cause.pk, False, at(75 + QUIET))


def test_person_who_ended_the_cause_is_not_woken_by_what_is_left(cluster: Cluster, ana: User) -> None:
    cause, member = node_dies_and_comes_back_without_a_gpu()
    actions.resolve(cause.pk, ana, now=at(70), source="page")
    assert [(change.incident_id, change.verb, change.paged) for change in sweep(at(75))] == [
        (member.pk, "unlinked", False)
    ]


def test_planned_time_does_not_page_for_what_is_left(cluster: Cluster) -> None:
    node_dies_and_comes_back_without_a_gpu()
    MaintenanceWindow.objects.create(
        node=Node.objects.get(), starts_at=at(600), ends_at=at(900), reason="swap", created_by="ana", created_at=at(0)
    )
    assert [change.paged for change in sweep(at(60 + QUIET))] == [False, False]


def test_repeat_that_lost_the_race_moves_last_seen(cluster: Cluster) -> None:
    take_in(cluster, [finding(0)], at(0))
    assert intake._carry_on(Incident.objects.get().pk, finding(15), at(15)) == []
    assert Incident.objects.get().last_seen_at == at(15)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_number_that_json_does_not_know_is_unknown(cluster: Cluster, value: float) -> None:
    piece = Evidence("gpu_temperature_celsius", "gpu-n01", None, START.timestamp(), value, 93.0)
    take_in(cluster, [finding(0, evidence=(piece,))], at(0))
    assert [(one["value"], one["expected"]) for one in Incident.objects.get().evidence] == [(None, 93.0)]


def test_evidence_is_never_empty(cluster: Cluster) -> None:
    told = finding(0, evidence=())
    take_in(cluster, [told], at(0))
    assert [(one["signal"], one["value"]) for one in Incident.objects.get().evidence] == [(told.rule, told.title)]


def test_breach_that_is_no_race_is_raised(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def broken(*args: object, **kwargs: object) -> None:
        tried.append(args)
        raise IntegrityError("another constraint")

    monkeypatch.setattr(intake, "add_event", broken)
    with pytest.raises(IntegrityError, match="another constraint"):
        take_in(cluster, [finding(0)], at(0))
    assert len(tried) == intake.MOST_ATTEMPTS
    assert Incident.objects.count() == 0
