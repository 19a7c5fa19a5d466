"""The sealing process is killed at every statement and at random moments: no sample is lost, none is there twice."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import pytest
from django.db import connection, transaction
from store.small_fleet import NOW, T0, Fleet, make_fleet, spec

from gpufleet.store import queries
from gpufleet.store.append import append_frames
from gpufleet.store.late import add_samples
from gpufleet.store.models import Series
from gpufleet.store.partitions import FRAMES, LADDERS, SPAN, present
from gpufleet.store.seal import GRACE, seal
from gpufleet.store.series import ensure_series

pytestmark = pytest.mark.django_db(transaction=True)
LATER = NOW + 3 * SPAN + GRACE
KILLS = 25


@pytest.fixture
def fleet(no_partitions: None) -> Iterator[Fleet]:
    yield make_fleet()
    with connection.cursor() as cursor:
        for ladder in LADDERS:
            for name in present(ladder):
                cursor.execute(f"DROP TABLE {name}")
        cursor.execute("TRUNCATE store_name")


def filled(fleet: Fleet) -> None:
    for target in range(2):
        specs = [spec("a", fleet.gpus[0].id), spec("b", kind="counter")]
        layouts = [fleet.layout(target, part) for part in (specs, specs[1:])]
        frames = []
        for n in range(60):
            at = n * 300.0 + target
            values = (float(n), float(n * target)) if n % 5 else (float(n),)
            frames.append(fleet.frame(target, at, None if n % 7 == 3 else layouts[n % 5 == 0], *values))
        append_frames(frames, NOW)


def everything(fleet: Fleet) -> list[tuple[Any, ...]]:
    """Every scrape with its samples, read as frames; and every sample, read as ranges."""
    ids = [target.id for target in fleet.targets]
    found: list[tuple[Any, ...]] = [
        (frame.target_id, frame.scraped_at, frame.reason, frame.layout_id, str(frame.values))
        for frame in queries.read_frames(ids, T0 - 1e6, T0 + 1e6)
    ]
    for metric in ("a", "b"):
        nodes = [node.id for node in fleet.nodes]
        for row in queries.read_range(metric, node_ids=nodes, start=T0, end=T0 + 3 * 7200, step=60).rows:
            found.append((metric, row.gpu_id, str(row.mean.tolist())))
    series_ids = list(Series.objects.filter(target__in=ids).order_by("id").values_list("id", flat=True))
    for series_id, of in sorted(queries.read_samples(series_ids, T0 - 1e6, T0 + 1e6).items()):
        found.append((series_id, of.times.tolist(), of.values.tolist()))
    return found


def child(work: Callable[[], object]) -> int:
    """Runs `work` in a process of its own, with a connection of its own; returns its id."""
    connection.close()
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def killed_at_statement(number: int) -> None:
    """Seals, and dies by SIGKILL right before the statement of that number."""
    left = [number]

    def count(execute: Any, *args: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return execute(*args)

    with connection.execute_wrapper(count):
        seal(LATER)


def test_killed_before_every_statement(fleet: Fleet) -> None:
    filled(fleet)
    before = everything(fleet)
    for number in range(1000):
        _, status = os.waitpid(child(lambda number=number: killed_at_statement(number)), 0)  # type: ignore[misc]
        assert everything(fleet) == before, number
        if not os.WIFSIGNALED(status):
            break
    assert number > 20, "it has to die many times before it gets through"
    assert not present(FRAMES)
    assert seal(LATER).spans == 0


def test_killed_at_random_moments_while_late_samples_come(fleet: Fleet) -> None:
    chance = random.Random(11)
    filled(fleet)
    [series] = ensure_series(fleet.targets[0].id, [spec("c")], NOW)
    for turn in range(KILLS):
        at = 150.0 + 300.0 * chance.randrange(60)
        layout = fleet.layout(1, [spec("b", kind="counter")])
        append_frames([fleet.frame(1, at, layout, 5.0)], NOW)
        add_samples(fleet.targets[0].id, [series], [T0 + at + turn / 100], [[float(turn)]], LATER)
        before = everything(fleet)
        pids = [child(lambda: seal(LATER)) for _ in range(1 + turn % 2)]
        time.sleep(chance.uniform(0.0, 0.15))
        assert everything(fleet) == before
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        assert everything(fleet) == before
    seal(LATER)
    assert everything(fleet) == before
    assert not present(FRAMES)
    assert len(queries.read_samples([series], T0, T0 + 1e6)[series].times) == KILLS


def test_frames_written_while_their_span_is_sealed_are_kept(fleet: Fleet) -> None:
    """A writer that was stuck writes into a span again and again while another process seals and drops it."""
    layout = fleet.layout(0, [spec("a")])
    append_frames([fleet.frame(0, 0, layout, 0.0)], NOW)

    def seal_for_a_while() -> None:
        until = time.monotonic() + 3
        while time.monotonic() < until:
            seal(LATER)

    pid = child(seal_for_a_while)
    try:
        for n in range(1, 200):
            assert append_frames([fleet.frame(0, n, layout, float(n))], NOW + timedelta(seconds=n)) == 1
    finally:
        os.waitpid(pid, 0)
    seal(LATER)
    found = queries.read_frames([fleet.targets[0].id], T0, T0 + 1000)
    assert [frame.values.tolist() for frame in found if frame.values is not None] == [[float(n)] for n in range(200)]


def test_a_frame_that_is_not_committed_yet_holds_its_partition(fleet: Fleet) -> None:
    layout = fleet.layout(0, [spec("a")])
    append_frames([fleet.frame(0, 0, layout, 0.0)], NOW)
    written, go_on = Event(), Event()

    def write_slowly() -> None:
        with transaction.atomic():
            append_frames([fleet.frame(0, 15, layout, 1.0)], NOW)
            written.set()
            go_on.wait(timeout=30)
        connection.close()

    def seal_and_close() -> None:
        seal(LATER)
        connection.close()

    threads = [Thread(target=write_slowly), Thread(target=seal_and_close)]
    threads[0].start()
    written.wait(timeout=30)
    threads[1].start()
    time.sleep(0.5)
    go_on.set()
    for thread in threads:
        thread.join()
    assert len(queries.read_frames([fleet.targets[0].id], T0, T0 + 60)) == 2
    seal(LATER)
    assert len(queries.read_frames([fleet.targets[0].id], T0, T0 + 60)) == 2
    assert not present(FRAMES)
