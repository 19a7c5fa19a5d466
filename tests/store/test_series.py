"""Series and layouts are made once, by whoever comes first."""

from __future__ import annotations

import math
from threading import Barrier, Thread

import numpy as np
import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries
from store.small_fleet import NOW, Fleet, make_fleet, spec

from gpufleet.store.frames import StoreError
from gpufleet.store.layouts import forget_layouts, layout_table, layout_tables
from gpufleet.store.models import Layout, Series
from gpufleet.store.series import ensure_layout, ensure_series


def test_the_same_series_have_the_same_ids(fleet: Fleet) -> None:
    target = fleet.targets[0].id
    specs = [spec("b"), spec("a", fleet.gpus[0].id), spec("a", labels={"xid": "79"}), spec("b")]
    ids = ensure_series(target, specs, NOW)
    assert ids[0] == ids[3]
    assert len(set(ids)) == 3
    assert ensure_series(target, specs, NOW) == ids
    assert Series.objects.count() == 3
    assert ensure_series(target, [], NOW) == []


def test_gpu_labels_and_target_each_make_another_series(fleet: Fleet) -> None:
    one, two = (target.id for target in fleet.targets)
    specs = [spec("a"), spec("a", fleet.gpus[0].id), spec("a", fleet.gpus[1].id), spec("a", labels={"link": "1"})]
    ids = ensure_series(one, specs, NOW) + ensure_series(two, specs, NOW)
    assert len(set(ids)) == 8


def test_the_order_of_labels_makes_no_other_series(fleet: Fleet) -> None:
    target = fleet.targets[0].id
    one = ensure_series(target, [spec("a", labels={"x": "1", "y": "2"})], NOW)
    assert ensure_series(target, [spec("a", labels={"y": "2", "x": "1"})], NOW) == one


def test_a_meaning_that_changed_is_taken_over(fleet: Fleet) -> None:
    target = fleet.targets[0].id
    ids = ensure_series(target, [spec("a", scale=1.0)], NOW)
    assert ensure_series(target, [spec("a", metric="m", scale=0.001, low=0.0, kind="counter")], NOW) == ids
    kept = Series.objects.get()
    assert (kept.metric, kept.scale, kept.low, kept.kind) == ("m", 0.001, 0.0, "counter")


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_a_name_that_does_not_fit_is_refused(fleet: Fleet, name: str) -> None:
    with pytest.raises(StoreError):
        ensure_series(fleet.targets[0].id, [spec("good"), spec(name)], NOW)
    assert not Series.objects.exists()


def test_layouts_are_kept_once_and_in_order(fleet: Fleet) -> None:
    target = fleet.targets[0].id
    ids = ensure_series(target, [spec("a"), spec("b")], NOW)
    first = ensure_layout(target, ids, NOW)
    assert ensure_layout(target, ids, NOW) == first
    other = ensure_layout(target, ids[::-1], NOW)
    assert other != first
    assert layout_table(other).names == ["b", "a"]


def test_a_layout_of_foreign_or_repeated_or_no_series_is_refused(fleet: Fleet) -> None:
    target, foreign = (item.id for item in fleet.targets)
    ids = ensure_series(target, [spec("a")], NOW)
    for target_id, series_ids in ((foreign, ids), (target, [ids[0], ids[0]]), (target, [])):
        with pytest.raises(StoreError):
            ensure_layout(target_id, series_ids, NOW)
    assert not Layout.objects.exists()


def test_a_layout_table_reads_values_as_the_catalogue_says(fleet: Fleet) -> None:
    gpu = fleet.gpus[0].id
    layout = fleet.layout(
        0,
        [
            spec("energy", gpu, metric="joules", scale=0.001, kind="counter", unit="joules"),
            spec("temp", gpu, low=-20.0, high=150.0, sentinels="dcgm_int32"),
            spec("load", labels={"cpu": "1"}),
        ],
    )
    table = layout_table(layout)
    assert table.gpu_ids.tolist() == [gpu, gpu, -1]
    assert table.metrics == ["joules", "temp", "load"]
    assert table.kinds == ["counter", "gauge", "gauge"]
    assert dict(table.labels[2]) == {"cpu": "1"}
    assert table.places_of("temp").tolist() == [1]
    assert table.places_of("absent").tolist() == []
    raw = np.array([[5000.0, 2147483632.0, 1.5], [6000.0, 999.0, math.nan]])
    np.testing.assert_array_equal(table.clean(raw), [[5.0, math.nan, 1.5], [6.0, math.nan, math.nan]])
    np.testing.assert_array_equal(table.clean_at(np.array([0]), raw[:, :1]), [[5.0], [6.0]])


def test_layouts_are_read_once_and_together(fleet: Fleet, django_assert_num_queries: DjangoAssertNumQueries) -> None:
    ids = [fleet.layout(n, [spec("a")]) for n in range(2)]
    with django_assert_num_queries(1):
        assert sorted(layout_tables(ids)) == ids
    with django_assert_num_queries(0):
        tables = layout_tables(ids)
    assert tables[ids[0]].scale is tables[ids[1]].scale, "equal parts are kept once"
    forget_layouts()
    assert sorted(layout_tables([*ids, 999_999])) == ids


def test_the_cache_is_bounded(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpufleet.store.layouts.MAX_CACHED", 1)
    first, second = (fleet.layout(n, [spec("a")]) for n in range(2))
    layout_table(first)
    layout_table(second)
    with connection.execute_wrapper(_refuse):
        layout_table(second)
        with pytest.raises(AssertionError):
            layout_table(first)


def _refuse(*_: object) -> None:
    raise AssertionError("asked the database")


@pytest.mark.django_db(transaction=True)
def test_two_workers_make_the_same_series_and_layouts_once() -> None:
    fleet = make_fleet()
    target, start = fleet.targets[0].id, Barrier(2)
    specs = [spec(f"metric_{n}") for n in range(200)]
    found: list[tuple[list[int], int]] = []

    def work(backwards: bool) -> None:
        start.wait(timeout=30)
        ids = ensure_series(target, specs[::-1] if backwards else specs, NOW)
        ids = ids[::-1] if backwards else ids
        found.append((ids, ensure_layout(target, ids, NOW)))
        connection.close()

    threads = [Thread(target=work, args=(backwards,)) for backwards in (False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2
    assert found[0] == found[1]
    assert Series.objects.count() == 200
    assert Layout.objects.count() == 1
