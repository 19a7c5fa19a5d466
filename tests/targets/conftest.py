"""Pages with static files under their plain names, and a broker without what earlier tests left."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.cache import cache

from gpufleet.core.bus import broker


@pytest.fixture(autouse=True)
def plain(settings: Any) -> None:
    settings.STORAGES = {"staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"}}
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    cache.clear()


@pytest.fixture
def no_tries() -> None:
    """Forgets which targets were tried. Valkey is shared by the tests of a run."""
    client = broker(django_settings.BROKER_URL)
    for key in client.scan_iter("gpufleet:retry:*"):
        client.delete(key)
