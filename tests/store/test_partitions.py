"""Partitions are made ahead and dropped past the retention; replays lie apart."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread

import pytest
from django.db import connection
from store.small_fleet import NOW, T0, Fleet, make_fleet, spec

from gpufleet.store.append import append_frames
from gpufleet.store.partitions import AHEAD, LIVE, SPAN, drop_replay, keep_partitions, make_room, span_of, span_start
from gpufleet.store.queries import read_frames

MICRO = timedelta(microseconds=1)


def partitions() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'store_frame'::regclass")
        return sorted(name for (name,) in cursor.fetchall())


@pytest.mark.parametrize(
    ("instant", "start"),
    [
        (NOW, NOW),
        (NOW - MICRO, NOW - SPAN),
        (NOW + SPAN - MICRO, NOW),
        (datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(1969, 12, 31, 18, tzinfo=UTC)),
    ],
)
def test_spans_are_half_open(instant: datetime, start: datetime) -> None:
    assert span_start(instant) == start


def test_an_instant_in_another_zone_has_the_same_span() -> None:
    assert span_start(datetime.fromisoformat("2026-12-01T14:00:00+02:00")) == NOW


@pytest.mark.django_db
def test_partitions_are_made_ahead_once() -> None:
    assert keep_partitions(NOW) == (AHEAD + 1, 0)
    assert keep_partitions(NOW) == (0, 0)
    names = partitions()
    assert names[0] == "store_frame_20261201_12"
    assert [span_of(name)[0] for name in names] == [NOW + SPAN * n for n in range(AHEAD + 1)]


def test_past_the_retention_whole_partitions_go_and_nothing_else(fleet: Fleet) -> None:
    """A span of which a part is younger than the retention is kept whole."""
    layout = fleet.layout(0, [spec("a")])
    kept, inside = 90 * 86400.0, NOW + timedelta(hours=3)
    ages = [kept + 2 * 21600, kept + 21600 + 1, kept + 1, kept, kept - 1, 0]
    append_frames([fleet.frame(0, -age, layout, age) for age in ages], NOW)
    assert keep_partitions(inside)[1] == 2
    left = read_frames([fleet.targets[0].id], T0 - 2 * kept, T0 + 1)
    assert [T0 - frame.scraped_at for frame in left] == [kept, kept - 1, 0]
    assert keep_partitions(inside) == (0, 0)
    assert keep_partitions(NOW + SPAN - MICRO)[1] == 0
    assert keep_partitions(NOW + SPAN)[1] == 1


def test_what_was_dropped_can_be_filled_again(fleet: Fleet) -> None:
    layout = fleet.layout(0, [spec("a")])
    old = fleet.frame(0, -200 * 86400.0, layout, 1.0)
    assert append_frames([old], NOW) == 1
    keep_partitions(NOW)
    assert append_frames([old], NOW) == 1


def test_a_replay_is_dropped_without_touching_anything_else(fleet: Fleet) -> None:
    replayed, other = make_fleet("replay", is_replay=True), make_fleet("second", is_replay=True)
    for each in (fleet, replayed, other):
        append_frames([each.frame(0, 0, each.layout(0, [spec("a")]), 1.0)], NOW)
    drop_replay(replayed.cluster.id)
    drop_replay(replayed.cluster.id)
    left = [len(read_frames([each.targets[0].id], T0, T0 + 1)) for each in (fleet, replayed, other)]
    assert left == [1, 0, 1]
    with pytest.raises(ValueError, match="cluster"):
        drop_replay(LIVE)


@pytest.fixture
def clean_partitions() -> Iterator[None]:
    yield
    with connection.cursor() as cursor:
        for name in partitions():
            cursor.execute(f"DROP TABLE {name}")  # noqa: S608


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_partitions")
def test_two_processes_make_the_same_partitions() -> None:
    start, errors = Barrier(3), []

    def work() -> None:
        try:
            start.wait(timeout=30)
            make_room(LIVE, [NOW + SPAN * n for n in range(8)])
            keep_partitions(NOW)
        except Exception as error:  # noqa: BLE001
            errors.append(error)
        finally:
            connection.close()

    threads = [Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert set(partitions()) >= {f"store_frame_{NOW + SPAN * n:%Y%m%d_%H}" for n in range(AHEAD + 1)}


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("clean_partitions")
def test_dropping_gives_way_to_a_reader() -> None:
    keep_partitions(NOW)  # what other tests left behind
    fleet = make_fleet()
    layout = fleet.layout(0, [spec("a")])
    append_frames([fleet.frame(0, -200 * 86400.0, layout, 1.0)], NOW)
    reading, done = Barrier(2), Barrier(2)

    def read_slowly() -> None:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT count(*) FROM store_frame")
            reading.wait(timeout=30)
            done.wait(timeout=30)
            cursor.execute("ROLLBACK")
        connection.close()

    reader = Thread(target=read_slowly)
    reader.start()
    reading.wait(timeout=30)
    assert keep_partitions(NOW)[1] == 0
    done.wait(timeout=30)
    reader.join()
    assert keep_partitions(NOW)[1] == 1
