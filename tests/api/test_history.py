"""Values of a moment, bands over time and several metrics at once: the same whether sealed or not."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import numpy as np
import pytest
from api_callers import Caller, assert_problem, body_of
from factories import MadeFleet, scrape

from gpufleet.core.times import rfc3339
from gpufleet.store.partitions import SPAN
from gpufleet.store.seal import GRACE, seal

METRICS = "gpu_power_watts,gpu_utilization_ratio"


def asked(viewer: Caller, start: datetime) -> list[Any]:
    window = {"start": rfc3339(start), "end": rfc3339(start + timedelta(minutes=10))}
    return [
        body_of(viewer.get("values", metric="gpu_utilization_ratio", at=rfc3339(start + timedelta(minutes=1)))),
        body_of(viewer.get("bands", metric=METRICS, step=60, **window)),
        body_of(viewer.get("series", metric=METRICS, node="gpu-001", step=60, **window)),
    ]


def test_history_is_the_same_once_it_is_sealed(fleet: MadeFleet, viewer: Caller, now: datetime) -> None:
    start = now.replace(microsecond=0) - timedelta(hours=5)
    for minute in (0, 1, 3):
        scrape(fleet, start + timedelta(minutes=minute), values={0: 50.0 + minute})
    before = asked(viewer, start)
    values, bands, series = before
    assert values.keys() == {"metric", "unit", "values"}
    first = values["values"][0]
    at = (start + timedelta(minutes=1)).timestamp()
    assert first == {
        "node": "gpu-001",
        "gpu_uuid": fleet.gpu(0, 0).uuid,
        "slot": 0,
        "labels": {},
        "at": at,
        "value": 0.51,
    }
    assert len(values["values"]) == 24
    assert [band["metric"] for band in bands["bands"]] == METRICS.split(",")
    for band in bands["bands"]:
        assert band["present"] == [24, 24, 0, 24, 0, 0, 0, 0, 0, 0]
        assert [value is None for value in band["p95"]] == [count == 0 for count in band["present"]]
    assert len(series["series"]) == 16
    assert {row["metric"] for row in series["series"]} == set(METRICS.split(","))
    assert series["unit"] == ""
    assert seal(now + SPAN + GRACE).spans > 0
    assert asked(viewer, start) == before


def test_the_band_is_that_of_the_values(fleet: MadeFleet, viewer: Caller, now: datetime) -> None:
    start = now.replace(microsecond=0) - timedelta(minutes=30)
    scrape(fleet, start)
    values = [
        row["value"] for row in body_of(viewer.get("values", metric="gpu_power_watts", at=rfc3339(start)))["values"]
    ]
    query = {"start": rfc3339(start), "end": rfc3339(start + timedelta(minutes=1)), "step": 60}
    [band] = body_of(viewer.get("bands", metric="gpu_power_watts", **query))["bands"]
    for share, percent in (("p5", 5), ("p50", 50), ("p95", 95)):
        assert band[share][0] == pytest.approx(np.percentile(values, percent), rel=1e-6)


def test_too_many_metrics(fleet: MadeFleet, viewer: Caller) -> None:
    many = ",".join(f"m{number}" for number in range(51))
    for path in ("series", "bands"):
        assert_problem(viewer.get(path, metric=many), 422, "metric")
