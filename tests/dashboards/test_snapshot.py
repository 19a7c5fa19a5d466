"""Three-valued truth: what may be said of a GPU, given a verdict and the age of its data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from factories import INTERVAL_SECONDS, MadeFleet, make_fleet, scrape, tell
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.pipeline.snapshot import STATES, fleet_snapshot, natural, truth
from gpufleet.pipeline.verdicts import Verdict

NOW = datetime(2026, 11, 19, 15, 0, 0, tzinfo=UTC)
AT = NOW.timestamp()


def verdict(state: str, told_ago: float = 0.0) -> Verdict:
    return Verdict(state, ["why"], None, NOW, AT + INTERVAL_SECONDS - told_ago)


@pytest.mark.parametrize(
    ("state", "told_ago", "age", "shown"),
    [
        ("healthy", 0, 2, "healthy"),
        ("healthy", 0, 30, "healthy"),
        ("healthy", 0, 31, "unknown"),
        ("healthy", 0, None, "unknown"),
        ("degraded", 0, 31, "unknown"),
        ("failed", 0, None, "failed"),
        ("failed", 0, 3600, "failed"),
        ("failed", 31, 3600, "unknown"),
        ("healthy", 31, 2, "unknown"),
        ("unknown", 0, 2, "unknown"),
        ("maintenance", 9999, None, "maintenance"),
        ("out_of_service", 9999, None, "out_of_service"),
    ],
)
def test_what_may_be_said(state: str, told_ago: float, age: float | None, shown: str) -> None:
    assert truth(verdict(state, told_ago), age, AT, INTERVAL_SECONDS)[0] == shown


def test_nobody_has_judged_is_unknown() -> None:
    assert truth(None, 1.0, AT, INTERVAL_SECONDS) == ("unknown", ["never_judged"])


@given(st.sampled_from(STATES), st.floats(0, 1e6), st.none() | st.floats(0, 1e6))
def test_silence_is_never_healthy(state: str, told_ago: float, age: float | None) -> None:
    shown, _ = truth(verdict(state, told_ago), age, AT, INTERVAL_SECONDS)
    if shown in ("healthy", "degraded"):
        assert age is not None
        assert age <= 2 * INTERVAL_SECONDS
        assert told_ago <= 2 * INTERVAL_SECONDS
    if shown != state:
        assert shown == "unknown"


@pytest.fixture
def fleet(db: None) -> MadeFleet:
    return make_fleet(NOW, nodes=3)


def test_values_states_and_ages(fleet: MadeFleet) -> None:
    tell(fleet, fleet.nodes[1], "failed", NOW - timedelta(minutes=5), NOW, gpu=fleet.gpu(1, 3), reasons=["xid 79"])
    found = fleet_snapshot(fleet.cluster, NOW, metrics=["gpu_utilization_ratio", "gpu_memory_used_bytes"])
    gpu = found.nodes[0].gpus[2]
    assert (gpu.uuid, gpu.slot, gpu.state, gpu.job) == (fleet.gpu(0, 2).uuid, 2, "healthy", "train-48213")
    assert gpu.metrics == {"gpu_utilization_ratio": pytest.approx(0.96), "gpu_memory_used_bytes": 146400 * 1048576.0}
    assert gpu.data_age_seconds == 2.0
    broken = found.nodes[1].gpus[3]
    assert (broken.state, broken.reasons, broken.since) == ("failed", ["xid 79"], NOW - timedelta(minutes=5))
    assert found.counts["gpus"] == {**dict.fromkeys(STATES, 0), "healthy": 23, "failed": 1}
    assert found.counts["nodes"]["healthy"] == 3
    assert [node.rack for node in found.nodes] == ["R01", "R02", "R03"]


def test_without_new_scrapes_all_becomes_unknown(fleet: MadeFleet) -> None:
    later = fleet_snapshot(fleet.cluster, NOW + timedelta(seconds=40), metrics=[])
    assert later.counts["gpus"]["unknown"] == 24
    assert later.counts["nodes"]["unknown"] == 3


def test_a_node_that_falls_silent_is_unknown_beside_fresh_ones(fleet: MadeFleet) -> None:
    later = NOW + timedelta(seconds=45)
    scrape(fleet, later, only=[0, 1])
    for node in fleet.nodes:
        fleet_told(fleet, node.id, later)
    found = fleet_snapshot(fleet.cluster, later, metrics=[])
    assert [node.state for node in found.nodes] == ["healthy", "healthy", "unknown"]
    assert found.nodes[2].reasons == ["data_too_old"]
    assert found.nodes[2].data_age_seconds == 47.0


def fleet_told(fleet: MadeFleet, node_id: int, at: datetime) -> None:
    from gpufleet.availability.models import LedgerHead

    LedgerHead.objects.filter(node_id=node_id).update(told_until=at + timedelta(seconds=INTERVAL_SECONDS))


def test_the_past_is_of_its_own_moment(fleet: MadeFleet) -> None:
    tell(fleet, fleet.nodes[0], "failed", NOW, NOW + timedelta(minutes=1), gpu=fleet.gpu(0, 0))
    scrape(fleet, NOW + timedelta(minutes=1), values={0: 7.0})
    later = NOW + timedelta(minutes=1, seconds=2)
    for node in fleet.nodes:
        fleet_told(fleet, node.id, later)
    past = fleet_snapshot(fleet.cluster, later, NOW - timedelta(seconds=1), ["gpu_utilization_ratio"])
    assert past.nodes[0].gpus[0].state == "healthy"
    assert past.nodes[0].gpus[0].metrics["gpu_utilization_ratio"] == pytest.approx(0.98)
    now = fleet_snapshot(fleet.cluster, later, metrics=["gpu_utilization_ratio"])
    assert now.nodes[0].gpus[0].state == "failed"
    assert now.nodes[0].gpus[0].metrics["gpu_utilization_ratio"] == pytest.approx(0.07)


def test_a_moved_gpu_changes_the_fingerprint(fleet: MadeFleet) -> None:
    before = fleet_snapshot(fleet.cluster, NOW, metrics=[]).fingerprint
    place = fleet.gpu(0, 0).placements.get()
    place.ends_at = NOW - timedelta(seconds=1)
    place.save()
    assert fleet_snapshot(fleet.cluster, NOW, metrics=[]).fingerprint != before


def test_names_sort_as_people_count() -> None:
    assert sorted(["gpu-10", "gpu-2", "a", "10", "gpu"], key=natural) == ["10", "a", "gpu", "gpu-2", "gpu-10"]


@pytest.mark.parametrize("nodes", [2, 6])
def test_the_queries_do_not_grow_with_the_fleet(db: None, django_assert_num_queries: object, nodes: int) -> None:
    fleet = make_fleet(NOW, nodes=nodes)
    fleet_snapshot(fleet.cluster, NOW, metrics=["gpu_power_watts"])
    with django_assert_num_queries(8):  # type: ignore[operator]
        fleet_snapshot(fleet.cluster, NOW, metrics=["gpu_power_watts"])
