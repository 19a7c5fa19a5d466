"""Windows over time: exact buckets, gaps that stay gaps, one history for one GPU."""

from __future__ import annotations

import math

import numpy as np
import pytest
from pytest_django import DjangoAssertNumQueries
from store.small_fleet import INTERVAL, NOW, T0, Fleet, spec

from gpufleet.fleet.models import Target
from gpufleet.store import sources
from gpufleet.store.append import append_frames
from gpufleet.store.frames import StoreError
from gpufleet.store.queries import (
    latest_by_gpu,
    read_at,
    read_band,
    read_frames,
    read_health,
    read_increase,
    read_last_before,
    read_latest,
    read_range,
)
from gpufleet.store.ranges import MAX_STEPS

NAN = math.nan


def scrape(fleet: Fleet, target: int, layout: int | None, rows: dict[float, tuple[float, ...]]) -> None:
    append_frames([fleet.frame(target, at, layout, *values) for at, values in rows.items()], NOW)


def equal(found: object, expected: list[float]) -> None:
    np.testing.assert_array_equal(np.asarray(found), np.array(expected, dtype=np.float64))


def test_mean_min_and_max_of_each_step(fleet: Fleet) -> None:
    gpu = fleet.gpus[0].id
    layout = fleet.layout(0, [spec("x"), spec("t", gpu, scale=0.5, high=100.0)])
    scrape(fleet, 0, layout, {0: (0, 10), 15: (0, 30), 59.999999: (0, 20), 60: (0, 40), 180: (0, 101), 239: (0, 8)})
    scrape(fleet, 0, None, {120: ()})
    found = read_range("t", [gpu], start=T0, end=T0 + 240, step=60)
    equal(found.times - T0, [0, 60, 120, 180])
    [row] = found.rows
    assert (row.gpu_id, row.node_id) == (gpu, fleet.nodes[0].id)
    equal(row.mean, [10, 20, NAN, 4])
    equal(row.min, [5, 20, NAN, 4])
    equal(row.max, [15, 20, NAN, 4])
    assert (found.unit, found.kind) == ("celsius", "gauge")


def test_a_window_is_half_open_and_its_last_step_may_be_short(fleet: Fleet) -> None:
    gpu = fleet.gpus[0].id
    scrape(fleet, 0, fleet.layout(0, [spec("t", gpu)]), {-1: (1,), 0: (2,), 70: (3,), 90: (4,)})
    found = read_range("t", [gpu], start=T0, end=T0 + 90, step=60)
    equal(found.rows[0].mean, [2, 3])


def test_a_layout_that_changes_inside_the_window(fleet: Fleet) -> None:
    gpu, other = (item.id for item in fleet.gpus)
    first = fleet.layout(0, [spec("t", gpu), spec("t", other)])
    second = fleet.layout(0, [spec("new"), spec("t", other)])
    third = fleet.layout(0, [spec("t", other), spec("new"), spec("t", gpu)])
    scrape(fleet, 0, first, {0: (1, 2)})
    scrape(fleet, 0, second, {15: (9, 3)})
    scrape(fleet, 0, third, {30: (4, 9, 5)})
    found = read_range("t", [gpu, other], start=T0, end=T0 + 45, step=15)
    by_gpu = {row.gpu_id: row.mean for row in found.rows}
    equal(by_gpu[gpu], [1, NAN, 5])
    equal(by_gpu[other], [2, 3, 4])


def test_history_follows_a_gpu_to_another_node(fleet: Fleet) -> None:
    gpu = fleet.gpus[0].id
    scrape(fleet, 0, fleet.layout(0, [spec("t", gpu)]), {0: (1,), 15: (2,)})
    scrape(fleet, 1, fleet.layout(1, [spec("t", gpu)]), {30: (3,)})
    [row] = read_range("t", [gpu], start=T0, end=T0 + 60, step=15).rows
    equal(row.mean, [1, 2, 3, NAN])
    assert row.node_id == fleet.nodes[1].id


def test_two_targets_for_one_gpu_are_one_row(fleet: Fleet) -> None:
    gpu, node = fleet.gpus[0].id, fleet.nodes[0]
    second = Target.objects.create(cluster=fleet.cluster, node=node, url="http://b:9400/metrics", created_at=NOW)
    fleet.targets.append(second)
    scrape(fleet, 0, fleet.layout(0, [spec("old_t", gpu, metric="t")]), {0: (1,), 15: (2,)})
    scrape(fleet, 2, fleet.layout(2, [spec("new_t", gpu, metric="t")]), {1: (5,)})
    [row] = read_range("t", [gpu], start=T0, end=T0 + 30, step=15).rows
    equal(row.mean, [3, 2])
    equal(row.min, [1, 2])
    equal(row.max, [5, 2])


