"""The live bus: what a cycle's message holds, who may read the stream, and what slow readers lose."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.http import StreamingHttpResponse
from django.test import AsyncClient, Client
from factories import MadeFleet, make_fleet, make_user, tell

from dashboards import live
from dashboards.live_hub import MOST_WAITING, LiveHub, Reader
from gpufleet.core.bus import broker, channel
from gpufleet.fleet.models import Cluster
from gpufleet.pipeline.live import (
    LIVE_METRICS,
    envelope,
    newest_key,
    newest_message,
    open_envelope,
    publish_cycle,
    publish_incident,
)

NOW = datetime(2026, 11, 19, 15, 0, 0, tzinfo=UTC)
UTILISATION = "gpu_utilization_ratio"


@pytest.fixture(autouse=True)
def empty_bus(settings: Any) -> None:
    found = broker(settings.BROKER_URL)
    keys = list(found.scan_iter(match="gpufleet:live:*"))
    if keys:
        found.delete(*keys)


@pytest.fixture
def made(db: None) -> MadeFleet:
    return make_fleet(NOW, nodes=2, gpus=4)


def test_a_message_is_a_whole_picture(made: MadeFleet) -> None:
    tell(made, made.nodes[1], "degraded", NOW - timedelta(minutes=3), NOW)
    tell(made, made.nodes[1], "failed", NOW - timedelta(minutes=3), NOW, gpu=made.gpu(1, 2))
    assert publish_cycle(made.cluster, 7, NOW) > 0
    message = orjson.loads(newest_message("default", UTILISATION) or b"null")
    assert message == {
        "cluster": "default",
        "seq": 1,
        "as_of": NOW.timestamp(),
        "interval": 15,
        "wall": message["wall"],
        "states": "hhhhhhfh",
        "node_states": "hd",
        "since": {"1": (NOW - timedelta(minutes=3)).timestamp()},
        "ages": {},
        "counts": message["counts"],
        "targets": [2, 2],
        "last_good_at": "2026-11-19T14:59:58Z",
        "metric": UTILISATION,
        "values": [98, 97, 96, 95, 97, 96, 95, 94],
    }
    assert message["counts"]["gpus"]["failed"] == 1


def test_every_metric_of_the_picker_is_published_once(made: MadeFleet, settings: Any) -> None:
    line = broker(settings.BROKER_URL).pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
    line.subscribe(channel(settings.BROKER_URL))
    line.get_message(timeout=1)
    publish_cycle(made.cluster, 7, NOW)
    heads = []
    while (found := line.get_message(timeout=1)) is not None:
        heads.append(open_envelope(found["data"])[0])
        if len(heads) == len(LIVE_METRICS):
            break
    line.close()
    assert [head["metric"] for head in heads] == list(LIVE_METRICS)
    assert {head["seq"] for head in heads} == {1}


def test_unknown_values_are_null_and_old_ones_carry_their_age(made: MadeFleet) -> None:
    publish_cycle(made.cluster, 9, NOW + timedelta(seconds=40))
    message = orjson.loads(newest_message("default", UTILISATION) or b"null")
    assert message["states"] == "u" * 8
    assert message["ages"] == {str(index): 42 for index in range(8)}
    missing = orjson.loads(newest_message("default", "gpu_memory_temperature_celsius") or b"null")
    assert missing["values"] == [None] * 8


def test_a_lost_broker_stops_nothing(made: MadeFleet, settings: Any) -> None:
    settings.BROKER_URL = "redis://127.0.0.1:1/0"
    assert publish_cycle(made.cluster, 7, NOW) == 0
    assert newest_message("default", UTILISATION) is None

    class Change:
        incident_id, verb = 1, "open"

    publish_incident(Change(), "default")


@pytest.mark.parametrize("message", [b"", b"no line", b"{}\nbody", b"[1]\nbody", b"\xff\xfe\nbody"])
def test_what_is_not_ours_is_refused(message: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - either no JSON or no head of ours
        open_envelope(message)


def test_snapshot_is_the_message_and_knows_what_the_reader_has(viewer: Client, fleet: MadeFleet) -> None:
    publish_cycle(fleet.cluster, 7, datetime.now(tz=UTC))
    answer = viewer.get("/fleet/snapshot.json?metric=gpu_power_watts")
    assert answer.json()["metric"] == "gpu_power_watts"
    assert answer.json()["seq"] == 1
    again = viewer.get("/fleet/snapshot.json?metric=gpu_power_watts", headers={"If-None-Match": answer["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again["ETag"] == answer["ETag"]


def test_snapshot_without_a_cycle_comes_from_the_database(viewer: Client, fleet: MadeFleet) -> None:
    message = viewer.get("/fleet/snapshot.json").json()
    assert (message["seq"], len(message["values"]), message["states"]) == (0, 24, "h" * 24)


def frame(event: str, cluster: str, metric: str, sequence: int, body: bytes = b"{}") -> bytes:
    return envelope(event, cluster, metric, sequence, body)


def test_readers_get_what_they_asked_for() -> None:
    async def run() -> None:
        hub = LiveHub("redis://127.0.0.1:1/0")
        power, other = Reader("default", frozenset({"gpu_power_watts"})), Reader("lab", frozenset({"gpu_power_watts"}))
        hub.readers |= {power, other}
        hub.take(frame("cycle", "default", "gpu_power_watts", 3, b'{"a":1}'))
        hub.take(frame("cycle", "default", UTILISATION, 3))
        hub.take(frame("incident", "", "", 0, b'{"incident_id":5}'))
        hub.take(b"not ours")
        assert await power.next_frames(0.01) == (
            b'id: 3\nevent: cycle\ndata: {"a":1}\n\nevent: incident\ndata: {"incident_id":5}\n\n'
        )
        assert await other.next_frames(0.01) == b'event: incident\ndata: {"incident_id":5}\n\n'
        assert await power.next_frames(0.01) == b""

    asyncio.run(run())


def test_a_slow_reader_loses_the_oldest() -> None:
    async def run() -> None:
        reader = Reader("default", frozenset({UTILISATION}))
        hub = LiveHub("redis://127.0.0.1:1/0")
        hub.readers.add(reader)
        for number in range(1, MOST_WAITING + 6):
            hub.take(frame("cycle", "default", UTILISATION, number))
        frames = await reader.next_frames(0.01)
        assert frames.startswith(b"id: 6\n")
        assert frames.count(b"event: cycle") == MOST_WAITING

    asyncio.run(run())


@pytest.mark.parametrize(
    ("origin", "own"),
    [
        ("http://127.0.0.1:8000", True),
        ("http://testserver:8000", True),
        ("http://testserver:8001", False),
        ("http://testserver", False),
        ("https://testserver:8000", False),
        ("http://evil.example:8000", False),
        ("http://testserver:port", False),
        ("null", False),
    ],
)
def test_only_our_own_pages_may_read(rf: Any, origin: str, own: bool) -> None:
    assert live.is_own_origin(rf.get("/live/"), origin) is own


@pytest.mark.django_db(transaction=True)
def test_the_stream() -> None:
    async_to_sync(read_the_stream)()


async def read_the_stream() -> None:
    await Cluster.objects.acreate(name="default")
    user = await sync_to_async(make_user)("viewer")
    client = AsyncClient()
    assert (await client.get("/live/")).status_code == 401
    await client.aforce_login(user, backend="django.contrib.auth.backends.ModelBackend")
    refused = await client.get("/live/", headers={"Origin": "http://evil.example:8000"})
    assert refused.status_code == 403
    assert "Access-Control-Allow-Origin" not in refused.headers
    assert (await client.get("/live/?metric=nonsense")).status_code == 400
    assert (await client.get("/live/?cluster=nowhere")).status_code == 404
    assert (await client.post("/live/")).status_code == 405
    answer = await client.get("/live/", headers={"Origin": "http://testserver:8000"})
    assert isinstance(answer, StreamingHttpResponse)
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    assert answer.headers["Access-Control-Allow-Origin"] == "http://testserver:8000"
    assert answer.headers["Access-Control-Allow-Credentials"] == "true"
    frames = aiter(answer)
    assert await anext(frames) == b"retry: 3000\n\n"
    hub = live.hub()
    assert len(hub.readers) == 1
    hub.take(frame("cycle", "default", UTILISATION, 1))
    assert b"event: cycle" in await anext(frames)
    for task in hub.tasks:
        task.cancel()


def test_threads_do_not_serve_the_stream(viewer: Client, db: None) -> None:
    assert viewer.get("/live/").status_code == 503


def test_keys_are_kept_two_intervals(made: MadeFleet, settings: Any) -> None:
    publish_cycle(made.cluster, 7, NOW)
    assert 0 < broker(settings.BROKER_URL).ttl(newest_key("default", UTILISATION)) <= 30
