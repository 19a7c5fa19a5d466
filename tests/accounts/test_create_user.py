"""`manage.py create_user`."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from gpufleet.accounts.models import AuditEntry, User

PASSWORD = "correct horse battery"

pytestmark = pytest.mark.django_db


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def run(*arguments: str) -> str:
    out = io.StringIO()
    call_command("create_user", *arguments, stdout=out)
    return out.getvalue()


@pytest.mark.parametrize("role", ["viewer", "responder", "manager", "admin", "ingest"])
def test_password_from_standard_input(monkeypatch: pytest.MonkeyPatch, role: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\nnot read\n"))
    said = run("ana", "--role", role, "--email", "ana@example.org")
    user = User.objects.get(username="ana")
    assert user.check_password(PASSWORD)
    assert (user.role, user.email, user.is_superuser) == (role, "ana@example.org", False)
    assert said == f"made the user ana, {role}\n"
    entry = AuditEntry.objects.get()
    assert (entry.verb, entry.subject, entry.source) == ("user.create", "user:ana", "command")
    assert PASSWORD not in str(entry.detail)


def test_generated_password_is_printed_once_and_opens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    password = run("ana", "--role", "admin", "--generate").strip()
    assert len(password) == 20
    assert User.objects.get(username="ana").check_password(password)


def test_terminal_asks_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal())
    asked: list[str] = []

    def type_it(prompt: str) -> str:
        asked.append(prompt)
        return PASSWORD

    monkeypatch.setattr("getpass.getpass", type_it)
    run("ana", "--role", "viewer")
    assert asked == ["Password: ", "Again: "]
    assert User.objects.get(username="ana").check_password(PASSWORD)


def test_two_passwords_that_differ_make_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", Terminal())
    typed = iter([PASSWORD, PASSWORD + "x"])
    monkeypatch.setattr("getpass.getpass", lambda _prompt: next(typed))
    with pytest.raises(CommandError, match="the two passwords differ"):
        run("ana", "--role", "viewer")
    assert not User.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "typed", "sentence"),
    [
        (("ana", "--role", "viewer"), "", "holds no password"),
        (("ana", "--role", "viewer"), "\n", "holds no password"),
        (("ana", "--role", "viewer"), "x" * 1025 + "\n", "more than 1024 characters"),
        (("ana", "--role", "viewer"), "password\n", "too common"),
        (("ana", "--role", "king"), PASSWORD, "invalid choice: 'king'"),
        (("ana",), PASSWORD, "required: --role"),
        (("", "--role", "viewer"), PASSWORD, "cannot be blank"),
        (("a b", "--role", "viewer"), PASSWORD, "Enter a valid username"),
        (("a" * 151, "--role", "viewer"), PASSWORD, "at most 150 characters"),
        (("ana", "--role", "viewer", "--email", "nowhere"), PASSWORD, "Enter a valid email address"),
    ],
)
def test_what_cannot_be_makes_no_user(
    monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], typed: str, sentence: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(typed))
    with pytest.raises(CommandError, match=sentence):
        run(*arguments)
    assert not User.objects.exists()
    assert not AuditEntry.objects.exists()


def test_a_taken_name_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run("ana", "--role", "viewer", "--generate")
    before = User.objects.values().get()
    monkeypatch.setattr("sys.stdin", io.StringIO(PASSWORD))
    with pytest.raises(CommandError, match="there is a user 'ana' already"):
        run("ana", "--role", "admin")
    assert User.objects.values().get() == before