def test_a_node_gives_a_row_for_each_set_of_labels(fleet: Fleet) -> None:
    specs = [spec("cpu", labels={"cpu": "0"}), spec("cpu", labels={"cpu": "1"}), spec("cpu", fleet.gpus[0].id)]
    scrape(fleet, 0, fleet.layout(0, specs), {0: (1, 2, 3)})
    scrape(fleet, 1, fleet.layout(1, specs[:1]), {0: (7,)})
    found = read_range("cpu", node_ids=[fleet.nodes[0].id], start=T0, end=T0 + 15, step=15)
    rows = zip(found.rows, found.labels, strict=True)
    assert [(row.gpu_id, dict(labels), row.mean.tolist()) for row, labels in rows] == [
        (None, {"cpu": "0"}, [1.0]),
        (None, {"cpu": "1"}, [2.0]),
        (fleet.gpus[0].id, {}, [3.0]),
    ]


def test_an_unknown_metric_has_no_rows(fleet: Fleet) -> None:
    found = read_range("absent", [fleet.gpus[0].id], start=T0, end=T0 + 30, step=15)
    assert (found.rows, found.times.size) == ([], 2)


@pytest.mark.parametrize(
    ("start", "end", "step"),
    [(T0, T0, 15), (T0 + 1, T0, 15), (T0, T0 + 60, 0), (T0, T0 + 60, -1), (NAN, T0, 1), (T0, T0 + MAX_STEPS + 1, 1)],
)
def test_windows_without_sense_are_refused(fleet: Fleet, start: float, end: float, step: float) -> None:
    with pytest.raises(StoreError):
        read_range("t", [fleet.gpus[0].id], start=start, end=end, step=step)
    with pytest.raises(StoreError):
        read_band("t", fleet.cluster.id, start, end, step)


def test_gpus_or_nodes_but_not_both(fleet: Fleet) -> None:
    for gpu_ids, node_ids in ((None, None), ([1], [1])):
        with pytest.raises(StoreError):
            read_range("t", gpu_ids, node_ids, start=T0, end=T0 + 60, step=15)


@pytest.mark.parametrize("piece", [20.0, 45.0, 1e9])
def test_a_long_window_in_pieces_reads_the_same(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, piece: float) -> None:
    gpus = [item.id for item in fleet.gpus]
    for n in range(2):
        layout = fleet.layout(n, [spec("t", gpus[n])])
        scrape(fleet, n, layout, {at: (float(at + n),) for at in range(0, 300, INTERVAL)})
    monkeypatch.setattr(sources, "PIECE_SECONDS", piece)
    found = read_range("t", gpus, start=T0, end=T0 + 300, step=30)
    for n, row in enumerate(found.rows):
        equal(row.mean, [at + 7.5 + n for at in range(0, 300, 30)])
    equal(read_band("t", fleet.cluster.id, T0, T0 + 300, 30).p50, [at + 15.5 for at in range(0, 300, 30)])


def test_the_newest_value_of_a_step_speaks_in_the_band(fleet: Fleet) -> None:
    gpus = [item.id for item in fleet.gpus]
    layout = fleet.layout(0, [spec("t", gpus[0]), spec("t", gpus[1])])
    scrape(fleet, 0, layout, {0: (99, 99), 15: (99, 99), 30: (10, 20), 60: (8, 7), 75: (NAN, 9), 180: (5, 15)})
    scrape(fleet, 0, None, {45: ()})
    band = read_band("t", fleet.cluster.id, T0, T0 + 240, 60)
    equal(band.present, [2, 2, 0, 2])
    equal(band.p50, [15, 8.5, NAN, 10])
    np.testing.assert_allclose(band.p5, [10.5, 8.05, NAN, 5.5])
    np.testing.assert_allclose(band.p95, [19.5, 8.95, NAN, 14.5])


def test_the_band_agrees_with_numpy(fleet: Fleet) -> None:
    chance = np.random.default_rng(7)
    values = chance.normal(60, 10, (4, 37))
    values[chance.random(values.shape) < 0.3] = NAN
    layout = fleet.layout(0, [spec("t", labels={"n": str(n)}) for n in range(37)])
    scrape(fleet, 0, layout, {15.0 * n: tuple(row) for n, row in enumerate(values.tolist())})
    band = read_band("t", fleet.cluster.id, T0, T0 + 60, 15)
    for found, share in ((band.p5, 5), (band.p50, 50), (band.p95, 95)):
        np.testing.assert_allclose(found, np.nanpercentile(values, share, axis=1))


def test_a_band_of_nothing_is_nan(fleet: Fleet) -> None:
    equal(read_band("absent", fleet.cluster.id, T0, T0 + 30, 15).p50, [NAN, NAN])


def test_growth_of_a_counter_by_steps(fleet: Fleet) -> None:
    gpu = fleet.gpus[0].id
    layout = fleet.layout(0, [spec("c", gpu, kind="counter")])
    scrape(fleet, 0, layout, {-15: (3,), 0: (5,), 15: (9,), 60: (2,), 180: (4,)})
    found = read_increase("c", [gpu], start=T0, end=T0 + 240, step=60)
    equal(found.rows[0].increase, [6, 2, NAN, 2])
    assert found.rows[0].resets == 1


