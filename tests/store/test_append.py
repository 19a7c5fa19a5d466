"""Frames are kept once, first wins, and no sample is refused for lack of a partition."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from threading import Barrier, Thread

import numpy as np
import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries
from store.small_fleet import INTERVAL, NOW, T0, Fleet, make_fleet, spec

from gpufleet.core.times import from_unix
from gpufleet.store.append import append_frames
from gpufleet.store.frames import Frame, StoreError
from gpufleet.store.models import Head
from gpufleet.store.queries import read_cycle, read_frames, read_latest


def same(left: Frame, right: Frame) -> bool:
    plain = replace(left, values=None) == replace(right, values=None)
    if left.values is None or right.values is None:
        return plain and left.values is right.values
    return plain and left.values.tobytes() == right.values.tobytes()


def everything(fleet: Fleet) -> list[Frame]:
    return read_frames([target.id for target in fleet.targets], T0 - 1e6, T0 + 1e6)


def test_frames_come_back_as_they_went_in(fleet: Fleet) -> None:
    layout = fleet.layout(0, [spec("a"), spec("b"), spec("c")])
    good = replace(fleet.frame(0, 0.123456, layout, math.nan, -0.0, math.inf), rejected=3, missing=7)
    bad = fleet.frame(1, 0.2, None, reason="refused")
    assert append_frames([good, bad], NOW) == 2
    found = everything(fleet)
    assert len(found) == 2
    assert same(found[0], good)
    assert same(found[1], bad)


def test_nothing_is_nothing(fleet: Fleet) -> None:
    assert append_frames([], NOW) == 0


def test_the_first_of_two_at_the_same_time_wins(fleet: Fleet) -> None:
    layout = fleet.layout(0, [spec("a")])
    first, second, new = (fleet.frame(0, at, layout, value) for at, value in ((0, 1.0), (0, 2.0), (15, 3.0)))
    assert append_frames([first], NOW) == 1
    assert append_frames([second, new], NOW) == 1
    assert append_frames([first, second, new], NOW) == 0
    assert [frame.values.tolist() for frame in everything(fleet) if frame.values is not None] == [[1.0], [3.0]]


def test_the_first_wins_inside_one_call_too(fleet: Fleet) -> None:
    layout = fleet.layout(0, [spec("a")])
    assert append_frames([fleet.frame(0, 0, layout, 1.0), fleet.frame(0, 0, layout, 2.0)], NOW) == 1
    [frame] = everything(fleet)
    assert frame.values is not None
    assert frame.values.tolist() == [1.0]


def test_a_good_repeat_of_a_failed_scrape_does_not_move_the_head(fleet: Fleet) -> None:
    layout = fleet.layout(0, [spec("a")])
    append_frames([fleet.frame(0, 0, None)], NOW)
    append_frames([fleet.frame(0, 0, layout, 1.0)], NOW)
    assert not Head.objects.exists()


def test_the_head_moves_forward_only_and_skips_failures(fleet: Fleet) -> None:
    layout, now = fleet.layout(0, [spec("a")]), NOW + timedelta(seconds=60)
    append_frames([fleet.frame(0, 30, layout, 1.0)], now)
    append_frames([fleet.frame(0, 15, layout, 2.0), fleet.frame(0, 45, None)], now)
    assert Head.objects.get().scraped_at == from_unix(T0 + 30)
    assert [latest.values.tolist() for latest in read_latest([fleet.targets[0].id])] == [[1.0]]


def test_a_clock_that_steps_back_loses_nothing(fleet: Fleet) -> None:
    """Case 012: all four scrapes are kept, in order of time, and the newest scrape is the latest value."""
    layout = fleet.layout(0, [spec("power", unit="watts"), spec("energy", kind="counter")])
    for number, seconds in enumerate((0, 15, -60, -45)):
        frame = fleet.frame(0, seconds, layout, 20.0, 300.0 * number)
        assert append_frames([frame], from_unix(T0 + seconds + 1)) == 1
    found = everything(fleet)
    assert [frame.scraped_at - T0 for frame in found] == [-60, -45, 0, 15]
    assert sum(frame.accepted for frame in found) == 8
    assert read_latest([fleet.targets[0].id])[0].scraped_at == T0 - 45


@pytest.mark.parametrize("days", [-9000, -90, -1, 0, 1, 400])
def test_no_time_is_refused_for_lack_of_a_partition(fleet: Fleet, days: int) -> None:
    layout = fleet.layout(0, [spec("a")])
    seconds = days * 86400.0
    for edge in (seconds - 1e-6, seconds, seconds + 6 * 3600 - 1e-6):
        assert append_frames([fleet.frame(0, edge, layout, edge)], NOW) == 1
    found = read_frames([fleet.targets[0].id], T0 + seconds - 1, T0 + seconds + 6 * 3600)
    assert len(found) == 3


@pytest.mark.parametrize(
    "wrong",
    [
        {"scraped_at": math.nan},
        {"scraped_at": -1.0},
        {"scraped_at": 1e12},
        {"bytes": 2**31},
        {"accepted": -1},
        {"duration_seconds": math.inf},
        {"layout_id": None},
        {"values": None},
        {"target_id": 999_999_999},
    ],
    ids=str,
)
def test_what_cannot_be_kept_is_refused_whole(fleet: Fleet, wrong: dict[str, object]) -> None:
    layout = fleet.layout(0, [spec("a")])
    good = fleet.frame(0, 0, layout, 1.0)
    with pytest.raises(StoreError):
        append_frames([good, replace(good, **{"scraped_at": T0 + 1, **wrong})], NOW)  # type: ignore[arg-type]
    assert everything(fleet) == []
    assert not Head.objects.exists()


def test_a_shard_costs_five_statements(fleet: Fleet, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    """The locks of the spans, a savepoint, the COPY, its release, the heads; around them the test's own transaction."""
    layouts = [fleet.layout(n, [spec("a")]) for n in range(2)]
    append_frames([fleet.frame(n, 0, layouts[n], 1.0) for n in range(2)], NOW)
    with django_assert_num_queries(7):
        append_frames([fleet.frame(n, 15, layouts[n], 1.0) for n in range(2)], NOW)


