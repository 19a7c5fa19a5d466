"""Instants: aware UTC datetimes outside, Unix seconds inside arrays."""

from __future__ import annotations

from datetime import UTC, datetime


def from_unix(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, tz=UTC)


def utc_now() -> datetime:
    """The wall clock. Only entry points (tasks, commands, views) call this; everything below takes `now`."""
    return datetime.now(tz=UTC)


def rfc3339(instant: datetime) -> str:
    """RFC 3339 in UTC with `Z`, whole seconds unless the instant has a fraction (then milliseconds)."""
    instant = instant.astimezone(UTC)
    spec = "milliseconds" if instant.microsecond else "seconds"
    return instant.isoformat(timespec=spec).replace("+00:00", "Z")


def parse_rfc3339(text: str) -> datetime:
    """An aware UTC instant. Raises ValueError when the text is no RFC 3339 time or has no offset."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is None:
        raise ValueError("the time needs an offset, for example 2026-03-10T12:00:00Z")
    return instant.astimezone(UTC)
