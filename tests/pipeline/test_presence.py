"""A board is there when it is read: what an exporter remembers of it does not make it look fresh."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from factories import MadeFleet, make_fleet

from gpufleet.catalogue.meaning import resolve
from gpufleet.fleet.models import Gpu
from gpufleet.pipeline.snapshot import fleet_snapshot
from gpufleet.store.append import append_frames
from gpufleet.store.frames import Frame, SeriesSpec
from gpufleet.store.series import ensure_layout, ensure_series

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 19, 15, 0, 0, tzinfo=UTC)
REMEMBERED = (
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_EXP_XID_ERRORS_COUNT",
    "DCGM_EXP_XID_ERRORS_TOTAL",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
)


@pytest.fixture
def fleet() -> MadeFleet:
    return make_fleet(NOW, nodes=1, gpus=2)


def spec(name: str, gpu: Gpu) -> SeriesSpec:
    meaning = resolve(name, {"UUID": gpu.uuid})
    return SeriesSpec(
        name=name, metric=meaning.metric, labels={}, gpu_id=gpu.id, kind=meaning.kind, unit=meaning.unit,
        scale=meaning.scale, low=meaning.low, high=meaning.high, sentinels=meaning.sentinels,
    )  # fmt: skip


def scrape_again(fleet: MadeFleet, specs: list[SeriesSpec], at: datetime) -> None:
    target = fleet.targets[0]
    ids = ensure_series(target.id, specs, at)
    layout = ensure_layout(target.id, sorted(ids), at)
    append_frames(
        [Frame(
            target_id=target.id, scraped_at=at.timestamp(), cycle=int(at.timestamp()) // 15, reason="",
            duration_seconds=0.1, bytes=1, accepted=len(ids), rejected=0, missing=0, layout_id=layout,
            values=np.ones(len(ids)),
        )],
        at,
    )  # fmt: skip


@pytest.mark.parametrize("name", REMEMBERED)
def test_a_vanished_gpu_whose_line_stays_does_not_look_fresh(fleet: MadeFleet, name: str) -> None:
    there, gone = fleet.gpus[fleet.nodes[0].id]
    at = NOW + timedelta(seconds=60)
    scrape_again(fleet, [spec("DCGM_FI_DEV_GPU_TEMP", there), spec(name, there), spec(name, gone)], at)
    first, second = fleet_snapshot(fleet.cluster, at, metrics=[]).nodes[0].gpus
    assert first.data_age_seconds == 0.0
    assert second.data_age_seconds == 60.0


def test_a_target_without_any_reading_speaks_by_what_it_has(fleet: MadeFleet) -> None:
    there, _ = fleet.gpus[fleet.nodes[0].id]
    at = NOW + timedelta(seconds=60)
    scrape_again(fleet, [spec("DCGM_FI_DEV_XID_ERRORS", there)], at)
    assert fleet_snapshot(fleet.cluster, at, metrics=[]).nodes[0].gpus[0].data_age_seconds == 0.0
