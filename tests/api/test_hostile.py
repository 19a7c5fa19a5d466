"""What a client can send wrongly: refused with a problem document that says what is wrong, never a 5xx."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest
from api_callers import Caller, assert_problem, body_of, by_token
from factories import MadeFleet, make_incident
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpufleet.core.times import rfc3339
from gpufleet.incidents.models import IncidentEvent

VERBS = ("acknowledge", "unacknowledge", "assign", "snooze", "comment", "label", "resolve", "reopen")
BIG = (0, 2**31, 2**63 - 1, 2**63, 10**30, 10**200)
NASTY = (
    "\x00",
    "a\x00b",
    "\ud7ff￾",
    "‮evil",
    "💥" * 100,
    "'; drop table fleet_node; --",
    "%",
    "a" * 10_000,
    "../../etc/passwd",
    "{{7*7}}",
    "-1",
    "1e999",
    "NaN",
    " ",
    "2026-13-40T99:99:99Z",
    "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
)
QUERIES = {
    "fleet": ("at", "cluster"),
    "targets": ("cluster",),
    "incidents": ("status", "kind", "severity", "node", "cluster", "q", "since", "until", "limit", "cursor"),
    "series": ("metric", "node", "gpu_uuid", "start", "end", "step", "cluster"),
    "values": ("metric", "at", "cluster"),
    "bands": ("metric", "start", "end", "step", "cluster"),
    "silences": ("cluster", "at", "limit", "cursor"),
    "maintenance": ("cluster", "at", "limit", "cursor"),
    "availability": ("month", "start", "end", "scope", "tz", "cluster"),
    "trends": ("start", "end", "bucket", "by", "cluster"),
}


@pytest.mark.parametrize(("path", "name"), [(path, name) for path, names in QUERIES.items() for name in names])
def test_nasty_parameters(fleet: MadeFleet, viewer: Caller, path: str, name: str) -> None:
    more = {"metric": "gpu_power_watts"} if path in ("series", "values", "bands") and name != "metric" else {}
    for value in NASTY:
        answer = viewer.get(path, **{**more, name: value})
        assert answer.status_code < 500, value
        if "\x00" in value:
            assert_problem(answer, 422, name)
        elif answer.status_code != 200:
            assert_problem(answer, answer.status_code)


@pytest.mark.parametrize(
    ("path", "query", "field"),
    [
        ("fleet", {"at": "yesterday"}, "at"),
        ("fleet", {"at": "2026-03-10T12:00:00"}, "at"),
        ("incidents", {"limit": 0}, "limit"),
        ("incidents", {"limit": 1001}, "limit"),
        ("incidents", {"limit": 10**40}, "limit"),
        ("incidents", {"limit": "many"}, "limit"),
        ("incidents", {"status": "asleep"}, "status"),
        ("incidents", {"severity": "awful"}, "severity"),
        ("incidents", {"cursor": "!!!"}, "cursor"),
        ("incidents", {"cursor": "MTIz"}, "cursor"),
        ("silences", {"cursor": "MTIz"}, "cursor"),
        ("silences", {"limit": 0}, "limit"),
        ("maintenance", {"cursor": "YmVmb3JlLi0x"}, "cursor"),
        ("series", {}, "metric"),
        ("series", {"metric": "no_such_metric"}, "metric"),
        ("series", {"metric": "gpu_power_watts", "step": -1}, "step"),
        ("series", {"metric": "gpu_power_watts", "step": "nan"}, "step"),
        ("series", {"metric": "gpu_power_watts", "start": "2000-01-01T00:00:00Z", "step": 1}, "step"),
        ("series", {"metric": "gpu_power_watts", "start": "2099-01-01T00:00:00Z"}, "start"),
        ("values", {}, "metric"),
        ("values", {"metric": "no_such_metric"}, "metric"),
        ("values", {"metric": "gpu_power_watts", "at": "noon"}, "at"),
        ("bands", {}, "metric"),
        ("bands", {"metric": "gpu_power_watts,no_such_metric"}, "metric"),
        ("bands", {"metric": "gpu_power_watts", "start": "2000-01-01T00:00:00Z", "step": 1}, "step"),
        ("availability", {"month": "2026-13"}, "month"),
        ("availability", {"month": "soon"}, "month"),
        ("availability", {"scope": "galaxy"}, "scope"),
        ("availability", {"tz": "Mars/Olympus"}, "tz"),
        ("availability", {"start": "2026-01-01T00:00:00Z"}, "start"),
        ("availability", {"month": "2026-01", "start": "2026-01-01T00:00:00Z"}, "month"),
        ("trends", {"bucket": "hour"}, "bucket"),
        ("trends", {"by": "mood"}, "by"),
        ("trends", {"start": "2000-01-01T00:00:00Z", "bucket": "day"}, "start"),
        ("trends", {"start": "2026-02-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, "start"),
    ],
)
def test_the_field_that_is_wrong_is_named(
    fleet: MadeFleet, viewer: Caller, path: str, query: dict[str, Any], field: str
) -> None:
    assert_problem(viewer.get(path, **query), 422, field)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("fleet", {"cluster": "no-such"}),
        ("series", {"metric": "gpu_power_watts", "node": "no-such"}),
        ("series", {"metric": "gpu_power_watts", "gpu_uuid": "no-such"}),
        ("values", {"metric": "gpu_power_watts", "cluster": "no-such"}),
        ("bands", {"metric": "gpu_power_watts", "cluster": "no-such"}),
        ("trends", {"cluster": "no-such"}),
    ],
)
def test_what_is_not_there(fleet: MadeFleet, viewer: Caller, path: str, query: dict[str, Any]) -> None:
    assert_problem(viewer.get(path, **query), 404)


@pytest.mark.parametrize("number", BIG)
def test_numbers_beyond_any_key(fleet: MadeFleet, responder: Caller, number: int) -> None:
    assert_problem(responder.get(f"incidents/{number}"), 404)
    assert_problem(responder.get(f"incidents/{number}/events"), 404)
    bodies = {"comment": {"text": "x"}, "label": {"label": "real"}, "snooze": {"seconds": 60}, "assign": {"user": None}}
    for verb in VERBS:
        assert_problem(responder.post(f"incidents/{number}/{verb}", bodies.get(verb)), 404)
    assert_problem(responder.post(f"silences/{number}/end"), 404)
    assert_problem(responder.post(f"maintenance/{number}/end"), 404)


@pytest.mark.parametrize(
    "raw", [b"{", b"[]", b"3", b"null", b"\xff", b'{"note": NaN}', b"[" * 100_000, b'{"note": "\\ud800"}']
)
def test_a_body_that_is_no_json(fleet: MadeFleet, responder: Caller, raw: bytes, now: datetime) -> None:
    incident = make_incident(fleet, 0, now)
    assert_problem(responder.post(f"incidents/{incident.pk}/acknowledge", raw), 400)
    incident.refresh_from_db()
    assert incident.acknowledged_at is None


def test_no_body_is_an_empty_one(fleet: MadeFleet, responder: Caller, now: datetime) -> None:
    incident = make_incident(fleet, 0, now)
    assert responder.post(f"incidents/{incident.pk}/acknowledge", b"").status_code == 200
    assert_problem(responder.post(f"incidents/{incident.pk}/comment", b""), 422)


def test_a_body_over_one_mebibyte(fleet: MadeFleet, responder: Caller, now: datetime) -> None:
    incident = make_incident(fleet, 0, now)
    assert_problem(responder.post(f"incidents/{incident.pk}/comment", {"text": "x" * 1_100_000}), 413)
    assert IncidentEvent.objects.filter(incident=incident, verb="commented").count() == 0


TOMORROW = rfc3339(datetime.now(tz=UTC) + timedelta(days=1))
YESTERDAY = rfc3339(datetime.now(tz=UTC) - timedelta(days=1))
SCOPE = {"nodes": ["gpu-001"], "ends_at": TOMORROW, "reason": "fans"}


@pytest.mark.parametrize(
    ("verb", "body", "field"),
    [
        ("acknowledge", {"note": "a\x00b"}, "note"),
        ("acknowledge", {"note": "x" * 4001}, "note"),
        ("acknowledge", {"note": 3}, "note"),
        ("acknowledge", {"expires_at": YESTERDAY}, "expires_at"),
        ("acknowledge", {"expires_at": "later"}, "expires_at"),
        ("acknowledge", {"version": "x"}, "version"),
        ("assign", {}, "user"),
        ("assign", {"user": "nobody-here"}, "user"),
        ("assign", {"user": "a\x00"}, "user"),
        ("snooze", {}, "until"),
        ("snooze", {"until": TOMORROW, "seconds": 60}, "until"),
        ("snooze", {"until": YESTERDAY}, "until"),
        ("snooze", {"until": "9999-12-31T23:59:59Z"}, "until"),
        ("snooze", {"seconds": 0}, "seconds"),
        ("snooze", {"seconds": 10**30}, "seconds"),
        ("comment", {}, "text"),
        ("comment", {"text": ""}, "text"),
        ("comment", {"text": "  \n"}, "text"),
        ("comment", {"text": "x" * 4001}, "text"),
        ("label", {"label": "maybe"}, "label"),
        ("resolve", {"force": "perhaps"}, "force"),
    ],
)
def test_bad_fields_of_a_verb_change_nothing(
    fleet: MadeFleet, responder: Caller, now: datetime, verb: str, body: dict[str, Any], field: str
) -> None:
    incident = make_incident(fleet, 0, now)
    assert_problem(responder.post(f"incidents/{incident.pk}/{verb}", body), 422, field)
    assert list(IncidentEvent.objects.filter(incident=incident).values_list("verb", flat=True)) == ["opened"]


@pytest.mark.parametrize("path", ["silences", "maintenance"])
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"nodes": ["no-such"]}, "nodes"),
        ({"nodes": ["a\x00"]}, "nodes.0"),
        ({"nodes": ["gpu-001"] * 1001}, "nodes"),
        ({"nodes": "gpu-001"}, "nodes"),
        ({"rack": "R99", "nodes": []}, "rack"),
        ({"ends_at": "soon"}, "ends_at"),
        ({"ends_at": ""}, "ends_at"),
        ({"starts_at": TOMORROW}, "ends_at"),
        ({"reason": ""}, "reason"),
        ({"reason": "   "}, "reason"),
        ({"reason": "x" * 256}, "reason"),
        ({"reason": "a\x00"}, "reason"),
        ({"kind": "no_such_kind"}, "kind"),
    ],
)
def test_bad_scopes_make_nothing(
    fleet: MadeFleet, responder: Caller, path: str, change: dict[str, Any], field: str
) -> None:
    assert_problem(responder.post(path, {**SCOPE, **change}), 422, field)
    assert body_of(responder.get(path))[path] == []


@pytest.mark.parametrize("count", [-1, 1025, 10**30, "eight", 1.5])
def test_an_impossible_number_of_gpus(fleet: MadeFleet, count: Any) -> None:
    assert_problem(by_token("admin").post("nodes/gpu-001/expected-gpus", {"count": count}), 422, "count")
    fleet.nodes[0].refresh_from_db()
    assert fleet.nodes[0].expected_gpus == 8


@pytest.mark.parametrize("name", NASTY)
def test_nodes_of_strange_names(fleet: MadeFleet, name: str) -> None:
    answer = by_token("admin").post(f"nodes/{quote(name, safe='')}/expected-gpus", {"count": 8})
    assert_problem(answer, 422 if "\x00" in name else 404)


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("delete", "fleet", "GET"), ("put", "incidents/1/acknowledge", "POST"), ("delete", "silences", "GET, POST")],
)
def test_methods_that_a_route_does_not_have(
    fleet: MadeFleet, viewer: Caller, method: str, path: str, allowed: str
) -> None:
    answer = getattr(viewer.client, method)(f"/api/v1/{path}", headers=viewer.headers)
    assert_problem(answer, 405)
    assert sorted(answer["Allow"].split(", ")) == allowed.split(", ")


@pytest.mark.parametrize("path", ["nothing", "incidents/x", "incidents/-1", "incidents/1/explode", "silences/1"])
def test_routes_that_there_are_not(fleet: MadeFleet, viewer: Caller, path: str) -> None:
    assert_problem(viewer.get(path), 404)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cursor=st.text(max_size=60))
def test_no_cursor_breaks_the_list(fleet: MadeFleet, viewer: Caller, cursor: str) -> None:
    for path in ("incidents", "silences"):
        answer = viewer.get(path, cursor=cursor.encode("utf-8", "replace").decode())
        assert answer.status_code in (200, 422)
