"""Callers of the API of every role, by token and by session, and what a problem document has to be."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson
from django.http import HttpResponse
from django.test import Client
from factories import make_user

from gpufleet.accounts.models import User
from gpufleet.accounts.tokens import create_token

BACKEND = "django.contrib.auth.backends.ModelBackend"


@dataclass(slots=True)
class Caller:
    """Sends requests as somebody; `send` takes a body as an object, or as bytes that go out as they are."""

    client: Client
    headers: dict[str, str]
    user: User | None = None

    def get(self, path: str, **query: Any) -> HttpResponse:
        return self.client.get(f"/api/v1/{path}", query, headers=self.headers)  # type: ignore[return-value]

    def delete(self, path: str) -> HttpResponse:
        return self.client.delete(f"/api/v1/{path}", headers=self.headers)  # type: ignore[return-value]

    def post(self, path: str, body: Any = None) -> HttpResponse:
        data = body if isinstance(body, bytes) else json.dumps({} if body is None else body)
        address = f"/api/v1/{path}"
        return self.client.post(  # type: ignore[return-value]
            address, data, content_type="application/json", headers=self.headers
        )


def by_token(role: str, name: str = "") -> Caller:
    name = name or role
    user = User.objects.filter(username=name).first() or make_user(role, name)
    token = create_token(user, now=datetime.now(tz=UTC), actor="test")
    return Caller(Client(), {"Authorization": f"Bearer {token}"}, user)


def by_session(role: str, *, csrf: bool = True) -> Caller:
    """A signed-in browser that checks CSRF as a real one is checked."""
    user = User.objects.filter(username=role).first() or make_user(role)
    client = Client(enforce_csrf_checks=True)
    client.force_login(user, backend=BACKEND)
    secret = "a" * 32
    client.cookies["csrftoken"] = secret
    return Caller(client, {"X-CSRFToken": secret} if csrf else {}, user)


def stranger() -> Caller:
    return Caller(Client(enforce_csrf_checks=True), {})


CALLERS: dict[str, Callable[[str], Caller]] = {"token": by_token, "session": by_session}


def body_of(answer: HttpResponse) -> Any:
    return orjson.loads(answer.content)


def assert_problem(answer: HttpResponse, status: int, field: str = "") -> Any:
    """The answer is a whole problem document of this status, and names the field."""
    assert answer.status_code == status, answer.content[:400]
    assert answer["Content-Type"] == "application/problem+json"
    body = body_of(answer)
    assert {"type", "title", "status", "detail", "errors"} <= body.keys()
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    if field:
        assert field in [one["field"] for one in body["errors"]]
    return body
