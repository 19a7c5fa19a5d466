"""List and page of incidents: who sees and may do what, filters in the address, markup shown as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from factories import MadeFleet, make_incident, make_user

from gpufleet.incidents.models import Incident, IncidentEvent

NASTY = '<script>alert(1)</script>"onmouseover="x'
VERBS = {
    "acknowledge": {},
    "unacknowledge": {},
    "assign": {"user": "responder"},
    "snooze": {"seconds": "900"},
    "comment": {"text": "looking"},
    "label": {"label": "real"},
    "resolve": {"force": "true"},
    "reopen": {},
}


@pytest.fixture
def now() -> datetime:
    return datetime.now(tz=UTC)


def signed_in(role: str) -> Client:
    client = Client()
    client.force_login(make_user(role), backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.mark.parametrize("role", ["viewer", "manager", "ingest"])
@pytest.mark.parametrize("verb", VERBS)
def test_who_may_not_act_changes_nothing(fleet: MadeFleet, now: datetime, role: str, verb: str) -> None:
    made = make_incident(fleet, 0, now)
    answer = signed_in(role).post(f"/incidents/{made.pk}/{verb}/", VERBS[verb])
    assert answer.status_code == 403
    assert IncidentEvent.objects.filter(incident=made).count() == 1
    made_now = Incident.objects.get(pk=made.pk)
    assert (made_now.version, made_now.acknowledged_at, made_now.resolved_at) == (1, None, None)


@pytest.mark.parametrize("verb", VERBS)
def test_a_stranger_and_a_forger_change_nothing(fleet: MadeFleet, now: datetime, verb: str) -> None:
    made = make_incident(fleet, 0, now)
    assert Client().post(f"/incidents/{made.pk}/{verb}/", VERBS[verb]).status_code == 302
    forged = Client(enforce_csrf_checks=True)
    forged.force_login(make_user("admin"), backend="django.contrib.auth.backends.ModelBackend")
    assert forged.post(f"/incidents/{made.pk}/{verb}/", VERBS[verb]).status_code == 403
    assert IncidentEvent.objects.filter(incident=made).count() == 1


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("unacknowledge", "reopen")])
def test_who_may_act_acts_and_comes_back(fleet: MadeFleet, now: datetime, verb: str) -> None:
    made = make_incident(fleet, 0, now)
    answer = signed_in("responder").post(f"/incidents/{made.pk}/{verb}/", VERBS[verb])
    assert (answer.status_code, answer["Location"]) == (302, f"/incidents/{made.pk}/")
    assert IncidentEvent.objects.filter(incident=made, source="page", actor="responder").count() == 1


@pytest.mark.parametrize(("role", "forms"), [("viewer", 0), ("manager", 0), ("responder", 7), ("admin", 7)])
def test_only_who_may_act_gets_forms(fleet: MadeFleet, now: datetime, role: str, forms: int) -> None:
    made = make_incident(fleet, 0, now)
    client = signed_in(role)
    page = client.get(f"/incidents/{made.pk}/").content.decode()
    assert page.count(f'action="/incidents/{made.pk}/') == forms
    assert client.get("/incidents/").content.decode().count('class="ack"') == (1 if forms else 0)


@pytest.mark.parametrize(
    ("verb", "body", "status", "words"),
    [
        ("comment", {"text": ""}, 422, "needs words"),
        ("comment", {"text": "a\x00b"}, 422, "text"),
        ("label", {"label": "maybe"}, 422, "label"),
        ("assign", {"user": "nobody-here"}, 422, "no active user"),
        ("snooze", {"seconds": "9" * 40}, 422, "seconds"),
        ("acknowledge", {"version": "9"}, 409, "changed since"),
        ("resolve", {"version": "1"}, 409, "still seen"),
    ],
)
def test_a_refusal_is_a_sentence(
    fleet: MadeFleet, now: datetime, verb: str, body: dict[str, str], status: int, words: str
) -> None:
    made = make_incident(fleet, 0, now, minutes=0.1)
    client = signed_in("responder")
    address = f"/incidents/{made.pk}/{verb}/"
    fragment = client.post(address, body, headers={"HX-Request": "true"})
    assert fragment.status_code == status
    assert words in fragment.content.decode()
    assert words in client.post(address, body, follow=True).content.decode()
    assert IncidentEvent.objects.filter(incident=made).count() == 1


def test_the_way_back_stays_on_this_site(fleet: MadeFleet, now: datetime) -> None:
    made = make_incident(fleet, 0, now)
    answer = signed_in("responder").post(f"/incidents/{made.pk}/acknowledge/", {"next": "https://evil.example/"})
    assert answer["Location"] == f"/incidents/{made.pk}/"


@pytest.mark.parametrize("number", [0, 2**63, 10**30])
def test_no_such_incident(fleet: MadeFleet, number: int) -> None:
    client = signed_in("responder")
    assert client.get(f"/incidents/{number}/").status_code == 404
    assert client.post(f"/incidents/{number}/acknowledge/").status_code == 404


def test_markup_is_shown_as_text(fleet: MadeFleet, now: datetime) -> None:
    made = make_incident(fleet, 0, now, title=NASTY)
    client = signed_in("responder")
    client.post(f"/incidents/{made.pk}/comment/", {"text": NASTY})
    for path in ("/incidents/", f"/incidents/{made.pk}/"):
        page = client.get(path).content.decode()
        assert "<script>alert" not in page
        assert '"onmouseover' not in page
        assert "&lt;script&gt;alert(1)" in page


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", {"xid", "node_down"}),
        ("?status=resolved", set()),
        ("?status=acknowledged", {"node_down"}),
        ("?severity=warning", set()),
        ("?kind=xid", {"xid"}),
        ("?node=gpu-002", {"node_down"}),
        ("?q=fallen", {"xid", "node_down"}),
        ("?since=now-1h", {"node_down"}),
        ("?q=%00&node=%00&kind=%00", {"xid", "node_down"}),
        ("?cursor=nonsense", {"xid", "node_down"}),
        ("?since=soonish", {"xid", "node_down"}),
    ],
)
def test_filters_stand_in_the_address(fleet: MadeFleet, now: datetime, query: str, shown: set[str]) -> None:
    numbers = {
        "xid": make_incident(fleet, 0, now, minutes=90).pk,
        "node_down": make_incident(fleet, 1, now, kind="node_down", by="ortiz").pk,
    }
    page = signed_in("viewer").get("/incidents/" + query).content.decode()
    assert {kind for kind, number in numbers.items() if f'data-incident="{number}"' in page} == shown
    if not shown:
        assert "No incident matches" in page


def test_older_ones_are_pages_further(fleet: MadeFleet, now: datetime, monkeypatch: Any) -> None:
    monkeypatch.setattr("dashboards.incident_list.PAGE_SIZE", 2)
    made = [make_incident(fleet, node, now - timedelta(minutes=node)).pk for node in range(3)]
    client = signed_in("viewer")
    first = client.get("/incidents/")
    assert [line.incident.pk for line in first.context["lines"]] == made[:2]
    second = client.get("/incidents/?" + first.context["next_query"])
    assert [line.incident.pk for line in second.context["lines"]] == made[2:]
    assert "Newest" in second.content.decode()
