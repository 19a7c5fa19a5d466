"""Roles, tokens and the audit log."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.db import DatabaseError, transaction

from gpufleet.accounts import audit
from gpufleet.accounts.actions import create_user
from gpufleet.accounts.models import ApiToken, AuditEntry, Role, User
from gpufleet.accounts.roles import ACTS, can, may_stand_in
from gpufleet.accounts.tokens import TokenError, authenticate, create_token, revoke_token

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
PASSWORD = "correct horse battery"

TABLE = {
    "viewer": {"read"},
    "responder": {"read", "incident.act", "silence.change", "maintenance.change", "event.post", "target.retry"},
    "manager": {"read", "ledger.correct", "report.publish"},
    "admin": set(ACTS),
    "ingest": {"event.post"},
}


@pytest.mark.parametrize("role", [role.value for role in Role])
def test_each_role_may_do_exactly_this(role: str) -> None:
    assert {act for act in ACTS if can(role, act)} == TABLE[role]


def test_unknown_act_is_a_mistake_and_unknown_role_may_nothing() -> None:
    with pytest.raises(KeyError):
        can("admin", "incident.delete")
    assert not can("root", "read")


@pytest.mark.parametrize(
    ("holder", "granted", "allowed"),
    [("admin", "viewer", True), ("admin", "ingest", True), ("responder", "ingest", True),
     ("viewer", "responder", False), ("manager", "responder", False),
     ("responder", "manager", False), ("viewer", "viewer", True)],
)  # fmt: skip
def test_a_token_never_reaches_further_than_its_user(holder: str, granted: str, allowed: bool) -> None:
    assert may_stand_in(holder, granted) is allowed


@pytest.fixture
def responder(db: None) -> User:
    return create_user("ana", "responder", PASSWORD, now=NOW)


def test_token_speaks_for_its_user(responder: User) -> None:
    text = create_token(responder, now=NOW, actor="ana")
    found = authenticate(text, now=NOW)
    assert found is not None
    assert (found.user, found.role) == (responder, "responder")
    assert text.startswith("gpf_")
    assert not ApiToken.objects.filter(digest__contains=text).exists()


def test_token_expires_to_the_instant(responder: User) -> None:
    text = create_token(responder, now=NOW, days=1, actor="ana")
    assert authenticate(text, now=NOW + timedelta(days=1, seconds=-1)) is not None
    assert authenticate(text, now=NOW + timedelta(days=1)) is None


def test_revoked_inactive_or_wrong_tokens_are_nobody(responder: User) -> None:
    text = create_token(responder, now=NOW, actor="ana")
    assert authenticate(text + "x", now=NOW) is None
    assert authenticate("g" * 100_000, now=NOW) is None
    token = ApiToken.objects.get()
    revoke_token(token.pk, now=NOW, actor="ana", source="command")
    revoke_token(token.pk, now=NOW, actor="ana", source="command")
    assert authenticate(text, now=NOW) is None
    assert AuditEntry.objects.filter(verb="token.revoke").count() == 1
    second = create_token(responder, now=NOW, actor="ana")
    User.objects.filter(pk=responder.pk).update(is_active=False)
    assert authenticate(second, now=NOW) is None


def test_token_loses_reach_with_its_user(responder: User) -> None:
    text = create_token(responder, now=NOW, actor="ana")
    User.objects.filter(pk=responder.pk).update(role="viewer")
    found = authenticate(text, now=NOW)
    assert found is not None
    assert found.role == "viewer"


def test_too_wide_or_too_long_a_token_is_refused_and_nothing_changes(responder: User) -> None:
    with pytest.raises(TokenError, match="cannot have the role admin"):
        create_token(responder, now=NOW, role="admin", actor="ana")
    with pytest.raises(TokenError, match="1 to 3650 days"):
        create_token(responder, now=NOW, days=0, actor="ana")
    assert ApiToken.objects.count() == 0


def test_command_prints_the_token_once(responder: User) -> None:
    out = io.StringIO()
    call_command("create_token", "ana", "--role", "ingest", "--days", "7", stdout=out)
    found = authenticate(out.getvalue().strip(), now=NOW)
    assert found is not None
    assert found.role == "ingest"


def test_command_names_the_users_there_are(responder: User) -> None:
    with pytest.raises(CommandError, match="There is no user 'bob'; there is ana"):
        call_command("create_token", "bob")


def test_weak_password_makes_no_user(db: None) -> None:
    with pytest.raises(ValidationError):
        create_user("eve", "viewer", "password", now=NOW)
    assert User.objects.count() == 0


def test_audit_log_cannot_be_changed_or_deleted(db: None) -> None:
    entry = audit.record(at=NOW, actor="ana", source="page", verb="incident.acknowledge", subject="incident:1")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        AuditEntry.objects.filter(pk=entry.pk).update(actor="eve")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        entry.delete()
    assert AuditEntry.objects.get().actor == "ana"
