"""A small fleet, and the two callers that most tests need."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from api_callers import Caller, by_token
from django.core.cache import cache
from factories import MadeFleet, make_fleet


@pytest.fixture(autouse=True)
def plain(settings: Any) -> None:
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.ENV = {**settings.ENV, "GPUFLEET_BASE_URL": "https://fleet.example"}
    cache.clear()


@pytest.fixture
def now() -> datetime:
    return datetime.now(tz=UTC)


@pytest.fixture
def fleet(db: None, now: datetime) -> MadeFleet:
    return make_fleet(now, nodes=3)


@pytest.fixture
def viewer(db: None) -> Caller:
    return by_token("viewer")


@pytest.fixture
def responder(db: None) -> Caller:
    return by_token("responder")
