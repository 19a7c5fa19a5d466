"""A site's own record of outages: what a file says, what it may not overwrite, and that it is taken whole or not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from factories import make_fleet
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.accounts.models import AuditEntry
from gpufleet.availability.models import StateInterval
from gpufleet.availability.outage_file import Outage, OutageFileError, read_outages
from gpufleet.availability.outage_import import Imported, import_outages
from gpufleet.availability.outage_record import Told, hull, merge, record_of
from gpufleet.availability.queries import availability
from gpufleet.availability.timeline import Piece
from gpufleet.core.intervals import intersect, subtract, total_time, union
from gpufleet.fleet.models import Cluster
from gpufleet.incidents.lifecycle import fold
from gpufleet.incidents.log import events_of, state_of
from gpufleet.incidents.models import Incident

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MARCH = (datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 4, 1, tzinfo=UTC))
HEAD = "node,gpu_uuid,starts_at,ends_at,planned,reason\n"
HOUR = 3600.0


def march(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, tzinfo=UTC)


def row(
    node: str, start: datetime, end: datetime | None, *, uuid: str = "", planned: bool = False, reason: str = "why"
) -> Outage:
    return Outage(node, uuid, start, end, planned, reason)


def take(rows: list[Outage], cover: tuple[datetime, datetime] | None = None, now: datetime = NOW) -> Imported:
    cluster, _ = Cluster.objects.get_or_create(name="default")
    return import_outages(cluster, rows, cover=cover, source="a.csv", actor="import_outages", now=now)


def report(scope: str = "fleet") -> list[dict[str, Any]]:
    return availability(Cluster.objects.get(name="default"), *MARCH, scope, now=NOW)


def stored() -> list[tuple[object, ...]]:
    fields = ("id", "node_id", "gpu_id", "state", "reasons", "incident_id", "starts_at", "ends_at")
    return list(StateInterval.objects.order_by("id").values_list(*fields))


def require_gap_free() -> None:
    """Every subject's intervals follow one another, and the last one is open or meets nothing."""
    last: dict[tuple[int | None, int | None], datetime | None] = {}
    for interval in StateInterval.objects.order_by("starts_at"):
        subject = (None, interval.gpu_id) if interval.gpu_id else (interval.node_id, None)
        assert last.get(subject, interval.starts_at) == interval.starts_at
        last[subject] = interval.ends_at
    assert set(last.values()) <= {None}


@pytest.mark.django_db
def test_a_node_without_known_gpus_counts_as_one() -> None:
    done = take([row("a", march(5), march(5, 6)), row("a", march(20), march(20, 2), planned=True)])
    assert (done.subjects, done.changed, done.outages) == (1, 1, 1)
    (figures,) = report()
    assert figures["down_seconds"] == 6 * HOUR
    assert figures["planned_seconds"] == 2 * HOUR
    assert figures["up_seconds"] == (15 * 24 + 2 - 8) * HOUR
    assert figures["unknown_seconds"] == 31 * 24 * HOUR - (15 * 24 + 2) * HOUR
    assert figures["out_of_service_seconds"] == 0
    assert (figures["incidents"], figures["mttr_seconds"]) == (1, 6 * HOUR)
    require_gap_free()


@pytest.mark.django_db
def test_the_record_covers_what_it_is_said_to_cover() -> None:
    take([row("a", march(5), march(5, 6)), row("b", march(6), march(6, 1), uuid="GPU-1")], cover=MARCH)
    (figures,) = report()
    assert figures["up_seconds"] + figures["down_seconds"] == figures["gpu_count"] * 31 * 24 * HOUR
    assert (figures["down_seconds"], figures["unknown_seconds"]) == (7 * HOUR, 0)


