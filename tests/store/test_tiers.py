"""Whichever tier holds the data, the answer is the same, up to the length of its steps."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.db import connection, transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from store.small_fleet import NOW, T0, Fleet, make_fleet, spec

from gpufleet.store import queries
from gpufleet.store.append import append_frames
from gpufleet.store.frames import Frame
from gpufleet.store.instants import read_values
from gpufleet.store.layouts import forget_layouts
from gpufleet.store.lines import Scope
from gpufleet.store.names import forget_names
from gpufleet.store.partitions import CHUNKS, FIVE_MINUTES, SPAN, Ladder, keep_partitions, present
from gpufleet.store.rollups import add_rollups
from gpufleet.store.seal import GRACE, seal
from gpufleet.store.series import ensure_series

NAN = math.nan
END = T0 + 3 * 7200
LATER = NOW + 3 * SPAN + GRACE
value = st.one_of(st.just(NAN), st.integers(0, 150).map(float), st.floats(0, 150, width=32))
scrape_ = st.tuples(
    st.integers(0, 3 * 480 - 1), st.sampled_from(["both", "one", "failed"]), value, st.integers(0, 3).map(float)
)


def frames_of(fleet: Fleet, scrapes: list[tuple[int, str, float, float]]) -> list[Frame]:
    """One target: `t` of two GPUs and a counter of one; the second layout lacks a GPU."""
    one, two = (gpu.id for gpu in fleet.gpus)
    counter = spec("c", one, kind="counter")
    both = fleet.layout(0, [spec("t", one, scale=0.5, high=140.0), spec("t", two), counter])
    single = fleet.layout(0, [counter, spec("t", two)])
    total, found = 0.0, []
    for number, how, reading, grown in scrapes:
        total = grown if grown == 3.0 else total + grown  # a reset now and then
        at = number * 15 + 0.25
        if how == "failed":
            found.append(fleet.frame(0, at, None))
        elif how == "both":
            found.append(fleet.frame(0, at, both, reading, reading + 1, total))
        else:
            found.append(fleet.frame(0, at, single, total, reading))
    return found


def answers(fleet: Fleet) -> dict[str, Any]:
    gpus = [gpu.id for gpu in fleet.gpus]
    found: dict[str, Any] = {}
    for step in (60.0, 300.0, 900.0, 3600.0):
        for row in queries.read_range("t", gpus, start=T0, end=END, step=step).rows:
            found[f"t {row.gpu_id} {step}"] = np.stack([row.mean, row.min, row.max])
        for grew in queries.read_increase("c", gpus, start=T0, end=END, step=step).rows:
            found[f"c {step}"] = grew.increase
        band = queries.read_band("t", fleet.cluster.id, T0, END, step)
        found[f"band {step}"] = np.stack([band.p5, band.p50, band.p95, band.present])
    for at in (T0 + 100, T0 + 7210, END - 1):
        values = read_values(["t"], Scope.cluster(fleet.cluster.id), at)["t"]
        found[f"at {at}"] = np.array([(one.gpu_id, one.at, one.value) for one in values])
    return found


def same(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert left.keys() == right.keys()
    for key in left:
        np.testing.assert_allclose(left[key], right[key], rtol=1e-9, atol=1e-9, err_msg=key)


@settings(
    max_examples=8,
    deadline=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    scrapes=st.lists(scrape_, max_size=60, unique_by=lambda one: one[0]).map(sorted),
    late=st.sets(st.integers(0, 59)),
    sealed=st.integers(0, 3),
)
def test_frames_and_chunks_and_both_say_the_same(
    no_partitions: None, scrapes: list[tuple[int, str, float, float]], late: set[int], sealed: int
) -> None:
    for cache in (forget_layouts, forget_names):
        cache()
    with transaction.atomic():
        fleet = make_fleet("hypothesis")
        frames = frames_of(fleet, scrapes)
        append_frames(frames, LATER)
        before = answers(fleet)
        seal(NOW + sealed * SPAN + GRACE)
        same(before, answers(fleet))
        seal(LATER)
        same(before, answers(fleet))
        transaction.set_rollback(True)
    for cache in (forget_layouts, forget_names):
        cache()
    with transaction.atomic():
        fleet = make_fleet("hypothesis")
        frames = frames_of(fleet, scrapes)
        append_frames([frame for number, frame in enumerate(frames) if number not in late], LATER)
        seal(NOW + sealed * SPAN + GRACE)
        append_frames([frame for number, frame in enumerate(frames) if number in late], LATER)
        mixed = answers(fleet)
        assert [key for key in mixed if key.startswith(("t ", "band", "c "))]
        seal(LATER)
        same(mixed, answers(fleet))
        transaction.set_rollback(True)


def filled(fleet: Fleet) -> None:
    chance = np.random.default_rng(1)
    scrapes = [(n, "both", float(round(chance.normal(60, 9), 2)), float(n % 3)) for n in range(3 * 480) if n % 97 > 30]
    append_frames(frames_of(fleet, scrapes), LATER)
    seal(LATER)


def gone(ladder: Ladder) -> None:
    with connection.cursor() as cursor:
        for name in present(ladder):
            cursor.execute(f"DROP TABLE {name}")


def test_past_the_retention_of_samples_roll_ups_answer(fleet: Fleet) -> None:
    filled(fleet)
    before = answers(fleet)
    ids = [target.id for target in fleet.targets]
    moment = queries.read_at(ids, T0 + 3600 + 300, 600)
    assert keep_partitions(NOW + timedelta(days=92))[1] >= 1
    assert not [start for start, _ in present(CHUNKS).values() if start <= NOW]
    after = answers(fleet)
    for key in before:
        if " 60.0" not in key and not key.startswith("at "):
            np.testing.assert_allclose(after[key], before[key], rtol=1e-9, err_msg=key)
    gpu = fleet.gpus[1].id
    fine, coarse = after[f"t {gpu} 60.0"][0], before[f"t {gpu} 300.0"][0]
    np.testing.assert_allclose(
        fine, np.repeat(coarse, 5), rtol=1e-9, err_msg="a step of a minute shows its five minutes"
    )
    [rolled] = queries.read_at(ids, T0 + 3600 + 300, 600)
    assert rolled.scraped_at == T0 + 3600
    assert rolled.values.shape == (3,)
    assert [item.layout.target_id for item in moment] == [rolled.layout.target_id]
    gone(FIVE_MINUTES)
    hourly = answers(fleet)
    np.testing.assert_allclose(hourly[f"t {gpu} 3600.0"], before[f"t {gpu} 3600.0"], rtol=1e-9)
    np.testing.assert_allclose(hourly["c 3600.0"], before["c 3600.0"], rtol=1e-9)
    assert np.isfinite(hourly[f"t {gpu} 300.0"][0]).all()


def test_a_window_that_cuts_steps_is_right_to_a_step(fleet: Fleet) -> None:
    filled(fleet)
    gpu = fleet.gpus[1].id
    exact = queries.read_range("t", [gpu], start=T0, end=END, step=15).rows[0]
    start, step = T0 + 137, 600.0
    for number, row in enumerate(
        zip(*queries.read_range("t", [gpu], start=start, end=END - 463, step=step).rows[0][2:], strict=True)
    ):
        low = int((start - T0 + number * step - 300) // 15)
        near = exact.mean[max(0, low) : low + 1200 // 15 + 2]
        if not np.isnan(row[0]):
            assert np.nanmin(near) <= row[1] <= row[0] <= row[2] <= np.nanmax(near)


def test_history_that_came_as_roll_ups_alone_is_shown_up_to_now(fleet: Fleet) -> None:
    """The demo's past: roll-ups up to a moment inside a span, samples from then on."""
    [series] = ensure_series(fleet.targets[0].id, [spec("t", fleet.gpus[0].id)], NOW)
    starts = T0 - 7200 + 300 * np.arange(24 + 6)
    cells = np.full((30, 1), 50.0)
    add_rollups("5m", fleet.targets[0].id, [series], starts, count=np.full((30, 1), 20), mean=cells, min=cells - 1,
                max=cells + 1, last=cells, now=NOW)  # fmt: skip
    layout = fleet.layout(0, [spec("t", fleet.gpus[0].id)])
    append_frames([fleet.frame(0, at, layout, 70.0) for at in range(1800, 3600, 15)], NOW)
    for _ in range(2):
        row = queries.read_range("t", [fleet.gpus[0].id], start=T0 - 7200, end=T0 + 3600, step=300).rows[0]
        assert row.mean.tolist() == [50.0] * 30 + [70.0] * 6
        seal(LATER)


def test_a_step_that_nobody_had_a_value_in_is_a_gap_in_every_tier(fleet: Fleet) -> None:
    layout = fleet.layout(0, [spec("t", fleet.gpus[0].id, high=100.0)])
    append_frames([fleet.frame(0, at, layout, v) for at, v in ((0, 1.0), (300, 999.0), (615, NAN), (900, 0.0))], NOW)
    seal(LATER)
    row = queries.read_range("t", [fleet.gpus[0].id], start=T0, end=T0 + 1200, step=300).rows[0]
    np.testing.assert_array_equal(row.mean, [1.0, NAN, NAN, 0.0])


@pytest.mark.parametrize("step", [300.0, 3600.0])
def test_a_replay_has_no_roll_ups(no_partitions: None, step: float) -> None:
    replay = make_fleet("replay", is_replay=True)
    layout = replay.layout(0, [spec("t", replay.gpus[0].id)])
    append_frames([replay.frame(0, at, layout, at) for at in (0, 7200)], NOW)
    seal(LATER)
    row = queries.read_range("t", [replay.gpus[0].id], start=T0, end=T0 + 7200 + step, step=step).rows[0]
    assert [row.mean[0], row.mean[-1]] == [0, 7200]
