"""Who may ask: by token as bearer, by token as password, by session; strangers are told nothing."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import pytest
from django.test import Client
from factories import MadeFleet, make_user
from prometheus_api.conftest import Asking, assert_error, token

from gpufleet.accounts.models import AuditEntry, Role
from gpufleet.accounts.tokens import create_token, revoke_token
from gpufleet.store.models import Series

ROUTES = (
    "query?query=up",
    "query_range?query=up&start=0&end=60&step=15",
    "series?match[]=up",
    "labels",
    "label/node/values",
    "metadata",
    "status/buildinfo",
    "nothing",
)
READERS = [role for role in Role if role != Role.INGEST]


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


def by_session(role: str) -> Asking:
    client = Client(enforce_csrf_checks=True)
    client.force_login(make_user(role), backend="django.contrib.auth.backends.ModelBackend")
    return Asking(client)


def callers(role: str) -> list[Asking]:
    text = token(role)
    return [Asking(headers={"Authorization": f"Bearer {text}"}), Asking(headers=basic("any", text)), by_session(role)]


@pytest.mark.parametrize("role", READERS)
def test_every_reader_reads_in_every_way(fleet: MadeFleet, role: str) -> None:
    for asking in callers(role):
        for route in ROUTES[:-1]:
            assert asking.get(route).status_code == 200, route
        assert asking.get("nothing").status_code == 404


def test_a_form_needs_no_page_of_ours(fleet: MadeFleet) -> None:
    """Grafana posts its queries, with a token or through a browser that is signed in."""
    for asking in callers("viewer"):
        assert asking.post("query", query="up").status_code == 200


@pytest.mark.parametrize("route", ROUTES)
def test_ingest_and_strangers_read_nothing_and_change_nothing(fleet: MadeFleet, route: str) -> None:
    ingest = callers("ingest")
    before = (AuditEntry.objects.count(), Series.objects.count())
    for asking in ingest:
        answer = asking.get(route)
        assert_error(answer, 403, "forbidden")
        assert b"gpu-001" not in answer.content
    for method in ("get", "post"):
        answer = getattr(Asking(), method)(route)
        assert_error(answer, 401, "unauthorized")
        assert answer["WWW-Authenticate"].startswith("Basic realm=")
        assert b"gpu-001" not in answer.content
    assert (AuditEntry.objects.count(), Series.objects.count()) == before


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer gpf_no",
        "Basic",
        "Basic !!!",
        "Basic " + base64.b64encode(b"no colon").decode(),
        "Basic " + base64.b64encode(b"\xff\xfe:x").decode(),
        "Basic " + "A" * 9_000,
        "Digest a:b",
    ],
)
def test_credentials_that_are_none_are_not_saved_by_a_session(fleet: MadeFleet, header: str) -> None:
    asking = by_session("admin")
    asking.headers["Authorization"] = header
    assert_error(asking.get("query?query=up"), 401, "unauthorized")


def test_tokens_end(fleet: MadeFleet) -> None:
    now = datetime.now(tz=UTC)
    user = make_user("viewer")
    expired = create_token(user, now=now - timedelta(days=3), days=1, actor="test")
    revoked = create_token(user, now=now, actor="test")
    revoke_token(user.api_tokens.latest("pk").pk, now=now, actor="test", source="command")
    for text in (expired, revoked):
        assert_error(Asking(headers=basic("viewer", text)).get("query?query=up"), 401, "unauthorized")
    assert_error(Asking(headers=basic(text, "")).get("query?query=up"), 401, "unauthorized")


@pytest.mark.parametrize("method", ["put", "patch", "delete", "options"])
def test_other_methods_are_refused(fleet: MadeFleet, viewer: Asking, method: str) -> None:
    answer = getattr(viewer.client, method)("/prometheus/api/v1/query?query=up", headers=viewer.headers)
    assert_error(answer, 405, "bad_data")
    assert answer["Allow"] == "GET, POST, HEAD"