def test_the_last_value_before_an_instant(fleet: Fleet) -> None:
    one, two = (item.id for item in fleet.gpus)
    scrape(fleet, 0, fleet.layout(0, [spec("t", one), spec("t", two)]), {-80000: (1, 2), -3600: (3, NAN)})
    scrape(fleet, 0, fleet.layout(0, [spec("t", two)]), {0: (9,)})
    assert read_last_before("t", [one, two], T0) == {one: (T0 - 3600, 3.0), two: (T0 - 80000, 2.0)}
    assert read_last_before("t", [one, two], T0 + 1)[two] == (T0, 9.0)
    assert read_last_before("t", [one, two], T0, within_seconds=7200) == {one: (T0 - 3600, 3.0)}
    assert read_last_before("t", [one], T0 - 90000) == {}
    assert read_last_before("t", [], T0) == {}


def test_gpus_without_the_metric_are_not_searched_for(
    fleet: Fleet, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    one, two = (item.id for item in fleet.gpus)
    scrape(fleet, 0, fleet.layout(0, [spec("t", one)]), {0: (1,)})
    read_last_before("t", [one, two], T0 + 1)
    with django_assert_num_queries(3):  # series, frames, chunks
        assert read_last_before("t", [one, two], T0 + 1) == {one: (T0, 1.0)}


def test_every_nth_frame_is_the_same_wherever_the_window_begins(fleet: Fleet) -> None:
    layout = fleet.layout(0, [spec("a")])
    scrape(fleet, 0, layout, dict.fromkeys(range(0, 300, INTERVAL), (1,)))
    ids = [fleet.targets[0].id]
    whole = {frame.scraped_at for frame in read_frames(ids, T0, T0 + 300, every=4)}
    late = {frame.scraped_at for frame in read_frames(ids, T0 + 45, T0 + 300, every=4)}
    assert len(whole) == 5
    assert late == {at for at in whole if at >= T0 + 45}
    with pytest.raises(ValueError, match="every"):
        read_frames(ids, T0, T0 + 1, every=0)


def test_latest_values_take_two_queries(fleet: Fleet, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    gpus = [item.id for item in fleet.gpus]
    for n in range(2):
        scrape(
            fleet, n, fleet.layout(n, [spec("t", gpus[n], scale=2.0), spec(f"only_{n}")]), {0: (n, 0), 15: (n + 5, 0)}
        )
    ids = [target.id for target in fleet.targets]
    read_latest(ids)
    with django_assert_num_queries(2):
        found = read_latest(ids)
    assert [item.target_id for item in found] == ids
    assert latest_by_gpu(found, ["t"]) == {gpus[0]: {"t": (T0 + 15, 10.0)}, gpus[1]: {"t": (T0 + 15, 12.0)}}
    assert [item.target_id for item in read_latest(ids, ["only_1"])] == ids[1:]
    assert read_latest([]) == []


def test_the_fleet_as_it_was(fleet: Fleet) -> None:
    layout = fleet.layout(0, [spec("a")])
    scrape(fleet, 0, layout, {0: (1,), 15: (2,), 45: (4,)})
    scrape(fleet, 0, None, {30: ()})
    ids = [target.id for target in fleet.targets]
    assert [item.values.tolist() for item in read_at(ids, T0 + 44, 60)] == [[2.0]]
    assert [item.values.tolist() for item in read_at(ids, T0 + 45, 60)] == [[4.0]]
    assert read_at(ids, T0 + 200, 60) == []


def test_scrape_health_of_targets(fleet: Fleet, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    scrape(fleet, 0, fleet.layout(0, [spec("a")]), {0: (1,), 30: (1,)})
    scrape(fleet, 0, None, {15: ()})
    ids = [target.id for target in fleet.targets]
    read_health(ids, T0, T0 + 60)
    with django_assert_num_queries(2):
        found = read_health(ids, T0, T0 + 60)
    assert list(found) == ids[:1]
    health = found[ids[0]]
    equal(health.times - T0, [0, 15, 30])
    assert health.ok.tolist() == [True, False, True]
    assert health.reasons == ["", "timeout", ""]
    equal(health.duration_seconds, [0.25, 10, 0.25])
    equal(health.bytes, [1000, 0, 1000])
    equal(health.accepted, [1, 0, 1])


def test_a_range_takes_series_frames_layouts_and_chunks(
    fleet: Fleet, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    gpus = [item.id for item in fleet.gpus]
    for n in range(2):
        scrape(fleet, n, fleet.layout(n, [spec("t", gpus[n])]), dict.fromkeys(range(0, 60, INTERVAL), (1,)))
    with django_assert_num_queries(4):
        read_range("t", gpus, start=T0, end=T0 + 60, step=15)
    with django_assert_num_queries(3):
        read_range("t", gpus, start=T0, end=T0 + 60, step=15)
