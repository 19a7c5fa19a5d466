"""Silences, maintenance windows and corrected GPU counts over the API."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from api_callers import Caller, assert_problem, body_of, by_token
from factories import MadeFleet

from gpufleet.accounts.models import AuditEntry
from gpufleet.core.times import rfc3339
from gpufleet.fleet.models import MaintenanceWindow
from gpufleet.incidents.models import Silence


@pytest.fixture
def until(now: datetime) -> str:
    return rfc3339((now + timedelta(hours=2)).replace(microsecond=0))


def test_a_silence_of_nodes(fleet: MadeFleet, responder: Caller, until: str) -> None:
    answer = responder.post(
        "silences", {"nodes": ["gpu-002", "gpu-001"], "kind": "thermal", "ends_at": until, "reason": " fans "}
    )
    assert answer.status_code == 201
    made = body_of(answer)["silences"]
    assert [one["node"] for one in made] == ["gpu-001", "gpu-002"]
    assert made[0].keys() == {"id", "cluster", "node", "kind", "starts_at", "ends_at", "reason", "created_by"}
    assert (made[0]["kind"], made[0]["ends_at"], made[0]["reason"]) == ("thermal", until, "fans")
    assert made[0]["created_by"] == "responder"
    assert body_of(responder.get("silences"))["silences"] == made[::-1]
    assert AuditEntry.objects.filter(verb="silence.create", actor="responder", source="api").count() == 2


def test_a_silence_of_the_whole_cluster_ends_once(
    fleet: MadeFleet, responder: Caller, until: str, now: datetime
) -> None:
    (made,) = body_of(responder.post("silences", {"ends_at": until, "reason": "move"}))["silences"]
    assert (made["node"], made["kind"]) == (None, None)
    assert len(body_of(responder.get("silences", at=rfc3339(now + timedelta(hours=1))))["silences"]) == 1
    ended = body_of(responder.post(f"silences/{made['id']}/end"))
    assert ended["ends_at"] < until
    assert body_of(responder.post(f"silences/{made['id']}/end")) == ended
    assert body_of(responder.get("silences", at=rfc3339(now + timedelta(hours=1))))["silences"] == []
    assert Silence.objects.count() == 1


@pytest.mark.parametrize("path", ["silences", "maintenance"])
def test_lists_page_by_key(fleet: MadeFleet, responder: Caller, until: str, path: str) -> None:
    for reason in "abcde":
        responder.post(path, {"nodes": ["gpu-001"], "ends_at": until, "reason": reason})
    first = body_of(responder.get(path, limit=2))
    responder.post(path, {"nodes": ["gpu-002"], "ends_at": until, "reason": "later"})
    second = body_of(responder.get(path, limit=2, cursor=first["next"]))
    third = body_of(responder.get(path, limit=2, cursor=second["next"]))
    assert [row["reason"] for page in (first, second, third) for row in page[path]] == list("edcba")
    assert third["next"] is None


def test_maintenance_of_a_rack_is_announced_once(fleet: MadeFleet, responder: Caller, until: str) -> None:
    starts = rfc3339(datetime.fromisoformat(until) - timedelta(hours=1))
    body = {"rack": "R02", "starts_at": starts, "ends_at": until, "reason": "power"}
    answer = responder.post("maintenance", body)
    assert answer.status_code == 201
    (made,) = body_of(answer)["maintenance"]
    assert {name: made[name] for name in ("node", "cluster", "starts_at", "ends_at", "reason", "created_by")} == {
        "node": "gpu-002",
        "cluster": "default",
        "starts_at": starts,
        "ends_at": until,
        "reason": "power",
        "created_by": "responder",
    }
    assert body_of(responder.post("maintenance", body))["maintenance"] == []
    assert body_of(responder.get("maintenance"))["maintenance"] == [made]


def test_a_window_ends_now(fleet: MadeFleet, responder: Caller, until: str, now: datetime) -> None:
    (made,) = body_of(responder.post("maintenance", {"nodes": ["gpu-001"], "ends_at": until, "reason": "x"}))[
        "maintenance"
    ]
    ended = body_of(responder.post(f"maintenance/{made['id']}/end"))
    assert made["starts_at"] <= ended["ends_at"] < until
    assert body_of(responder.post(f"maintenance/{made['id']}/end")) == ended
    assert MaintenanceWindow.objects.get().ends_at >= now
    assert AuditEntry.objects.filter(verb="end_maintenance").count() == 1


def test_one_unknown_node_refuses_the_whole_window(fleet: MadeFleet, responder: Caller, until: str) -> None:
    body = {"nodes": ["gpu-001", "gpu-999"], "ends_at": until, "reason": "x"}
    assert_problem(responder.post("maintenance", body), 422, "nodes")
    assert_problem(responder.post("silences", body), 422, "nodes")
    assert_problem(responder.post("maintenance", {"ends_at": until, "reason": "x"}), 422, "nodes")
    both = {"nodes": ["gpu-001"], "rack": "R01", "ends_at": until, "reason": "x"}
    assert_problem(responder.post("maintenance", both), 422, "nodes")
    assert not MaintenanceWindow.objects.exists()
    assert not Silence.objects.exists()


def test_expected_gpus_are_corrected_and_given_back(fleet: MadeFleet) -> None:
    admin = by_token("admin")
    path = "nodes/gpu-001/expected-gpus"
    set_to = {"node": "gpu-001", "expected_gpus": 4, "expected_gpus_by": "admin"}
    assert body_of(admin.post(path, {"count": 4})) == set_to
    assert body_of(admin.post(path, {"count": 4})) == set_to
    assert body_of(admin.post(path, {"count": None}))["expected_gpus_by"] is None
    fleet.nodes[0].refresh_from_db()
    assert fleet.nodes[0].expected_gpus == 8
    assert AuditEntry.objects.filter(verb="set_expected_gpus", source="api").count() == 2


@pytest.mark.django_db
def test_nothing_can_be_planned_before_there_is_a_fleet(until: str) -> None:
    responder = by_token("responder")
    assert_problem(responder.post("silences", {"ends_at": until, "reason": "x"}), 404, "cluster")
    assert body_of(responder.get("silences")) == {"silences": [], "next": None}
    assert body_of(responder.get("maintenance")) == {"maintenance": [], "next": None}
    assert body_of(responder.get("trends"))["buckets"] == []
    assert body_of(responder.get("fleet"))["nodes"] == []
    assert body_of(responder.get("availability"))["rows"] == []
    assert body_of(responder.get("targets")) == {"targets": []}
    assert body_of(responder.get("series", metric="gpu_power_watts"))["series"] == []
