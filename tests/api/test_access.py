"""Who may call what: by token and by session, for every role; a denial changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from api_callers import CALLERS, assert_problem, body_of, by_session, by_token, stranger
from factories import MadeFleet, make_incident, make_user

from gpufleet.accounts.models import AuditEntry, Role
from gpufleet.accounts.tokens import create_token, revoke_token
from gpufleet.core.times import rfc3339
from gpufleet.fleet.models import MaintenanceWindow, Node
from gpufleet.incidents.models import Incident, IncidentEvent, Silence

READS = (
    "fleet",
    "targets",
    "incidents",
    "silences",
    "maintenance",
    "availability",
    "trends",
    "series?metric=gpu_power_watts",
    "values?metric=gpu_power_watts",
    "bands?metric=gpu_power_watts",
)
ACTORS = {Role.RESPONDER, Role.ADMIN}
LATER = rfc3339(datetime.now(tz=UTC) + timedelta(hours=2))


def writes(fleet: MadeFleet) -> dict[str, tuple[str, Any]]:
    """One request of each kind of write, that goes through for whom may do it."""
    now = datetime.now(tz=UTC)
    incident = make_incident(fleet, 0, now).pk
    window = MaintenanceWindow.objects.create(
        node=fleet.nodes[2],
        starts_at=now,
        ends_at=now + timedelta(hours=1),
        reason="fans",
        created_by="a",
        created_at=now,
    )
    silence = Silence.objects.create(
        cluster=fleet.cluster, starts_at=now, ends_at=now + timedelta(hours=1), reason="noise", created_by="a"
    )
    return {
        "acknowledge": (f"incidents/{incident}/acknowledge", {}),
        "assign": (f"incidents/{incident}/assign", {"user": None}),
        "snooze": (f"incidents/{incident}/snooze", {"seconds": 60}),
        "comment": (f"incidents/{incident}/comment", {"text": "looking"}),
        "label": (f"incidents/{incident}/label", {"label": "real"}),
        "unacknowledge": (f"incidents/{incident}/unacknowledge", {}),
        "resolve": (f"incidents/{incident}/resolve", {"force": True}),
        "reopen": (f"incidents/{incident}/reopen", {}),
        "silence": ("silences", {"nodes": ["gpu-001"], "ends_at": LATER, "reason": "fans"}),
        "end silence": (f"silences/{silence.pk}/end", {}),
        "maintenance": ("maintenance", {"rack": "R01", "ends_at": LATER, "reason": "fans"}),
        "end maintenance": (f"maintenance/{window.pk}/end", {}),
        "expected": ("nodes/gpu-001/expected-gpus", {"count": 4}),
    }


def everything() -> dict[str, list[Any]]:
    """All rows that a write could touch."""
    models = (Incident, IncidentEvent, Silence, MaintenanceWindow, Node, AuditEntry)
    return {model.__name__: list(model.objects.order_by("pk").values()) for model in models}


@pytest.mark.parametrize("way", CALLERS)
@pytest.mark.parametrize("role", [role for role in Role if role != Role.INGEST])
@pytest.mark.parametrize("path", READS)
def test_every_role_reads(fleet: MadeFleet, path: str, role: str, way: str) -> None:
    assert CALLERS[way](role).get(path).status_code == 200


@pytest.mark.parametrize("way", CALLERS)
@pytest.mark.parametrize("path", READS)
def test_ingest_reads_nothing(fleet: MadeFleet, path: str, way: str) -> None:
    answer = CALLERS[way](Role.INGEST).get(path)
    assert_problem(answer, 403)
    assert b"gpu-001" not in answer.content


@pytest.mark.parametrize("path", [*READS, "incidents/1", "incidents/1/events"])
def test_a_stranger_reads_nothing(fleet: MadeFleet, path: str) -> None:
    make_incident(fleet, 0, datetime.now(tz=UTC))
    answer = stranger().get(path)
    assert_problem(answer, 401)
    assert answer["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("way", CALLERS)
@pytest.mark.parametrize("role", list(Role))
def test_writes_go_through_for_those_who_may_and_change_nothing_for_others(
    fleet: MadeFleet, role: Role, way: str
) -> None:
    asking = CALLERS[way](role)
    for name, (path, body) in writes(fleet).items():
        before = everything()
        answer = asking.post(path, body)
        may = role == Role.ADMIN if name == "expected" else role in ACTORS
        if may:
            assert answer.status_code in (200, 201), (name, answer.content)
        else:
            assert_problem(answer, 403)
            assert everything() == before, name


def test_a_stranger_changes_nothing(fleet: MadeFleet) -> None:
    requests = writes(fleet)
    before = everything()
    for path, body in requests.values():
        answer = stranger().post(path, body)
        assert_problem(answer, 401)
        assert answer["WWW-Authenticate"].startswith("Bearer")
    assert everything() == before


def test_a_session_without_its_csrf_token_writes_nothing(fleet: MadeFleet) -> None:
    requests = writes(fleet)
    asking = by_session("admin", csrf=False)
    before = everything()
    for path, body in requests.values():
        assert_problem(asking.post(path, body), 403)
    assert everything() == before
    assert asking.get("fleet").status_code == 200


@pytest.mark.parametrize("raw", [b"{", b"\xff\xfe", b"x" * 5_000_000])
def test_denied_before_the_body_is_looked_at(fleet: MadeFleet, raw: bytes) -> None:
    path, _ = writes(fleet)["acknowledge"]
    assert_problem(by_token("viewer").post(path, raw), 403)
    assert_problem(stranger().post(path, raw), 401)


def _expired(now: datetime) -> str:
    return create_token(make_user("admin"), now=now - timedelta(days=3), days=1, actor="test")


def _revoked(now: datetime) -> str:
    user = make_user("admin")
    text = create_token(user, now=now, actor="test")
    revoke_token(user.api_tokens.get().pk, now=now, actor="test", source="command")
    return text


def _of_somebody_gone(now: datetime) -> str:
    user = make_user("admin")
    text = create_token(user, now=now, actor="test")
    user.is_active = False
    user.save()
    return text


@pytest.mark.parametrize("make", [_expired, _revoked, _of_somebody_gone, lambda now: "gpf_no", lambda now: "x" * 9000])
def test_tokens_that_do_not_hold(fleet: MadeFleet, make: Callable[[datetime], str]) -> None:
    asking = stranger()
    asking.headers["Authorization"] = f"Bearer {make(datetime.now(tz=UTC))}"
    assert_problem(asking.get("fleet"), 401)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic YTpi", "bearer\x0b x", "Bearer ä"])
def test_credentials_that_are_none(fleet: MadeFleet, header: str) -> None:
    asking = stranger()
    asking.headers["Authorization"] = header
    assert_problem(asking.get("fleet"), 401)


def test_a_bad_token_is_not_saved_by_a_session(fleet: MadeFleet) -> None:
    """A caller that shows a token means the token."""
    asking = by_session("admin")
    asking.headers["Authorization"] = "Bearer gpf_wrong"
    assert_problem(asking.get("fleet"), 401)


def test_a_token_reaches_no_further_than_its_own_role(fleet: MadeFleet) -> None:
    path, body = writes(fleet)["acknowledge"]
    asking = stranger()
    text = create_token(make_user("admin"), now=datetime.now(tz=UTC), role="viewer", actor="test")
    asking.headers["Authorization"] = f"Bearer {text}"
    before = everything()
    assert_problem(asking.post(path, body), 403)
    assert everything() == before
    assert body_of(asking.get("incidents"))["incidents"][0]["status"] == "open"
