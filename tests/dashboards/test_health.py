"""Health of the whole: ready or why not, and the banner on every page when collection stands still."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from factories import MadeFleet, make_fleet, make_incident

from gpufleet.core.bus import broker
from gpufleet.fleet.models import Cluster
from gpufleet.pipeline.health import collection_health
from gpufleet.pipeline.scraping import BUDGETS
from gpufleet.scrape.models import Cycle, SourceStatus, TargetStatus

NOW = datetime(2026, 11, 19, 15, 0, 0, tzinfo=UTC)


def test_the_process_answers_without_anything(client: Client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}


def test_ready(client: Client, fleet: MadeFleet) -> None:
    answer = client.get("/readyz")
    assert answer.status_code == 200
    assert {name: check["ok"] for name, check in answer.json()["checks"].items()} == {
        "database": True,
        "broker": True,
        "last_good_cycle": True,
    }


def test_not_ready_without_a_broker(client: Client, fleet: MadeFleet, settings: Any) -> None:
    settings.BROKER_URL = "redis://127.0.0.1:1/0"
    broker.cache_clear()
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["broker"] == {"ok": False, "reason": "ConnectionError"}
    assert answer.json()["checks"]["database"]["ok"] is True


def test_not_ready_when_the_last_good_cycle_is_old(client: Client, db: None) -> None:
    make_fleet(datetime.now(tz=UTC) - timedelta(minutes=5))
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["checks"]["last_good_cycle"]["reason"] == "cluster default stands still"


@pytest.mark.parametrize(("seconds", "stale"), [(0, False), (43, False), (44, True), (3600, True)])
def test_stale_after_three_intervals(db: None, seconds: int, stale: bool) -> None:
    """The cycle began two seconds before NOW."""
    fleet = make_fleet(NOW)
    assert collection_health(fleet.cluster, NOW + timedelta(seconds=seconds)).is_stale is stale


def test_a_cycle_with_a_lost_shard_is_no_good_one(db: None) -> None:
    fleet = make_fleet(NOW)
    Cycle.objects.update(shards=2)
    health = collection_health(fleet.cluster, NOW)
    assert health.last_good_at is None
    assert health.is_stale, "its targets have waited for 30 days"


def test_without_targets_nothing_is_stale(db: None) -> None:
    assert not collection_health(Cluster.objects.create(name="default"), NOW).is_stale
    assert not collection_health(None, NOW).is_stale


def test_the_banner_is_on_every_page(viewer: Client, db: None) -> None:
    make_fleet(datetime.now(tz=UTC) - timedelta(minutes=5))
    for path in ("/", "/find/", "/incidents/", "/nodes/gpu-001/"):
        page = viewer.get(path).content.decode()
        assert "Collection stands still." in page, path
        assert 'id="stale" role="alert" data-last-good' in page, path


def test_no_banner_while_all_is_well(viewer: Client, fleet: MadeFleet) -> None:
    assert 'id="stale" role="alert" hidden' in viewer.get("/").content.decode()


def test_own_metrics_tell_the_truth(viewer: Client, fleet: MadeFleet, settings: Any) -> None:
    make_incident(fleet, 0, datetime.now(tz=UTC))
    TargetStatus.objects.filter(target=fleet.targets[1]).update(reason="timeout")
    Cycle.objects.update(missed_before=4)
    SourceStatus.objects.create(name="sources/dcgm", problem="gone", read_at=datetime.now(tz=UTC))
    name = f"{BUDGETS}{fleet.cluster.pk}"
    broker(settings.BROKER_URL).hset(name, "0", '{"scrape":0.25}')
    text = viewer.get("/metrics").content.decode()
    broker(settings.BROKER_URL).delete(name)
    for line in (
        'gpufleet_source_up{source="sources/dcgm"} 0.0',
        'gpufleet_cycle_budget_ratio{cluster="default",part="scrape",shard="0"} 0.25',
        'gpufleet_cycles_total{cluster="default"} 1.0',
        'gpufleet_cycles_missed_total{cluster="default"} 4.0',
        'gpufleet_targets_up{cluster="default"} 2.0',
        'gpufleet_targets_down{cluster="default",reason="timeout"} 1.0',
        'gpufleet_scrape_samples_accepted{cluster="default"} 144.0',
        'gpufleet_cycle_duration_seconds{cluster="default"} 1.0',
        'gpufleet_incidents_open{cluster="default",kind="xid",severity="critical"} 1.0',
        "gpufleet_broker_up 1.0",
        'gpufleet_queue_length{queue="scrape"} 0.0',
    ):
        assert line in text


def test_own_metrics_without_a_broker(viewer: Client, fleet: MadeFleet, settings: Any) -> None:
    settings.BROKER_URL = "redis://127.0.0.1:1/0"
    broker.cache_clear()
    text = viewer.get("/metrics").content.decode()
    assert "gpufleet_broker_up 0.0" in text
    assert 'gpufleet_targets_up{cluster="default"} 3.0' in text
