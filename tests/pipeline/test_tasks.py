"""The tasks are thin: what they hand on, and that a lost part is one line and no exception."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.conf import settings
from django.db import InterfaceError, OperationalError
from kombu.exceptions import OperationalError as BrokerError

from gpufleet.celery import app
from gpufleet.pipeline import detecting, scraping, tasks
from gpufleet.pipeline.scraping import ShardWork
from gpufleet.schedule import beat_schedule


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, tuple[Any, ...], dict[str, Any]]]:
    """Messages that would have gone to the broker: (task, arguments, options)."""
    messages: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
    for task in (tasks.scrape_shard, tasks.detect_shard):

        def keep(args: tuple[Any, ...], *, name: str = task.name, **options: Any) -> None:
            messages.append((name, args, options))

        monkeypatch.setattr(task, "apply_async", keep)
    return messages


def test_a_tick_hands_out_its_shards(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    work = [ShardWork(1, 7, 0, "scrape", 0.0), ShardWork(1, 7, 1, "scrape-1", 7.5)]
    monkeypatch.setattr(scraping, "begin", lambda now: work)
    tasks.tick()
    assert sent == [
        ("pipeline.scrape_shard", (1, 7, 0), {"queue": "scrape", "countdown": 0.0, "expires": 15.0, "retry": False}),
        ("pipeline.scrape_shard", (1, 7, 1), {"queue": "scrape-1", "countdown": 7.5, "expires": 22.5, "retry": False}),
    ]


@pytest.mark.parametrize("stored", [True, False])
def test_detection_follows_only_what_was_stored(sent: list[Any], monkeypatch: pytest.MonkeyPatch, stored: bool) -> None:
    monkeypatch.setattr(scraping, "run_shard", lambda *args: stored)
    monkeypatch.setitem(settings.ENV, "GPUFLEET_DETECT_QUEUES", 2)
    tasks.scrape_shard(1, 7, 3)
    wanted = [("pipeline.detect_shard", (1, 7, 3), {"queue": "detect-1", "expires": 15, "retry": False})]
    assert sent == (wanted if stored else [])


@pytest.mark.parametrize(
    "error",
    [OperationalError("gone\nDETAIL"), InterfaceError("closed"), BrokerError("no broker"), ConnectionError("x")],
)
def test_a_lost_part_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: Any, error: Exception
) -> None:
    def fail(*args: object) -> bool:
        raise error

    monkeypatch.setattr(scraping, "run_shard", fail)
    tasks.scrape_shard(1, 7, 0)
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "\n" not in record.msg["reason"]
    assert record.msg["task"] == "scrape_shard"


def test_a_mistake_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> bool:
        raise KeyError("a bug")

    monkeypatch.setattr(scraping, "run_shard", fail)
    with pytest.raises(KeyError):
        tasks.scrape_shard(1, 7, 0)


def test_detection_is_told_its_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[Any, ...]] = []
    monkeypatch.setattr(detecting, "run_detect", lambda *args: told.append(args))
    before = datetime.now(tz=UTC)
    tasks.detect_shard(1, 7, 3)
    ((cluster_id, cycle, shard, now),) = told
    assert (cluster_id, cycle, shard) == (1, 7, 3)
    assert now >= before


def test_every_periodic_job_is_a_task() -> None:
    app.loader.import_default_modules()
    jobs = {job["task"] for job in beat_schedule(15).values()}
    assert jobs > {"pipeline.tick", "pipeline.sweep", "pipeline.keep_partitions"}
    assert jobs <= set(app.tasks)
