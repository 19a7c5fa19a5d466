"""Time expressions of the address line, as Grafana writes them: `now-1h`, `now/d`, epoch milliseconds, RFC 3339.

`time = relative | epoch | iso`, `relative = "now" *(("+"|"-") digits unit) ["/" unit]`. `/unit` rounds down in `from`
and up in `to`. Calendar steps (days and larger) follow the time zone, so a day can have 23 or 25 hours.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gpufleet.core.times import from_unix

SECONDS = {"s": 1, "m": 60, "h": 3600}
CALENDAR = ("d", "w", "M", "Q", "y")
MOST_TERMS = 8
SHORTEST_SECONDS = 60
STEPS = (15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)
MOST_POINTS = 360
QUICK_RANGES = (
    ("now-15m", "now", "Last 15 minutes"),
    ("now-1h", "now", "Last 1 hour"),
    ("now-3h", "now", "Last 3 hours"),
    ("now-6h", "now", "Last 6 hours"),
    ("now-12h", "now", "Last 12 hours"),
    ("now-24h", "now", "Last 24 hours"),
    ("now-2d", "now", "Last 2 days"),
    ("now-7d", "now", "Last 7 days"),
    ("now-30d", "now", "Last 30 days"),
    ("now-90d", "now", "Last 90 days"),
    ("now/d", "now/d", "Today"),
    ("now-1d/d", "now-1d/d", "Yesterday"),
    ("now/w", "now/w", "This week"),
    ("now/M", "now/M", "This month"),
    ("now-1M/M", "now-1M/M", "Last month"),
)
RELATIVE = re.compile(r"now((?:[+-]\d{1,9}[smhdwMQy])*)(?:/([smhdwMQy]))?")
TERM = re.compile(r"([+-])(\d{1,9})([smhdwMQy])")
EPOCH_MILLISECONDS = re.compile(r"\d{13}")
EARLIEST, LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


class TimeExpressionError(ValueError):
    """A time that cannot be read; the message says so to a person."""


@dataclass(frozen=True, slots=True)
class TimeRange:
    """`[start, end)` in UTC, with the expressions it came from. `problem` is empty when both were understood."""

    start: datetime
    end: datetime
    from_text: str
    to_text: str
    title: str
    live: bool
    problem: str = ""

    @property
    def step_seconds(self) -> int:
        """The smallest step that keeps a series at 360 points or fewer."""
        span = (self.end - self.start).total_seconds()
        return next((step for step in STEPS if span / step <= MOST_POINTS), STEPS[-1])


def zone(name: str) -> ZoneInfo:
    """The IANA time zone; `utc` and `browser` (which the server cannot know) are UTC. Raises TimeExpressionError."""
    if name in ("", "utc", "browser"):
        return ZoneInfo("UTC")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise TimeExpressionError(f"{name[:64]} is no time zone") from error


def read_instant(text: str, now: datetime, tz: ZoneInfo, *, round_up: bool = False) -> datetime:
    """The instant in UTC that `text` means at `now`. Raises TimeExpressionError."""
    text = text.strip()
    try:
        found = _read(text, now, tz, round_up)
    except (OverflowError, ValueError) as error:
        raise TimeExpressionError(f"cannot read {text[:64]!r} as a time") from error
    if not EARLIEST <= found <= LATEST:
        raise TimeExpressionError(f"{text[:64]!r} lies outside the years 2000 to 2100")
    return found


def read_range(query: Mapping[str, str], now: datetime, default: tuple[str, str] = ("now-1h", "now")) -> TimeRange:
    """The range of `from`, `to` and `tz`. What cannot be used leaves the default in place and says why."""
    from_text, to_text = query.get("from", default[0]), query.get("to", default[1])
    try:
        tz = zone(query.get("tz", ""))
        start, end = read_instant(from_text, now, tz), read_instant(to_text, now, tz, round_up=True)
        if end <= start:
            raise TimeExpressionError("the range ends before it starts")
        if (end - start).total_seconds() < SHORTEST_SECONDS:
            raise TimeExpressionError("the shortest range is one minute")
    except TimeExpressionError as error:
        utc = ZoneInfo("UTC")
        start, end = read_instant(default[0], now, utc), read_instant(default[1], now, utc, round_up=True)
        return TimeRange(start, end, *default, _title(*default, start, end), default[1] == "now", str(error))
    live = to_text == "now" and "at" not in query
    return TimeRange(start, end, from_text, to_text, _title(from_text, to_text, start, end), live)


def _title(from_text: str, to_text: str, start: datetime, end: datetime) -> str:
    for quick_from, quick_to, title in QUICK_RANGES:
        if (quick_from, quick_to) == (from_text, to_text):
            return title
    same_day = start.date() == end.date()
    return f"{start:%d %b %H:%M} to {end:%H:%M}" if same_day else f"{start:%d %b %H:%M} to {end:%d %b %H:%M}"


def _read(text: str, now: datetime, tz: ZoneInfo, round_up: bool) -> datetime:
    if EPOCH_MILLISECONDS.fullmatch(text):
        return from_unix(int(text) / 1000)
    match = RELATIVE.fullmatch(text)
    if match:
        return _relative(match[1], match[2], now, tz, round_up)
    instant = datetime.fromisoformat(text)
    return (instant if instant.tzinfo else instant.replace(tzinfo=tz)).astimezone(UTC)


def _relative(terms: str, unit: str | None, now: datetime, tz: ZoneInfo, round_up: bool) -> datetime:
    found = TERM.findall(terms)
    if len(found) > MOST_TERMS:
        raise TimeExpressionError("too many steps in one time")
    at = now.astimezone(UTC)
    for sign, digits, term_unit in found:
        at = _move(at, (-1 if sign == "-" else 1) * int(digits), term_unit, tz)
    if unit is None:
        return at
    floor = _floor(at, unit, tz)
    return _move(floor, 1, unit, tz) if round_up else floor


def _move(at: datetime, amount: int, unit: str, tz: ZoneInfo) -> datetime:
    if unit in SECONDS:
        return at + timedelta(seconds=amount * SECONDS[unit])
    local = at.astimezone(tz)
    if unit in ("d", "w"):
        moved = local.replace(tzinfo=None) + timedelta(days=amount * (7 if unit == "w" else 1))
    else:
        months = local.year * 12 + local.month - 1 + amount * {"M": 1, "Q": 3, "y": 12}[unit]
        year, month = divmod(months, 12)
        day = min(local.day, monthrange(year, month + 1)[1])
        moved = local.replace(tzinfo=None, year=year, month=month + 1, day=day)
    return moved.replace(tzinfo=tz).astimezone(UTC)


def _floor(at: datetime, unit: str, tz: ZoneInfo) -> datetime:
    if unit in SECONDS:
        return from_unix(at.timestamp() // SECONDS[unit] * SECONDS[unit])
    day = at.astimezone(tz).replace(tzinfo=None, hour=0, minute=0, second=0, microsecond=0, fold=0)
    if unit == "w":
        day -= timedelta(days=day.weekday())
    elif unit == "M":
        day = day.replace(day=1)
    elif unit == "Q":
        day = day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
    elif unit == "y":
        day = day.replace(month=1, day=1)
    return day.replace(tzinfo=tz).astimezone(UTC)
