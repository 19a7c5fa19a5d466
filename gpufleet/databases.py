"""Reads the addresses of PostgreSQL and Valkey."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit


def database(address: str) -> dict[str, Any]:
    """`postgresql://user:password@host:port/name?host=/socket/folder` as Django's database settings.

    Without an address the settings name a database that cannot be reached, so that commands that need none still run.
    """
    parts = urlsplit(address)
    query = dict(parse_qsl(parts.query))
    host = query.pop("host", None) or unquote(parts.hostname or "")
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")) or "gpufleet",
        "USER": unquote(parts.username or query.pop("user", "")),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": host or "127.0.0.1",
        "PORT": str(parts.port or query.pop("port", "")),
        "CONN_MAX_AGE": 300,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {"connect_timeout": 5, "application_name": "gpufleet", **query},
        "DISABLE_SERVER_SIDE_CURSORS": True,
    }


def broker_url(address: str) -> str:
    """The address as Celery and Django's cache read it; both take `redis://`, `rediss://` and `unix://`."""
    return address or "redis://127.0.0.1:6379/0"
