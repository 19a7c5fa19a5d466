"""Incidents over the API: exact shapes, lists that page without repeats, verbs, conflicts that carry the incident."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from api_callers import Caller, assert_problem, body_of, by_token
from factories import MadeFleet, make_incident, make_user

from gpufleet.core.times import rfc3339
from gpufleet.fleet.models import Cluster
from gpufleet.incidents.models import Incident, IncidentEvent

FIELDS = {
    "id", "version", "kind", "severity", "cluster", "node", "gpu_uuid", "slot", "opened_at", "first_evidence_at",
    "acknowledged_at", "acknowledged_by", "assignee", "snoozed_until", "label", "resolved_at", "status", "title",
    "recommended_action", "paged", "parent_id", "members", "evidence", "url",
}  # fmt: skip


def test_the_shape(fleet: MadeFleet, viewer: Caller, now: datetime) -> None:
    made = make_incident(fleet, 0, now, slot=5)
    found = body_of(viewer.get(f"incidents/{made.pk}"))
    opened = rfc3339(made.opened_at)
    uuid = fleet.gpu(0, 5).uuid
    assert found.keys() >= FIELDS
    assert {name: found[name] for name in FIELDS} == {
        "id": made.pk, "version": 1, "kind": "xid", "severity": "critical", "cluster": "default", "node": "gpu-001",
        "gpu_uuid": uuid, "slot": 5, "opened_at": opened, "first_evidence_at": opened, "acknowledged_at": None,
        "acknowledged_by": None, "assignee": None, "snoozed_until": None, "label": None, "resolved_at": None,
        "status": "open", "title": "GPU has fallen off the bus (XID 79)", "recommended_action": "reset_gpu",
        "paged": made.paged, "parent_id": None, "members": [],
        "evidence": [
            {"signal": "gpu_xid_code", "node": "gpu-001", "gpu_uuid": uuid, "at": opened, "value": 79, "expected": 0}
        ],
        "url": f"https://fleet.example/incidents/{made.pk}/",
    }  # fmt: skip
    assert body_of(viewer.get("incidents"))["incidents"] == [found]


def test_events(fleet: MadeFleet, viewer: Caller, responder: Caller, now: datetime) -> None:
    made = make_incident(fleet, 0, now)
    responder.post(f"incidents/{made.pk}/comment", {"text": "<b>looking</b>"})
    first, second = body_of(viewer.get(f"incidents/{made.pk}/events"))["events"]
    assert first.keys() == {"id", "at", "actor", "verb", "source", "detail"}
    assert (first["verb"], first["actor"], first["source"]) == ("opened", None, "rule")
    assert (second["verb"], second["actor"], second["source"]) == ("commented", "responder", "api")
    assert second["detail"] == {"text": "<b>looking</b>"}


def test_a_list_stays_stable_while_rows_are_added(fleet: MadeFleet, viewer: Caller, now: datetime) -> None:
    kinds = ("xid", "thermal", "ecc_storm", "nvlink_fault", "node_down", "gpu_missing", "hbm_wear")
    old = [make_incident(fleet, 0, now, kind=kind, minutes=9).pk for kind in kinds]
    first = body_of(viewer.get("incidents", limit=3))
    make_incident(fleet, 1, now, minutes=0.1)
    seen, cursor = [row["id"] for row in first["incidents"]], first["next"]
    while cursor:
        page = body_of(viewer.get("incidents", limit=3, cursor=cursor))
        seen += [row["id"] for row in page["incidents"]]
        cursor = page["next"]
    assert seen == sorted(old, reverse=True)


def test_filters(fleet: MadeFleet, viewer: Caller, now: datetime) -> None:
    open_one = make_incident(fleet, 0, now, slot=1, minutes=30).pk
    taken = make_incident(fleet, 1, now, kind="node_down", minutes=20, by="ortiz").pk
    warned = make_incident(fleet, 2, now, kind="thermal", severity="warning", minutes=10, title="too hot").pk
    elsewhere = Cluster.objects.create(name="replay", is_replay=True)
    Incident.objects.filter(pk=make_incident(fleet, 2, now, kind="ecc_storm").pk).update(cluster=elsewhere)

    def ids(**query: Any) -> set[int]:
        return {row["id"] for row in body_of(viewer.get("incidents", **query))["incidents"]}

    assert ids() == {open_one, taken, warned}
    assert ids(status="open") == {open_one, warned}
    assert ids(status="acknowledged,resolved") == {taken}
    assert ids(kind="thermal") == {warned}
    assert ids(severity="warning") == {warned}
    assert ids(node="gpu-002") == {taken}
    assert ids(q="too hot") == {warned}
    assert ids(since=rfc3339(now - timedelta(minutes=15))) == {warned}
    assert ids(until=rfc3339(now - timedelta(minutes=25))) == {open_one}
    assert len(ids(cluster="replay")) == 1


def test_acknowledging(fleet: MadeFleet, responder: Caller, now: datetime) -> None:
    made = make_incident(fleet, 0, now)
    first = body_of(responder.post(f"incidents/{made.pk}/acknowledge", {"note": "mine", "version": 1}))
    assert (first["status"], first["acknowledged_by"], first["version"]) == ("acknowledged", "responder", 2)
    again = responder.post(f"incidents/{made.pk}/acknowledge", {"version": 1})
    assert again.status_code == 200
    assert body_of(again) == first
    other = assert_problem(by_token("responder", "second").post(f"incidents/{made.pk}/acknowledge"), 409)
    assert "responder" in other["detail"]
    assert other["incident"] == first
    assert IncidentEvent.objects.filter(incident=made).count() == 2


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("acknowledge", {}),
        ("unacknowledge", {}),
        ("assign", {"user": "responder"}),
        ("snooze", {"seconds": 60}),
        ("comment", {"text": "x"}),
        ("label", {"label": "real"}),
        ("resolve", {"force": True}),
        ("reopen", {}),
    ],
)
def test_another_version_is_a_conflict_and_changes_nothing(
    fleet: MadeFleet, responder: Caller, now: datetime, verb: str, body: dict[str, Any]
) -> None:
    made = make_incident(fleet, 0, now)
    found = assert_problem(responder.post(f"incidents/{made.pk}/{verb}", {**body, "version": 7}), 409)
    assert found["incident"] == body_of(responder.get(f"incidents/{made.pk}"))
    assert IncidentEvent.objects.filter(incident=made).count() == 1


def test_resolving_what_is_still_seen(fleet: MadeFleet, responder: Caller, now: datetime) -> None:
    made = make_incident(fleet, 0, now, minutes=0.5)
    refused = assert_problem(responder.post(f"incidents/{made.pk}/resolve"), 409)
    assert refused["incident"]["status"] == "open"
    forced = body_of(responder.post(f"incidents/{made.pk}/resolve", {"force": True, "note": "board replaced"}))
    assert forced["status"] == "resolved"
    assert forced["resolved_at"].endswith("Z")
    assert assert_problem(responder.post(f"incidents/{made.pk}/acknowledge"), 409)["incident"]["id"] == made.pk
    assert body_of(responder.post(f"incidents/{made.pk}/reopen"))["status"] == "open"


def test_the_other_verbs(fleet: MadeFleet, responder: Caller, now: datetime) -> None:
    made = make_incident(fleet, 0, now)
    make_user("manager", "lee")
    until = rfc3339(now.replace(microsecond=0) + timedelta(hours=3))
    for verb, body, field, value in (
        ("assign", {"user": "lee"}, "assignee", "lee"),
        ("assign", {"user": None}, "assignee", None),
        ("snooze", {"until": until}, "snoozed_until", until),
        ("label", {"label": "known", "note": "fans"}, "label", "known"),
        ("acknowledge", {"expires_at": until}, "acknowledgement_expires_at", until),
        ("unacknowledge", {}, "acknowledged_by", None),
    ):
        assert body_of(responder.post(f"incidents/{made.pk}/{verb}", body))[field] == value, verb


def test_members_stand_in_their_parent(fleet: MadeFleet, viewer: Caller, now: datetime) -> None:
    parent, child = make_incident(fleet, 0, now, kind="node_down"), make_incident(fleet, 0, now, slot=3)
    Incident.objects.filter(pk=child.pk).update(parent=parent)
    (member,) = body_of(viewer.get(f"incidents/{parent.pk}"))["members"]
    assert (member["id"], member["slot"], member["node"]) == (child.pk, 3, "gpu-001")
    assert body_of(viewer.get(f"incidents/{child.pk}"))["parent_id"] == parent.pk
