"""Sealed or not, every read gives the same answer; nothing is lost, nothing is there twice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.db import connection
from store.small_fleet import NOW, T0, Fleet, spec

from gpufleet.core.times import from_unix
from gpufleet.store import queries
from gpufleet.store.append import append_frames
from gpufleet.store.frames import Frame
from gpufleet.store.partitions import FRAMES, SPAN, present
from gpufleet.store.seal import GRACE, Sealed, seal

NAN = math.nan
LATER = NOW + 3 * SPAN + GRACE
HOUR = 3600


def filled(fleet: Fleet) -> None:
    """Two hours and more of two targets: layouts that change, failures, gaps, a NaN with a payload, a counter reset."""
    gpus = [gpu.id for gpu in fleet.gpus]
    chance = np.random.default_rng(3)
    payload = np.array([0x7FF8000000000123], dtype=np.uint64).view(np.float64)[0]
    for target in range(2):
        hot, cold = spec("t", gpus[target], scale=0.5, high=150.0), spec("t", labels={"x": "2"})
        counter = spec("c", gpus[target], kind="counter")
        first, second = [hot, cold, counter], [counter, cold, spec("new", labels={"x": "1"})]
        layouts = [fleet.layout(target, specs) for specs in (first, second)]
        frames, total = [], 0.0
        for n in range(500):
            at = 15.0 * n + 0.001 * float(chance.integers(0, 900)) + target * 0.1
            total = 3.0 if n == 250 else total + float(chance.integers(0, 5))
            if n % 37 == 5:
                frames.append(fleet.frame(target, at, None, reason=("timeout", "refused")[n % 2]))
            elif 100 <= n < 150 or n % 61 == 7:
                value = payload if n == 120 else round(float(chance.normal(60, 5)), 3)
                frames.append(fleet.frame(target, at, layouts[1], total, value, float(n)))
            elif not 300 <= n < 340:
                value = 160.0 if n == 20 else round(float(chance.normal(60, 5)), 3)
                frames.append(fleet.frame(target, at, layouts[0], value, float(n), total))
        append_frames(frames, NOW)


def bits(frames: Sequence[Frame]) -> list[tuple[Any, ...]]:
    return [
        (
            *(frame.target_id, round(frame.scraped_at * 1e6), frame.cycle, frame.reason, frame.duration_seconds),
            *(frame.bytes, frame.accepted, frame.rejected, frame.missing, frame.layout_id),
            None if frame.values is None else frame.values.view(np.uint64).tolist(),
        )
        for frame in frames
    ]


def answers(fleet: Fleet) -> dict[str, Any]:
    """What every read of the store says, in a form that can be compared exactly."""
    ids, gpus = [target.id for target in fleet.targets], [gpu.id for gpu in fleet.gpus]
    found: dict[str, Any] = {
        "frames": bits(queries.read_frames(ids, T0, T0 + 3 * HOUR)),
        "inside": bits(queries.read_frames(ids[:1], T0 + 1000.5, T0 + 2000)),
        "every": bits(queries.read_frames(ids, T0, T0 + 3 * HOUR, every=4)),
        "latest": bits([one.frame for one in queries.read_latest(ids)]),
        "cycle": bits(queries.read_cycle(ids, int(T0 // 15) + 200)),
        "last": repr(queries.read_last_before("t", gpus, T0 + 7000)),
    }
    for at in (T0 + 10, T0 + 1777.7, T0 + 7199, T0 + 7300):
        found[f"at {at}"] = bits([one.frame for one in queries.read_at(ids, at, 600)])
    for target_id, health in queries.read_health(ids, T0 + 50, T0 + 2 * HOUR + 50).items():
        arrays = (health.times, health.ok, health.duration_seconds, health.bytes, health.accepted, health.missing)
        found[f"health {target_id}"] = ([array.tolist() for array in arrays], health.reasons)
    for step in (15.0, 60.0, 300.0, 3600.0):
        for metric in ("t", "c", "new"):
            ranged = queries.read_range(
                metric, node_ids=[node.id for node in fleet.nodes], start=T0, end=T0 + 10800, step=step
            )
            for number, row in enumerate(ranged.rows):
                found[f"{metric} {step} {number}"] = [
                    np.array([row.gpu_id or -1, row.node_id]),
                    row.mean,
                    row.min,
                    row.max,
                ]
        band = queries.read_band("t", fleet.cluster.id, T0, T0 + 3 * HOUR, step)
        found[f"band {step}"] = [band.p5, band.p50, band.p95, band.present]
        for number, grew in enumerate(queries.read_increase("c", gpus, start=T0, end=T0 + 10800, step=step).rows):
            found[f"growth {step} {number}"] = [grew.increase]
    return found


def same(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for key, expected in left.items():
        if isinstance(expected, list) and any(isinstance(item, np.ndarray) for item in expected):
            for one, other in zip(expected, right[key], strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-12, err_msg=key)
        else:
            assert right[key] == expected, key


def test_every_read_is_the_same_before_and_after(fleet: Fleet) -> None:
    filled(fleet)
    before = answers(fleet)
    assert seal(NOW + SPAN + GRACE) == Sealed(spans=2, dropped=1)
    same(before, answers(fleet))
    assert seal(LATER) == Sealed(spans=2, dropped=1)
    same(before, answers(fleet))
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM store_frame")
        assert cursor.fetchone() == (0,)


def test_between_sealing_and_dropping_nothing_is_there_twice(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(fleet)
    before = answers(fleet)
    monkeypatch.setattr("gpufleet.store.seal._drop_covered", lambda *_: False)
    assert seal(LATER) == Sealed(spans=4, dropped=0)
    same(before, answers(fleet))
    assert seal(LATER) == Sealed(spans=0, dropped=0)


def test_a_span_is_sealed_only_when_it_is_over_for_a_while(fleet: Fleet) -> None:
    append_frames([fleet.frame(0, 0, fleet.layout(0, [spec("a")]), 1.0)], NOW)
    assert seal(NOW + SPAN + GRACE - timedelta(microseconds=1)) == Sealed(0, 0)
    assert seal(NOW + SPAN + GRACE) == Sealed(1, 1)
    assert seal(NOW + SPAN + GRACE) == Sealed(0, 0)


def test_a_late_frame_is_merged_and_the_first_of_two_wins(fleet: Fleet) -> None:
    gpu = fleet.gpus[0].id
    layout = fleet.layout(0, [spec("a", gpu)])
    append_frames([fleet.frame(0, at, layout, at) for at in (0, 15, 45)], NOW)
    seal(LATER)
    wider = fleet.layout(0, [spec("b"), spec("a", gpu)])
    append_frames([fleet.frame(0, 15, layout, 99.0), fleet.frame(0, 30, wider, 7.0, 30.0)], NOW)
    for _ in range(2):
        found = queries.read_frames([fleet.targets[0].id], T0, T0 + 60)
        assert [frame.values.tolist() for frame in found if frame.values is not None] == [[0], [15], [7, 30], [45]]
        ranged = queries.read_range("a", [gpu], start=T0, end=T0 + 60, step=15)
        assert ranged.rows[0].mean.tolist() == [0, 15, 30, 45]
        seal(LATER)
    assert not present(FRAMES)


def test_a_target_of_failures_alone_stays_visible(fleet: Fleet) -> None:
    append_frames([fleet.frame(0, at, None, reason="refused") for at in (0, 15)], NOW)
    append_frames([fleet.frame(0, 30, None, reason="")], NOW)
    assert seal(LATER).spans == 1
    health = queries.read_health([fleet.targets[0].id], T0, T0 + 60)[fleet.targets[0].id]
    assert health.reasons == ["refused", "refused", "timeout"]
    assert [frame.values for frame in queries.read_frames([fleet.targets[0].id], T0, T0 + 60)] == [None] * 3


def test_frames_of_a_target_that_is_gone_do_not_hold_a_partition(fleet: Fleet) -> None:
    append_frames([fleet.frame(n, 0, fleet.layout(n, [spec("a")]), 1.0) for n in range(2)], NOW)
    fleet.targets[0].delete()
    assert seal(LATER) == Sealed(1, 1)


def test_a_run_stops_when_its_budget_is_used_up(fleet: Fleet) -> None:
    append_frames([fleet.frame(n, 0, fleet.layout(n, [spec("a")]), 1.0) for n in range(2)], NOW)
    assert [seal(LATER, budget_seconds=0) for _ in range(3)] == [Sealed(1, 0), Sealed(1, 0), Sealed(0, 1)]


def test_a_clock_ahead_of_its_time_is_sealed_when_that_time_has_come(fleet: Fleet) -> None:
    append_frames([fleet.frame(0, 86400.0, fleet.layout(0, [spec("a")]), 1.0)], NOW)
    assert seal(LATER) == Sealed(0, 0)
    assert seal(from_unix(T0 + 86400) + SPAN + GRACE) == Sealed(1, 1)