@pytest.mark.django_db
def test_a_whole_node_takes_its_boards_and_overlap_counts_once() -> None:
    rows = [
        row("a", march(1), march(1, 1), uuid="GPU-1"),
        row("a", march(31), march(31, 1), uuid="GPU-2"),
        row("a", march(10), march(10, 4)),
        row("a", march(10, 2), march(10, 6), uuid="GPU-1"),
        row("a", march(10, 3), march(10, 5), planned=True),
    ]
    take(rows, cover=MARCH)
    by_gpu = {figures["subject"]: figures for figures in report("gpu")}
    assert by_gpu["GPU-1"]["down_seconds"] == (1 + 6 - 2) * HOUR
    assert by_gpu["GPU-1"]["planned_seconds"] == 2 * HOUR
    assert by_gpu["GPU-2"]["down_seconds"] == (1 + 3) * HOUR
    assert report("node")[0]["gpu_count"] == 2
    require_gap_free()


@pytest.mark.django_db
def test_the_same_file_again_changes_nothing() -> None:
    rows = [row("a", march(5), march(5, 6), uuid="GPU-1"), row("a", march(9), None), row("b", march(9), march(10))]
    take(rows)
    before, events = stored(), list(Incident.objects.values_list("id", "version", "resolved_at", "label"))
    assert take(rows, now=NOW + timedelta(hours=3)).changed == 0
    assert stored() == before
    assert list(Incident.objects.values_list("id", "version", "resolved_at", "label")) == events
    assert AuditEntry.objects.filter(verb="outages.imported").count() == 1


@pytest.mark.django_db
def test_an_outage_that_went_on_ends_with_a_newer_file() -> None:
    take([row("a", march(9), None)])
    assert Incident.objects.get().resolved_at is None
    take([row("a", march(9), march(10)), row("a", march(20), march(21))])
    assert [one.resolved_at for one in Incident.objects.order_by("opened_at")] == [march(10), march(21)]
    assert report()[0]["down_seconds"] == 48 * HOUR
    require_gap_free()


@pytest.mark.django_db
def test_a_corrected_file_withdraws_its_incident() -> None:
    take([row("a", march(5), march(6)), row("a", march(9), march(10))], cover=MARCH)
    done = take([row("a", march(5), march(6))], cover=MARCH)
    assert (done.changed, done.withdrawn) == (1, 1)
    assert [(one.first_evidence_at, one.label) for one in Incident.objects.order_by("opened_at")] == [
        (march(5), ""),
        (march(9), "false"),
    ]
    assert report()[0]["incidents"] == 1


@pytest.mark.django_db
def test_a_second_month_joins_the_first() -> None:
    take([row("a", march(1), march(2))], cover=(march(1), march(10)))
    take([row("a", march(21), march(22))], cover=(march(20), march(31)))
    (figures,) = report()
    assert (figures["down_seconds"], figures["unknown_seconds"]) == (48 * HOUR, (10 + 1) * 24 * HOUR)
    require_gap_free()


@pytest.mark.django_db
def test_imported_time_ends_where_scraping_begins() -> None:
    fleet = make_fleet(NOW, nodes=1, gpus=1)
    live = list(StateInterval.objects.order_by("id").values())
    began = NOW - timedelta(days=2)
    take([row("gpu-001", march(5), NOW - timedelta(days=1)), row("gpu-001", NOW - timedelta(hours=3), NOW)])
    assert list(StateInterval.objects.filter(pk__in=[one["id"] for one in live]).order_by("id").values()) == live
    imported = StateInterval.objects.filter(gpu=fleet.gpu(0, 0), reasons__contains=["imported"])
    assert [(one.state, one.starts_at, one.ends_at) for one in imported] == [("failed", march(5), began)]
    assert Incident.objects.count() == 1
    require_gap_free()