def test_a_replay_never_mixes_with_live_data(fleet: Fleet) -> None:
    replayed = make_fleet("replay", is_replay=True)
    live_layout, replay_layout = fleet.layout(0, [spec("a")]), replayed.layout(0, [spec("a")])
    replay_id, live_id = replayed.targets[0].id, fleet.targets[0].id
    assert read_frames([replay_id], T0, T0 + 60) == []
    frames = [fleet.frame(0, 0, live_layout, 1.0), replayed.frame(0, 0, replay_layout, 2.0)]
    assert append_frames(frames, NOW) == 2
    assert append_frames(frames, NOW) == 0
    both = read_frames([replay_id, live_id], T0, T0 + 60)
    assert {frame.target_id: frame.values.tolist() for frame in both if frame.values is not None} == {
        live_id: [1.0],
        replay_id: [2.0],
    }
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM store_frame")
        assert cursor.fetchone() == (1,)


@pytest.mark.django_db(transaction=True)
def test_two_workers_with_the_same_frames_keep_each_once() -> None:
    fleet = make_fleet()
    layout = fleet.layout(0, [spec("a")])
    start, stored, errors = Barrier(2), [], []

    def work(value: float) -> None:
        try:
            for turn in range(10):
                start.wait(timeout=30)
                frames = [fleet.frame(0, 86400.0 * turn + n * INTERVAL, layout, value) for n in range(5)]
                stored.append(append_frames(frames, NOW))
        except Exception as error:  # noqa: BLE001
            errors.append(error)
        finally:
            connection.close()

    threads = [Thread(target=work, args=(value,)) for value in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sum(stored) == 50
    found = read_frames([fleet.targets[0].id], T0 - 1, T0 + 1e6)
    assert len(found) == 50
    assert Head.objects.get().scraped_at == from_unix(T0 + 9 * 86400 + 4 * INTERVAL)


def test_a_cycle_is_read_in_one_query(fleet: Fleet, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    layouts = [fleet.layout(n, [spec("a")]) for n in range(2)]
    for seconds in (0, 15, 30):
        append_frames([fleet.frame(n, seconds + 0.1 * n, layouts[n], seconds + n) for n in range(2)], NOW)
    with django_assert_num_queries(1):
        found = read_cycle([target.id for target in fleet.targets], int(T0 // INTERVAL) + 1)
    assert [frame.values for frame in found if frame.values is not None] == [np.array([15.0]), np.array([16.0])]
