"""A small fleet with a quarter of an hour of scrapes, and callers of every kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from django.http import HttpResponse
from django.test import Client
from factories import MadeFleet, make_fleet, make_user, scrape

from gpufleet.accounts.tokens import create_token
from gpufleet.store.layouts import forget_layouts

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


@dataclass(slots=True)
class Asking:
    """Asks as somebody; `headers` go with every request."""

    client: Client = field(default_factory=Client)
    headers: dict[str, str] = field(default_factory=dict)

    def get(self, path: str, **query: Any) -> HttpResponse:
        return self.client.get(f"/prometheus/api/v1/{path}", query, headers=self.headers)  # type: ignore[return-value]

    def post(self, path: str, **form: Any) -> HttpResponse:
        return self.client.post(f"/prometheus/api/v1/{path}", form, headers=self.headers)  # type: ignore[return-value]

    def data(self, path: str, **query: Any) -> Any:
        answer = self.get(path, **query)
        assert answer.status_code == 200, answer.content[:400]
        return orjson.loads(answer.content)["data"]


def assert_error(answer: HttpResponse, status: int, kind: str, names: str = "") -> None:
    body = orjson.loads(answer.content)
    assert (answer.status_code, body["status"], body["errorType"]) == (status, "error", kind), body
    assert names in body["error"]


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    forget_layouts()
    yield
    forget_layouts()


@pytest.fixture
def fleet(db: None) -> MadeFleet:
    made = make_fleet(NOW, nodes=2, gpus=2)
    for minute in range(15):
        scrape(made, NOW - timedelta(minutes=15 - minute))
    return made


@pytest.fixture
def viewer(db: None) -> Asking:
    return Asking(headers={"Authorization": f"Bearer {token('viewer')}"})


def token(role: str) -> str:
    return create_token(make_user(role, f"{role}-of-token"), now=datetime.now(tz=UTC), actor="test")