@pytest.mark.django_db
def test_outages_are_incidents_with_a_log() -> None:
    take([row("a", march(5), march(5, 6), uuid="GPU-AB", reason="XID 79")])
    incident = Incident.objects.get()
    assert (incident.kind, incident.subject, incident.title) == ("external", "gpu:GPU-AB", "XID 79")
    assert (incident.opened_at, incident.resolved_at, incident.paged) == (march(5), march(5, 6), False)
    assert [(one.verb, one.source) for one in incident.events.all()] == [("opened", "import"), ("resolved", "import")]
    assert fold(events_of(incident.events.all())) == state_of(incident)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty"),
        ("node,starts_at\n", "line 1: the column gpu_uuid is missing"),
        (HEAD + "a,,2026-03-01T00:00:00Z\n", "line 2: 3 cells instead of 6"),
        (HEAD + ",,2026-03-01T00:00:00Z,,false,x\n", "line 2: node is empty"),
        (HEAD + "a,,2026-03-01T00:00:00,,false,x\n", "line 2: starts_at"),
        (HEAD + "a,,2026-03-02T00:00:00Z,2026-03-01T00:00:00Z,false,x\n", "line 2: ends_at"),
        (HEAD + 'a,,2026-03-01T00:00:00Z,,false,"two\nlines"\na,,yesterday,,false,x\n', "line 4: starts_at"),
        (HEAD + "a,,2026-03-01T00:00:00Z,,maybe,x\n", "line 2: planned"),
        (HEAD + "a,,2026-07-01T00:00:00Z,,true,x\n", "line 2: starts_at 2026-07-01T00:00:00Z lies in the future"),
        (HEAD + "a,,1970-07-01T00:00:00Z,,true,x\n", "line 2: starts_at lies before"),
        (HEAD + f"{'a' * 256},,2026-03-01T00:00:00Z,,true,x\n", "line 2: node is longer"),
        (HEAD + 'a,,2026-03-01T00:00:00Z,,true,"x\n', "line 2: "),
    ],
)
def test_a_bad_row_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "outages.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(OutageFileError) as raised:
        read_outages(path, NOW)
    assert words in str(raised.value)


@pytest.mark.django_db
def test_nothing_of_a_bad_file_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "outages.csv"
    path.write_text(HEAD + "a,,2026-03-01T00:00:00Z,,false,x\nb,,nonsense,,false,x\n", encoding="utf-8")
    with pytest.raises(CommandError, match="line 3"):
        call_command("import_outages", str(path))
    assert not StateInterval.objects.exists()
    assert not Cluster.objects.filter(nodes__isnull=False).exists()


def at(hour: int) -> datetime:
    return march(1) + timedelta(hours=hour)


HOURS = st.integers(0, 60)
ROWS = st.lists(
    st.tuples(HOURS, st.integers(1, 20), st.booleans(), st.booleans()).map(
        lambda made: Told(at(made[0]), at(made[0] + made[1]), made[2], "why", made[3], None if made[2] else 1)
    ),
    min_size=1,
    max_size=12,
)


def of_state(pieces: list[Piece], state: str) -> list[tuple[datetime, datetime]]:
    return union((one.starts_at, one.ends_at) for one in pieces if one.state == state and one.ends_at is not None)


@given(ROWS)
def test_a_record_is_gap_free_and_its_sums_are_the_files_union(rows: list[Told]) -> None:
    span = hull(rows)
    assert span is not None
    pieces = record_of(rows, span, [(at(0), 1)])
    assert [one.starts_at for one in pieces] == [span[0], *(one.ends_at for one in pieces[:-1])]
    assert pieces[-1].ends_at == span[1]
    planned = union((one.starts_at, one.ends_at) for one in rows if one.planned)
    down = subtract(union((one.starts_at, one.ends_at) for one in rows if not one.planned), planned)
    assert of_state(pieces, "maintenance") == planned
    assert of_state(pieces, "failed") == down
    assert total_time(of_state(pieces, "healthy")) == span[1] - span[0] - total_time(planned) - total_time(down)


@given(ROWS, ROWS, st.booleans())
def test_merging_is_gap_free_and_idempotent(first: list[Told], second: list[Told], scraped: bool) -> None:
    stays = [(at(0), 1), (at(30), 2)]
    live_from = at(100) if scraped else None
    one, two = (record_of(rows, hull(rows) or (at(0), at(1)), stays) for rows in (first, second))
    held = merge([], one, live_from, stays)
    both = merge(held, two, live_from, stays)
    assert [piece.ends_at for piece in both] == [*(piece.starts_at for piece in both[1:]), live_from]
    assert merge(both, two, live_from, stays) == both
    span = hull(second)
    assert span is not None
    assert intersect(of_state(both, "failed"), [span]) == of_state(two, "failed")
