"""What is kept of the inventory is never older than its newest row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from promql_store import NOW, keep_scrapes

from gpufleet.fleet.models import Gpu, Node, Placement, Target
from gpufleet.promql import shelf as shelves
from gpufleet.promql.inventory import list_series, metric_names, shelf
from gpufleet.promql.limits import Budget, Limits
from gpufleet.promql.matchers import LabelMatcher
from gpufleet.promql.shelf import Shelf
from gpufleet.promql.vectors import NAME
from gpufleet.store.frames import SeriesSpec
from gpufleet.store.series import ensure_series

MILLIS = int(NOW.timestamp() * 1000)


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    shelf.forget()
    yield
    shelf.forget()


def nodes(name: str, *more: LabelMatcher) -> list[str]:
    found = list_series([LabelMatcher(NAME, "=", name), *more], MILLIS, MILLIS, Budget(Limits()))
    return sorted(one.labels["node"] for one in found)


def test_new_rows_are_seen_at_once(db: None) -> None:
    targets = keep_scrapes()
    assert nodes("steady") == ["gpu-001", "gpu-002", "gpu-003"]
    spec = SeriesSpec("steady", "steady", {"more": "1"}, None, "gauge", "", 1.0, None, None, "")
    ensure_series(targets[0].pk, [spec], NOW)
    assert nodes("steady") == ["gpu-001", "gpu-001", "gpu-002", "gpu-003"]
    gpu = Gpu.objects.create(cluster=targets[0].cluster, uuid="GPU-1", first_seen_at=NOW, last_seen_at=NOW)
    gauge = SeriesSpec("DCGM_FI_DEV_GPU_TEMP", "gpu_temperature_celsius", {}, gpu.pk, "gauge", "", 1.0, None, None, "")
    ensure_series(targets[0].pk, [gauge], NOW)
    slot_3 = LabelMatcher("gpu", "=", "3")
    assert nodes("gpu_temperature_celsius", slot_3) == []
    Placement.objects.create(gpu=gpu, node=targets[0].node, slot=3, starts_at=NOW)
    assert nodes("gpu_temperature_celsius", slot_3) == nodes("DCGM_FI_DEV_GPU_TEMP", slot_3) == ["gpu-001"]
    assert "gpu_temperature_celsius" in metric_names()


def test_a_removed_target_is_listed_only_for_its_time(db: None) -> None:
    target = keep_scrapes()[0]
    assert "gpu-001" in nodes("steady")
    Target.objects.filter(pk=target.pk).update(removed_at=NOW - timedelta(hours=1), created_at=NOW - timedelta(days=1))
    assert nodes("steady") == ["gpu-002", "gpu-003"]


def test_an_edit_in_place_is_seen_after_a_while(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("gpufleet.promql.inventory.shelf", Shelf(lambda: clock[0]))
    node = keep_scrapes()[0].node
    assert "gpu-001" in nodes("steady")
    Node.objects.filter(pk=node.pk).update(name="renamed")
    assert "gpu-001" in nodes("steady")
    clock[0] = shelves.LASTS_SECONDS
    assert "renamed" in nodes("steady")


def test_a_full_shelf_is_emptied(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelves, "MAX_KEPT", 4)
    kept = Shelf()
    with kept.fresh():
        assert kept.get("a", lambda: [1, 2, 3]) == [1, 2, 3]
        assert kept.get("b", lambda: [4, 5]) == [4, 5]
        assert kept.get("b", lambda: []) == [4, 5]
        assert kept.get("a", lambda: []) == []
