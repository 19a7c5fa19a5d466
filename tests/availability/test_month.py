"""A month of a zone is exactly its seconds; a table can be opened in a spreadsheet; a report says what the API says."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from django.core.management import CommandError, call_command
from hypothesis import given
from hypothesis import strategies as st
from shared import shared

from gpufleet.availability.month import MonthError, by_node_and_day, lost_by_cause, month_of, parse_month, ratios
from gpufleet.availability.outage_file import Outage
from gpufleet.availability.outage_import import import_outages
from gpufleet.availability.queries import availability, read_spans
from gpufleet.availability.tables import safe, write_csv
from gpufleet.fleet.models import Cluster

NOW = datetime(2026, 6, 1, tzinfo=UTC)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])


@given(st.integers(1971, 2100), st.integers(1, 12), ZONES)
def test_days_of_a_month_follow_one_another(year: int, number: int, zone: str) -> None:
    month = month_of(year, number, ZoneInfo(zone))
    assert month.edges[0] == month.start.timestamp()
    assert month.edges[-1] == month.end.timestamp()
    assert all(82_800 <= after - before <= 90_000 for before, after in zip(month.edges, month.edges[1:], strict=False))
    assert month.moved(1).start == month.end
    assert month.moved(1).moved(-1) == month


def test_a_day_of_23_and_one_of_25_hours() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    march, october = month_of(2026, 3, berlin).edges, month_of(2026, 10, berlin).edges
    assert march[29] - march[28] == 23 * 3600
    assert october[25] - october[24] == 25 * 3600


@pytest.mark.parametrize("text", ["2026-13", "2026-3", "x", "0001-01", "9999-01", "२०२६-03", "2026-03\n"])
def test_no_month(text: str) -> None:
    with pytest.raises(MonthError):
        parse_month(text, "UTC")


@pytest.mark.parametrize("zone", ["Nowhere", "../etc/passwd", "", "a\x00b"])
def test_no_zone(zone: str) -> None:
    with pytest.raises(MonthError):
        parse_month("2026-03", zone)


def test_case_045_labels_that_become_formulas() -> None:
    folder = shared("cases/045-csv-formulas")
    given_rows = json.loads((folder / "input.json").read_text())
    expected = json.loads((folder / "case.json").read_text())["numbers"]
    written = write_csv(["label", "margin"], [[one["value"], -3] for one in given_rows])
    rows = list(csv.reader(io.StringIO(written, newline="")))[1:]
    assert len(rows) == expected["rows"]
    changed = [row[0] != one["value"] for row, one in zip(rows, given_rows, strict=True)]
    assert changed == [one["escape"] for one in given_rows]
    assert sum(changed) == expected["escaped"]
    assert [row[0].removeprefix("'") for row in rows] == [one["value"] for one in given_rows]
    assert {row[1] for row in rows} == {"-3"}


@given(st.text(max_size=20))
def test_no_cell_begins_like_a_formula(text: str) -> None:
    made = safe(text)
    assert made in (text, f"'{text}")
    if made == text and made[:1] in ("=", "+", "-", "@", "\t", "\r"):
        float(made)


@pytest.fixture
def march(db: None) -> Cluster:
    cluster = Cluster.objects.create(name="default")
    at = [datetime(2026, 3, day, hour, tzinfo=UTC) for day, hour in ((3, 20), (4, 4), (9, 0), (9, 6), (20, 0), (20, 1))]
    rows = [
        Outage("a", "GPU-1", at[0], at[1], False, "=XID 79"),
        Outage("a", "", at[2], at[3], True, "firmware"),
        Outage("b", "GPU-2", at[4], at[5], False, "node down"),
    ]
    cover = (datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 5, 1, tzinfo=UTC))
    import_outages(cluster, rows, cover=cover, source="a.csv", actor="import_outages", now=NOW)
    return cluster


def test_lost_time_by_cause_and_by_day(march: Cluster) -> None:
    month = parse_month("2026-03", "UTC")
    spans = read_spans(march, month.start, month.end)
    assert [(cause.name, cause.seconds) for cause in lost_by_cause(march, spans)] == [
        ("=XID 79", 8 * 3600.0),
        ("node down", 3600.0),
    ]
    days = by_node_and_day(spans, month.edges)
    a, b = march.nodes.get(name="a").pk, march.nodes.get(name="b").pk
    assert {number: (day.lost, day.planned) for number, day in days[a].items()} == {
        2: (4 * 3600.0, 0.0),
        3: (4 * 3600.0, 0.0),
        8: (0.0, 6 * 3600.0),
    }
    assert {number: day.lost for number, day in days[b].items()} == {19: 3600.0}


def test_a_month_of_the_strip_is_the_month_of_the_report(march: Cluster) -> None:
    months = [month_of(2026, number, ZoneInfo("Europe/Berlin")) for number in range(1, 5)]
    alone = [availability(march, one.start, one.end, "fleet", now=NOW) for one in months]
    expected = [rows[0]["availability_ratio"] if rows else None for rows in alone]
    assert ratios(march, months, NOW) == expected
    assert expected[1:] == [1.0, expected[2], 1.0]


def test_json_and_csv_say_the_same(march: Cluster, tmp_path: Path) -> None:
    for form in ("json", "csv", "html"):
        target = tmp_path / form
        call_command("availability_report", "--month", "2026-03", "--format", form, "--output", str(target))
    reports = json.loads((tmp_path / "json").read_text())["reports"]
    rows = [{"scope": one["scope"], **row} for one in reports for row in one["rows"]]
    with (tmp_path / "csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows] == table
    month = parse_month("2026-03", "UTC")
    assert reports[0]["rows"] == availability(march, month.start, month.end, "fleet", now=NOW)
    html = (tmp_path / "html").read_text()
    assert "<td>9.0</td>" in html
    assert "99.39 %" in html


def test_a_report_of_nothing_and_a_report_that_cannot_be_written(march: Cluster, tmp_path: Path) -> None:
    for asked, words in (
        (["--month", "2026-3"], "is no month"),
        (["--month", "2026-03", "--tz", "Mars"], "no time zone"),
        (["--month", "2026-03", "--cluster", "x"], "no cluster"),
        (["--month", "2026-03", "--output", str(tmp_path / "a" / "b")], "No such file"),
    ):
        with pytest.raises(CommandError, match=words):
            call_command("availability_report", *asked)


def test_without_a_browser_a_pdf_is_refused(march: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CommandError, match="none is installed"):
        call_command("availability_report", "--month", "2026-03", "--format", "pdf")
