"""Who sees what: strangers nothing but the sign-in, each role its own buttons; and the headers of every answer."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from django.urls import URLPattern, get_resolver, reverse
from factories import PASSWORD, MadeFleet, make_incident, make_user

from gpufleet.accounts.tokens import create_token

OPEN: set[str | None] = {"sign-in", "sign-out", "healthz", "readyz", "metrics", "live"}
PAGES = [
    "/",
    "/?view=matrix",
    "/fleet/snapshot.json",
    "/fleet/incidents/",
    "/fleet/gpu-card/gpu-001/0/",
    "/find/?q=gpu",
]


def signed_in(role: str) -> Client:
    client = Client()
    client.force_login(make_user(role), backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.mark.parametrize("path", PAGES)
def test_a_stranger_is_sent_to_the_sign_in(fleet: MadeFleet, path: str) -> None:
    answer = Client().get(path)
    assert answer.status_code == 302
    assert answer["Location"].startswith(reverse("sign-in") + "?next=")
    assert b"gpu-001" not in answer.content


def test_every_page_needs_a_sign_in_unless_it_is_named_here(db: None) -> None:
    for pattern in get_resolver("dashboards.urls").url_patterns:
        assert isinstance(pattern, URLPattern)
        needs = getattr(pattern.callback, "login_required", True)
        assert needs is (pattern.name not in OPEN), pattern.name


def test_a_fragment_moves_the_whole_page_to_the_sign_in(fleet: MadeFleet) -> None:
    answer = Client().get(
        "/fleet/incidents/",
        headers={"HX-Request": "true", "HX-Current-URL": "http://testserver/?metric=gpu_power_watts"},
    )
    assert answer["HX-Redirect"] == "/sign-in/?next=%2F%3Fmetric%3Dgpu_power_watts"


@pytest.mark.parametrize(("role", "buttons"), [("viewer", 0), ("manager", 0), ("responder", 2), ("admin", 2)])
def test_only_who_may_act_gets_the_button(fleet: MadeFleet, role: str, buttons: int) -> None:
    """One button in the list, one in the bar of the phone."""
    make_incident(fleet, 0, datetime.now(tz=UTC))
    page = signed_in(role).get("/").content.decode()
    assert page.count('class="ack"') == buttons
    assert page.count("fallen off the bus") >= 1


def test_nobody_acts_on_the_past(fleet: MadeFleet) -> None:
    make_incident(fleet, 0, datetime.now(tz=UTC), minutes=90)
    page = signed_in("admin").get("/?at=now-1h").content.decode()
    assert 'class="ack"' not in page
    assert "Return to live" in page


def test_name_and_role_are_shown(fleet: MadeFleet) -> None:
    page = signed_in("manager").get("/").content.decode()
    assert "Signed in as manager" in page
    assert "Manager" in page


def test_sign_in_with_a_wrong_password_says_so(db: None) -> None:
    make_user("viewer")
    answer = Client().post("/sign-in/", {"username": "viewer", "password": "no"})
    assert answer.status_code == 200
    assert "do not match" in answer.content.decode()


def test_ten_wrong_passwords_close_the_door(db: None) -> None:
    make_user("viewer")
    client = Client()
    answers = [client.post("/sign-in/", {"username": "viewer", "password": "no"}) for _ in range(10)]
    assert answers[-1].status_code == 429
    assert answers[-1]["Retry-After"] == "900"
    assert "closed for 15 minutes" in answers[-1].content.decode()
    right = client.post("/sign-in/", {"username": "viewer", "password": PASSWORD})
    assert right.status_code == 429
    assert "_auth_user_id" not in client.session


def test_the_way_back_stays_on_this_site(db: None) -> None:
    make_user("viewer")
    body = {"username": "viewer", "password": PASSWORD, "next": "https://evil.example/"}
    assert Client().post("/sign-in/", body)["Location"] == "/"


def test_sign_out_wants_a_post(db: None) -> None:
    client = signed_in("viewer")
    assert client.get("/sign-out/").status_code == 405
    assert client.post("/sign-out/").status_code == 302
    assert client.get("/find/").status_code == 302


def test_headers_of_every_answer(viewer: Client, fleet: MadeFleet) -> None:
    for path in ("/", "/healthz", "/sign-in/", "/no-such-page"):
        answer = viewer.get(path)
        assert answer["Content-Security-Policy"] == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
            "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
        )
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["X-Frame-Options"] == "DENY"
        assert answer["Cross-Origin-Resource-Policy"] == "same-origin"


@pytest.mark.parametrize(
    ("setting", "origin"),
    [
        ({"GPUFLEET_LIVE_PORT": 8001}, "http://testserver:8001"),
        ({"GPUFLEET_LIVE_URL": "https://live.example/live/"}, "https://live.example"),
    ],
)
def test_the_stream_of_another_origin_is_named(
    viewer: Client, settings: Any, setting: dict[str, Any], origin: str
) -> None:
    settings.ENV = {**settings.ENV, **setting}
    assert f"connect-src 'self' {origin};" in viewer.get("/healthz")["Content-Security-Policy"]


@pytest.mark.parametrize("path", ["/", "/?view=matrix", "/?at=now-1h", "/sign-in/", "/find/?q=gpu"])
def test_no_template_holds_style_or_handlers(fleet: MadeFleet, path: str) -> None:
    make_incident(fleet, 0, datetime.now(tz=UTC))
    client = Client() if path == "/sign-in/" else signed_in("admin")
    page = client.get(path).content.decode()
    for forbidden in (" style=", " onclick=", " onload=", "<style", "javascript:"):
        assert forbidden not in page


def test_own_metrics_want_a_session_or_a_token(fleet: MadeFleet, viewer: Client) -> None:
    assert Client().get("/metrics").status_code == 401
    assert Client().get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    assert viewer.get("/metrics").status_code == 200
    user = make_user("manager")
    token = create_token(user, now=datetime.now(tz=UTC), actor="test")
    answer = Client().get("/metrics", headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200
    assert b'gpufleet_targets_up{cluster="default"} 3.0' in answer.content


@pytest.fixture(autouse=True)
def no_earlier_tries() -> None:
    cache.clear()
