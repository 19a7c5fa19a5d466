"""Partitions are made ahead and dropped past the retention; replays lie apart."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread

import pytest
from django.db import connection
from store.small_fleet import NOW, T0, Fleet, make_fleet, spec

from gpufleet.store.append import append_frames
from gpufleet.store.partitions import (
    CHUNKS,
    FIVE_MINUTES,
    FRAMES,
    HOURS,
    LADDERS,
    LIVE,
    SPAN,
    Ladder,
    drop_replay,
    keep_partitions,
    make_partitions,
    make_room,
    present,
    span_start,
)
from gpufleet.store.queries import read_frames

MICRO = timedelta(microseconds=1)


AHEAD = FRAMES.ahead


def partitions() -> list[str]:
    return sorted(present(FRAMES))


@pytest.mark.parametrize(
    ("instant", "start"),
    [
        (NOW, NOW),
        (NOW - MICRO, NOW - SPAN),
        (NOW + SPAN - MICRO, NOW),
        (datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(1969, 12, 31, 22, tzinfo=UTC)),
    ],
)
def test_spans_are_half_open(instant: datetime, start: datetime) -> None:
    assert span_start(instant) == start


def test_an_instant_in_another_zone_has_the_same_span() -> None:
    assert span_start(datetime.fromisoformat("2026-12-01T14:00:00+02:00")) == NOW


@pytest.mark.usefixtures("no_partitions")
def test_partitions_are_made_ahead_once() -> None:
    assert keep_partitions(NOW) == (sum(ladder.ahead + 1 for ladder in LADDERS), 0)
    assert keep_partitions(NOW) == (0, 0)
    names = partitions()
    assert names[0] == "store_frame_20261201_12"
    assert [start for start, _ in present(FRAMES).values()] == [NOW + SPAN * n for n in range(AHEAD + 1)]


@pytest.mark.usefixtures("no_partitions")
def test_a_partition_of_an_older_release_keeps_its_bounds() -> None:
    """Frames were cut by six hours once: no partition is made inside one that is there."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE store_frame_20261201_12 (LIKE store_frame INCLUDING ALL)")
        cursor.execute(
            "ALTER TABLE store_frame ATTACH PARTITION store_frame_20261201_12 FOR VALUES FROM (%s) TO (%s)",
            [NOW, NOW + timedelta(hours=6)],
        )
    assert make_partitions(FRAMES, [NOW - SPAN, NOW, NOW + SPAN, NOW + 2 * SPAN, NOW + 3 * SPAN]) == 2
    assert list(present(FRAMES).values()) == [
        (NOW - SPAN, NOW),
        (NOW, NOW + timedelta(hours=6)),
        (NOW + 3 * SPAN, NOW + 4 * SPAN),
    ]


@pytest.mark.usefixtures("no_partitions")
@pytest.mark.parametrize(
    ("ladder", "days"), [(CHUNKS, 90), (FIVE_MINUTES, 396), (HOURS, 1827)], ids=lambda value: str(value)
)
def test_past_the_retention_whole_partitions_go_and_nothing_else(ladder: Ladder, days: int) -> None:
    """A partition of which a part is younger than the retention is kept whole."""
    oldest = NOW - timedelta(days=days)
    kept = ladder.start_of(oldest - MICRO)
    make_partitions(ladder, [kept - 2 * ladder.span, kept - ladder.span, kept])
    assert keep_partitions(NOW)[1] == 2
    assert keep_partitions(NOW) == (0, 0)
    gone_at = kept + ladder.span + timedelta(days=days)
    keep_partitions(gone_at - MICRO)
    assert min(start for start, _ in present(ladder).values()) == kept
    keep_partitions(gone_at)
    assert min(start for start, _ in present(ladder).values()) > kept


@pytest.mark.django_db
def test_frames_that_are_not_sealed_are_never_dropped(fleet: Fleet) -> None:
    append_frames([fleet.frame(0, -4000 * 86400.0, fleet.layout(0, [spec("a")]), 1.0)], NOW)
    keep_partitions(NOW)
    assert len(read_frames([fleet.targets[0].id], T0 - 4001 * 86400.0, T0)) == 1


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
        for ladder in LADDERS:
            for name in present(ladder):
                cursor.execute(f"DROP TABLE {name}")


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
    old = NOW - timedelta(days=200)
    make_partitions(CHUNKS, [old])
    reading, done = Barrier(2), Barrier(2)

    def read_slowly() -> None:
        with connection.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT count(*) FROM store_chunk")
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
