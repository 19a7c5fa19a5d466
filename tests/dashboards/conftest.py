"""Pages are tested with static files under their plain names, at one fixed moment."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from factories import MadeFleet, make_fleet, make_user

NOW = datetime(2026, 11, 19, 15, 0, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def plain_static_files(settings: Any) -> None:
    settings.STORAGES = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    cache.clear()


@pytest.fixture
def now() -> datetime:
    return NOW


@pytest.fixture
def fleet(db: None) -> MadeFleet:
    return make_fleet(datetime.now(tz=UTC))


@pytest.fixture
def viewer(db: None) -> Client:
    client = Client()
    client.force_login(make_user("viewer"), backend="django.contrib.auth.backends.ModelBackend")
    return client
