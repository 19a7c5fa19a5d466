"""Time expressions: every form, rounding both ways, clocks that change, and what is refused."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.time_range import STEPS, TimeExpressionError, read_instant, read_range, zone

NOW = datetime(2026, 11, 19, 15, 4, 5, tzinfo=UTC)  # a Thursday
UTC_ZONE = ZoneInfo("UTC")
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "down", "up"),
    [
        ("now", "2026-11-19T15:04:05", "2026-11-19T15:04:05"),
        ("now-1h", "2026-11-19T14:04:05", "2026-11-19T14:04:05"),
        ("now-1h+30m-5s", "2026-11-19T14:34:00", "2026-11-19T14:34:00"),
        ("now/h", "2026-11-19T15:00:00", "2026-11-19T16:00:00"),
        ("now/d", "2026-11-19T00:00:00", "2026-11-20T00:00:00"),
        ("now/w", "2026-11-16T00:00:00", "2026-11-23T00:00:00"),
        ("now/M", "2026-11-01T00:00:00", "2026-12-01T00:00:00"),
        ("now/Q", "2026-10-01T00:00:00", "2027-01-01T00:00:00"),
        ("now/y", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("now-1M/M", "2026-10-01T00:00:00", "2026-11-01T00:00:00"),
        ("1763560000000", "2025-11-19T13:46:40", "2025-11-19T13:46:40"),
        ("2026-11-19T10:00:00Z", "2026-11-19T10:00:00", "2026-11-19T10:00:00"),
        ("2026-11-19T10:00:00+02:00", "2026-11-19T08:00:00", "2026-11-19T08:00:00"),
    ],
)
def test_each_form(text: str, down: str, up: str) -> None:
    assert read_instant(text, NOW, UTC_ZONE) == datetime.fromisoformat(down + "+00:00")
    assert read_instant(text, NOW, UTC_ZONE, round_up=True) == datetime.fromisoformat(up + "+00:00")


def test_a_day_of_the_clock_change_has_25_hours() -> None:
    after = datetime(2026, 10, 25, 12, 0, tzinfo=UTC)
    start = read_instant("now/d", after, BERLIN)
    end = read_instant("now/d", after, BERLIN, round_up=True)
    assert end - start == timedelta(hours=25)


def test_a_month_step_lands_on_the_last_day() -> None:
    assert read_instant("now-1M", datetime(2026, 3, 31, 12, tzinfo=UTC), UTC_ZONE).date().isoformat() == "2026-02-28"


def test_a_time_without_offset_is_read_in_the_zone() -> None:
    assert read_instant("2026-11-19T10:00", NOW, BERLIN) == datetime(2026, 11, 19, 9, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "now-1",
        "now-1x",
        "now--1h",
        "now-1h/",
        "now/1d",
        "-1h",
        "123",
        "now" + "-1h" * 9,
        "now-999999y",
        "x" * 9999,
    ],
)
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(TimeExpressionError):
        read_instant(text, NOW, UTC_ZONE)


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(TimeExpressionError):
        assert read_instant(text, NOW, UTC_ZONE).tzinfo is UTC


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"from": "now", "to": "now-1h"}, "ends before"),
        ({"from": "now-10s", "to": "now"}, "one minute"),
        ({"from": "yesterday", "to": "now"}, "yesterday"),
        ({"tz": "Mars/Olympus"}, "no time zone"),
    ],
)
def test_a_range_that_cannot_be_used_says_so_and_shows_the_default(query: dict[str, str], words: str) -> None:
    found = read_range(query, NOW)
    assert words in found.problem
    assert (found.from_text, found.to_text) == ("now-1h", "now")
    assert found.end - found.start == timedelta(hours=1)


def test_only_a_plain_now_is_live() -> None:
    assert read_range({"from": "now-3h", "to": "now"}, NOW).live
    assert not read_range({"from": "now-3h", "to": "now-1h"}, NOW).live
    assert not read_range({"at": "now-1h"}, NOW).live


@given(st.integers(min_value=60, max_value=90 * 86400))
def test_a_step_keeps_a_series_at_360_points(seconds: int) -> None:
    step = read_range({"from": f"now-{seconds}s", "to": "now"}, NOW).step_seconds
    assert seconds / step <= 360
    smaller = [one for one in STEPS if one < step]
    assert not smaller or seconds / smaller[-1] > 360


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(TimeExpressionError):
        zone("../../etc/passwd")
