"""Two names for one series, renamed metrics, no-value numbers, labels that collide, targets that move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from promql_store import NOW
from store.small_fleet import T0, Fleet, make_fleet, spec

from gpufleet.fleet.models import Placement, Rack, Target
from gpufleet.promql.engine import query_instant, query_range
from gpufleet.promql.inventory import shelf
from gpufleet.promql.scraped import ScrapedStorage
from gpufleet.store.append import append_frames
from gpufleet.store.frames import SeriesSpec
from gpufleet.store.layouts import forget_layouts

BLANK = 2147483632.0  # DCGM's "no value" of 32 bits


@pytest.fixture(autouse=True)
def cold() -> Iterator[None]:
    forget_layouts()
    shelf.forget()
    yield
    forget_layouts()
    shelf.forget()


@pytest.fixture
def fleet(db: None) -> Fleet:
    return make_fleet()


def memory(name: str, gpu_id: int) -> SeriesSpec:
    of = {"metric": "gpu_memory_used_bytes", "scale": 2.0**20, "sentinels": "dcgm_int32", "unit": "bytes"}
    return spec(name, gpu_id, **of)


def points(query: str, until: float = 150) -> dict[str, list[tuple[int, float]]]:
    """{value of the label `key` or name: [(seconds after T0, value)]} every 15 s."""
    rows = query_range(ScrapedStorage(), query, int(T0 * 1000), int((T0 + until) * 1000), 15_000).rows
    return {
        row.labels.get("__name__", ""): [
            (int(at // 1000 - T0), value) for at, value in zip(row.times.tolist(), row.values.tolist(), strict=True)
        ]
        for row in rows
    }


def labels_of(query: str, at: float = T0) -> list[dict[str, Any]]:
    return [dict(row.labels) for row in query_instant(ScrapedStorage(), query, int(at * 1000)).rows]


def test_a_metric_that_the_exporter_renamed_goes_on_under_its_canonical_name(fleet: Fleet) -> None:
    gpu = fleet.gpus[0].pk
    old = fleet.layout(0, [memory("DCGM_FI_DEV_FB_USED", gpu)])
    new = fleet.layout(0, [memory("dcgm_fb_used", gpu)])
    append_frames([fleet.frame(0, 15 * n, old if n < 4 else new, 100.0 + n) for n in range(8)], NOW)
    assert points("gpu_memory_used_bytes", 105) == {
        "gpu_memory_used_bytes": [(15 * n, (100 + n) * 2.0**20) for n in range(8)]
    }
    assert points("DCGM_FI_DEV_FB_USED", 105) == {"DCGM_FI_DEV_FB_USED": [(15 * n, 100.0 + n) for n in range(4)]}
    assert points("dcgm_fb_used", 105) == {"dcgm_fb_used": [(15 * n, 100.0 + n) for n in range(4, 8)]}
    assert len(labels_of('{__name__=~".+fb_used|DCGM_.+|gpu_memory.+"}', T0 + 60)) == 2


def test_a_no_value_number_is_a_gap_under_the_canonical_name_and_itself_under_the_exporters(fleet: Fleet) -> None:
    layout = fleet.layout(0, [memory("DCGM_FI_DEV_FB_USED", fleet.gpus[0].pk)])
    append_frames(
        [fleet.frame(0, 0, layout, 7.0), fleet.frame(0, 15, layout, BLANK), fleet.frame(0, 30, layout, 9.0)], NOW
    )
    assert points("gpu_memory_used_bytes", 30)["gpu_memory_used_bytes"] == [(0, 7 * 2.0**20), (30, 9 * 2.0**20)]
    assert points("DCGM_FI_DEV_FB_USED", 30)["DCGM_FI_DEV_FB_USED"] == [(0, 7.0), (15, BLANK), (30, 9.0)]
    assert points("sum_over_time(gpu_memory_used_bytes[30s])", 30)[""][-1] == (30, 16 * 2.0**20)


def test_a_failed_scrape_ends_all_series_at_once(fleet: Fleet) -> None:
    layout = fleet.layout(0, [spec("temp", fleet.gpus[0].pk)])
    append_frames([fleet.frame(0, 0, layout, 7.0), fleet.frame(0, 15, None), fleet.frame(0, 30, layout, 9.0)], NOW)
    assert points("temp", 45)["temp"] == [(0, 7.0), (30, 9.0), (45, 9.0)]
    assert points("up", 30)["up"] == [(0, 1.0), (15, 0.0), (30, 1.0)]


def test_an_exporters_label_does_not_hide_a_targets(fleet: Fleet) -> None:
    target = fleet.targets[0]
    target.labels = {"switch": "leaf-1", "instance": "rack-1-node-1:9400", "zone": "a"}
    target.job = "dcgm"
    target.save()
    target.node.rack = Rack.objects.create(cluster=fleet.cluster, name="R01")
    target.node.save()
    own = {"job": "theirs", "instance": "theirs:1", "zone": "b", "device": "sda", "empty": ""}
    layout = fleet.layout(0, [replace(spec("disk_io"), labels=own)])
    append_frames([fleet.frame(0, 0, layout, 1.0)], NOW)
    assert labels_of("disk_io") == [
        {
            "__name__": "disk_io",
            "job": "dcgm",
            "instance": "rack-1-node-1:9400",
            "zone": "a",
            "switch": "leaf-1",
            "node": "gpu-0",
            "rack": "R01",
            "cluster": "default",
            "device": "sda",
            "exported_job": "theirs",
            "exported_instance": "theirs:1",
            "exported_zone": "b",
        }
    ]


def test_a_target_that_got_another_path_goes_on(fleet: Fleet) -> None:
    """Same address, so the same labels: one series, which does not end where the first target does."""
    first = fleet.targets[0]
    second = Target.objects.create(
        cluster=fleet.cluster, node=first.node, url=first.url + "?new=1", created_at=NOW, labels=first.labels
    )
    fleet.targets.append(second)
    gpu = fleet.gpus[0].pk
    old, new = fleet.layout(0, [spec("temp", gpu)]), fleet.layout(2, [spec("temp", gpu)])
    append_frames([fleet.frame(0, 15 * n, old, 1.0 + n) for n in range(4)] + [fleet.frame(0, 75, None)], NOW)
    append_frames([fleet.frame(2, 15 * n, new, 1.0 + n) for n in range(4, 8)], NOW)
    assert points("temp", 105)["temp"] == [(15 * n, 1.0 + n) for n in range(8)]
    assert len(labels_of("temp", T0 + 90)) == 1


def test_a_gpu_is_labelled_with_the_slot_where_it_sits(fleet: Fleet) -> None:
    gpu = fleet.gpus[0]
    layout = fleet.layout(0, [spec("temp", gpu.pk)])
    append_frames([fleet.frame(0, 0, layout, 1.0)], NOW)
    assert "gpu" not in labels_of("temp")[0]
    Placement.objects.create(gpu=gpu, node=fleet.nodes[0], slot=5, pci_bus_id="0000:18:00.0", starts_at=NOW)
    found = labels_of("temp")[0]
    assert (found["gpu"], found["pci_bus_id"], found["Hostname"]) == ("5", "0000:18:00.0", "gpu-0")
    assert found["UUID"] == gpu.uuid
