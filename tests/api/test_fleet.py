"""Fleet, series, targets and availability over the API: exact shapes, gaps as null, states of a past moment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from api_callers import Caller, body_of
from factories import MadeFleet, make_incident, scrape, tell

from gpufleet.core.times import rfc3339
from gpufleet.pipeline.snapshot import STATES
from gpufleet.scrape.models import TargetStatus


def test_the_fleet(fleet: MadeFleet, viewer: Caller, now: datetime) -> None:
    tell(fleet, fleet.nodes[0], "failed", now - timedelta(minutes=1), now, gpu=fleet.gpu(0, 2), reasons=["xid 79"])
    found = body_of(viewer.get("fleet"))
    assert found.keys() == {"as_of", "counts", "nodes"}
    assert found["as_of"].endswith("Z")
    assert found["counts"]["nodes"] == {**dict.fromkeys(STATES, 0), "healthy": 3}
    assert found["counts"]["gpus"] == {**dict.fromkeys(STATES, 0), "healthy": 23, "failed": 1}
    node = found["nodes"][0]
    assert node.keys() >= {"name", "cluster", "rack", "switch", "state", "reasons", "data_age_seconds", "gpus"}
    assert (node["name"], node["cluster"], node["rack"], node["switch"]) == ("gpu-001", "default", "R01", "leaf-1")
    gpu = node["gpus"][2]
    assert gpu.keys() >= {"uuid", "slot", "model", "state", "reasons", "data_age_seconds", "metrics"}
    assert (gpu["uuid"], gpu["slot"], gpu["model"]) == (fleet.gpu(0, 2).uuid, 2, "NVIDIA B200")
    assert (gpu["state"], gpu["reasons"]) == ("failed", ["xid 79"])
    assert 2 <= gpu["data_age_seconds"] < 20
    assert gpu["metrics"]["gpu_utilization_ratio"] == pytest.approx(0.96)
    assert gpu["metrics"]["gpu_memory_used_bytes"] == pytest.approx((60000 + 96 * 900) * 1048576)


def test_the_fleet_of_a_past_moment(fleet: MadeFleet, viewer: Caller, now: datetime) -> None:
    tell(fleet, fleet.nodes[1], "failed", now - timedelta(seconds=1), now)
    then = body_of(viewer.get("fleet", at=rfc3339(now - timedelta(seconds=1.5))))
    assert then["nodes"][1]["state"] == "healthy"
    assert body_of(viewer.get("fleet"))["nodes"][1]["state"] == "failed"
    before = body_of(viewer.get("fleet", at=rfc3339(now - timedelta(hours=1))))
    assert before["counts"]["gpus"]["unknown"] == 24
    assert before["nodes"][0]["gpus"][0]["metrics"] == {}


def test_series_keep_their_gaps(fleet: MadeFleet, viewer: Caller, now: datetime) -> None:
    start = now.replace(microsecond=0) - timedelta(minutes=10)
    for minute in (0, 1, 3):
        scrape(fleet, start + timedelta(minutes=minute, seconds=7), values={0: 50.0 + minute})
    found = body_of(
        viewer.get(
            "series",
            metric="gpu_utilization_ratio",
            gpu_uuid=fleet.gpu(0, 1).uuid,
            start=rfc3339(start),
            end=rfc3339(start + timedelta(minutes=5)),
            step=60,
        )
    )
    assert found.keys() == {"metric", "unit", "times", "series"}
    assert (found["metric"], found["unit"]) == ("gpu_utilization_ratio", "ratio")
    assert found["times"] == [start.timestamp() + 60 * minute for minute in range(5)]
    (row,) = found["series"]
    assert (row["node"], row["gpu_uuid"], row["slot"]) == ("gpu-001", fleet.gpu(0, 1).uuid, 1)
    assert row["values"] == [0.5, 0.51, None, 0.53, None]


def test_series_of_a_node_and_of_all(fleet: MadeFleet, viewer: Caller) -> None:
    one = body_of(viewer.get("series", metric="gpu_power_watts", node="gpu-002"))["series"]
    assert [(row["node"], row["slot"]) for row in one] == [("gpu-002", slot) for slot in range(8)]
    assert len(body_of(viewer.get("series", metric="gpu_power_watts"))["series"]) == 24
    assert body_of(viewer.get("series", metric="gpu_fan_ratio"))["series"] == []


def test_targets(fleet: MadeFleet, viewer: Caller) -> None:
    TargetStatus.objects.filter(target=fleet.targets[1]).update(reason="refused", detail="connection refused")
    TargetStatus.objects.filter(target=fleet.targets[2]).delete()
    up, down, new = body_of(viewer.get("targets"))["targets"]
    names = {"url", "labels", "node", "job", "up", "reason", "last_scrape_at", "duration_seconds", "bytes",
             "samples_accepted", "samples_rejected", "samples_missing", "first_bad_line"}  # fmt: skip
    assert up.keys() >= names
    assert (up["url"], up["up"], up["reason"]) == ("http://gpu-001:9400/metrics", True, None)
    assert (down["up"], down["reason"], down["detail"]) == (False, "refused", "connection refused")
    assert (new["up"], new["reason"], new["last_scrape_at"], new["bytes"]) == (None, None, None, None)


@pytest.mark.parametrize(("scope", "rows", "count"), [("fleet", 1, 24), ("rack", 3, 8), ("node", 3, 8), ("gpu", 24, 1)])
def test_availability(fleet: MadeFleet, viewer: Caller, now: datetime, scope: str, rows: int, count: int) -> None:
    start, end = now - timedelta(hours=2), now - timedelta(hours=1)
    found = body_of(viewer.get("availability", start=rfc3339(start), end=rfc3339(end), scope=scope, tz="Europe/Berlin"))
    assert (found["month"], found["tz"], found["scope"]) == (None, "Europe/Berlin", scope)
    assert len(found["rows"]) == rows
    row = found["rows"][0]
    assert row["gpu_count"] == count
    assert row["up_seconds"] == pytest.approx(3600 * count, abs=0.01 * count)
    assert row["availability_ratio"] == 1.0
    assert (row["incidents"], row["mtbf_seconds"], row["mttr_seconds"]) == (0, None, None)


def test_trends(fleet: MadeFleet, viewer: Caller, now: datetime) -> None:
    make_incident(fleet, 0, now, minutes=60)
    start = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    found = body_of(viewer.get("trends", start=rfc3339(start), bucket="day", by="node"))
    assert (found["bucket"], found["by"]) == ("day", "node")
    assert [bucket["starts_at"] for bucket in found["buckets"]] == [rfc3339(start), rfc3339(start + timedelta(days=1))]
    rows = [row for bucket in found["buckets"] for row in bucket["rows"]]
    assert rows[0].keys() == {"key", "failures", "node_days", "rate_per_1000_node_days", "rate_low", "rate_high"}
    assert sum(row["failures"] for row in rows) == 1
    assert all(row["rate_low"] <= row["rate_per_1000_node_days"] <= row["rate_high"] for row in rows)
