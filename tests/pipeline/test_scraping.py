"""The live cycle's first half: one effect whatever runs twice, nothing run late, and a fixed number of queries."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.conf import settings
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from serving import Server, Wire

from gpufleet.core.bus import broker
from gpufleet.fleet.actions import import_targets
from gpufleet.fleet.models import LIVE, Cluster, Gpu, Node, Placement, Target
from gpufleet.fleet.queries import active_targets
from gpufleet.fleet.specs import TargetSpec
from gpufleet.pipeline import scraping
from gpufleet.scrape import actions
from gpufleet.scrape.collector import Collector, close_collectors, process_collector
from gpufleet.scrape.models import Cycle, TargetStatus
from gpufleet.store.layouts import forget_layouts
from gpufleet.store.queries import read_cycle

pytestmark = pytest.mark.django_db(transaction=True)

NODES = 4
GPUS = 2


def now() -> datetime:
    return datetime.now(tz=UTC)


def body_of(path: str) -> bytes:
    """`/gpu-n01/dcgm` has two GPUs with two metrics each, `/gpu-n01/node` one load."""
    _, node, exporter = path.split("?")[0].split("/")
    if exporter == "node":
        return b"node_load1 1.5\n"
    uuid = f"GPU-{int(node[-2:]):08x}-0000-0000-0000-00000000000"
    lines = [
        f'{name}{{gpu="{slot}",UUID="{uuid}{slot}",modelName="B200"}} {value}'
        for name, value in (("DCGM_FI_DEV_GPU_TEMP", 40), ("DCGM_FI_DEV_POWER_USAGE", 700.5))
        for slot in range(GPUS)
    ]
    return ("\n".join(lines) + "\n").encode()


class Fleet:
    """Four nodes with two targets each. `down` holds paths that answer 500; `hold` makes every answer wait."""

    def __init__(self) -> None:
        self.down: set[str] = set()
        self.hold: threading.Event | None = None
        self.server = Server(self._answer)
        specs = [
            TargetSpec(self.server.url(f"/gpu-n{n:02}/{exporter}"), f"gpu-n{n:02}", LIVE)
            for n in range(1, NODES + 1)
            for exporter in ("dcgm", "node")
        ]
        import_targets(specs, source="test", actor="test", now=now(), trusted=True)
        self.cluster = Cluster.objects.get(name=LIVE)

    async def _answer(self, wire: Wire) -> None:
        if wire.path in self.down:
            await wire.answer(b"", "500 Oops")
        else:
            await wire.answer(body_of(wire.path))


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    forget_layouts()
    close_collectors()
    broker(settings.BROKER_URL).delete(*(f"gpufleet:shard:{n}:{k}" for n in range(1, 200) for k in range(4)))
    made = Fleet()
    yield made
    close_collectors()
    made.server.stop()


@pytest.fixture
def shards_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda targets: monkeypatch.setitem(settings.ENV, "GPUFLEET_SHARD_TARGETS", targets)


def run(work: scraping.ShardWork, at: datetime | None = None) -> bool:
    return scraping.run_shard(work.cluster_id, work.cycle, work.shard, at or now())


def test_a_cycle_end_to_end(fleet: Fleet) -> None:
    (work,) = scraping.begin(now())
    assert run(work)
    frames = read_cycle(list(Target.objects.values_list("id", flat=True)), work.cycle)
    assert [(frame.reason, frame.accepted) for frame in frames] == [("", 4), ("", 1)] * NODES
    assert Gpu.objects.count() == NODES * GPUS
    assert Placement.objects.filter(ends_at=None).count() == NODES * GPUS
    assert set(Node.objects.values_list("expected_gpus", flat=True)) == {GPUS}
    kinds = Target.objects.order_by("id").values_list("kind", flat=True)
    assert list(kinds) == ["gpu", "node"] * NODES
    assert TargetStatus.objects.filter(reason="", failures_in_a_row=0).count() == 2 * NODES
    cycle = Cycle.objects.get()
    assert (cycle.shards, cycle.shards_scraped, cycle.scraped) == (1, 1, [0])


def test_one_bad_target_costs_one_target(fleet: Fleet) -> None:
    fleet.down.add("/gpu-n02/dcgm")
    (work,) = scraping.begin(now())
    assert run(work)
    rows = TargetStatus.objects.exclude(reason="")
    assert [(row.target.url, row.reason, row.detail) for row in rows] == [
        (fleet.server.url("/gpu-n02/dcgm"), "http status", "500")
    ]
    assert Gpu.objects.count() == (NODES - 1) * GPUS


def test_while_the_store_is_slow_cycles_are_dropped_and_nothing_piles_up(fleet: Fleet) -> None:
    """Another session holds the table, as a slow disk would; the shard that waits keeps the next ones off."""
    (first,) = scraping.begin(now())
    outcome: list[bool] = []

    def shard() -> None:
        outcome.append(run(first))
        connection.close()

    with psycopg.connect(_dsn()) as other:
        other.execute("LOCK TABLE scrape_targetstatus IN ACCESS EXCLUSIVE MODE")
        waiting = threading.Thread(target=shard)
        waiting.start()
        deadline = time.monotonic() + 20
        while len(fleet.server.requests) < 2 * NODES and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.3)
        asked = len(fleet.server.requests)
        for later in range(1, 4):
            (work,) = scraping.begin(now() + timedelta(seconds=later * scraping.interval_seconds()))
            assert not run(work)
        assert len(fleet.server.requests) == asked == 2 * NODES
    waiting.join(30)
    assert outcome == [True]
    assert list(Cycle.objects.order_by("number").values_list("shards_scraped", flat=True)) == [1, 0, 0, 0]
    (work,) = scraping.begin(now() + timedelta(seconds=4 * scraping.interval_seconds()))
    assert run(work)
    assert max(scraping.budgets(first.cluster_id).values()) > 0


def _dsn() -> str:
    wanted = connection.get_connection_params()
    return psycopg.conninfo.make_conninfo(
        **{name: wanted[name] for name in ("dbname", "user", "password", "host", "port") if name in wanted}
    )


def test_a_tick_twice_is_one_cycle(fleet: Fleet) -> None:
    at = now()
    assert len(scraping.begin(at)) == 1
    assert scraping.begin(at) == []
    assert Cycle.objects.count() == 1


def test_ticks_at_the_same_moment_make_one_cycle(fleet: Fleet) -> None:
    at = now()
    found: list[int] = []

    def tick() -> None:
        found.append(len(scraping.begin(at)))
        connection.close()

    threads = [threading.Thread(target=tick) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == [0, 0, 0, 1]
    assert Cycle.objects.count() == 1


def test_missed_cycles_are_counted_and_not_made_up(fleet: Fleet) -> None:
    interval = scraping.interval_seconds()
    start = now()
    scraping.begin(start)
    scraping.begin(start + timedelta(seconds=4 * interval))
    assert list(Cycle.objects.order_by("number").values_list("missed_before", flat=True)) == [0, 3]


def test_a_tick_is_for_every_cluster_that_is_scraped(fleet: Fleet, django_assert_num_queries: Any) -> None:
    """Not for a replay, nor for a cluster of which all targets are removed or all nodes retired."""
    mine = Target.objects.earliest("id").cluster
    for name, changed in (("replay", {"is_replay": True}), ("gone", {}), ("retired", {})):
        cluster = Cluster.objects.create(name=name, **changed)
        node = Node.objects.create(cluster=cluster, name=name, retired_at=now() if name == "retired" else None)
        removed_at = now() if name == "gone" else None
        Target.objects.create(cluster=cluster, node=node, url="http://x/", created_at=now(), removed_at=removed_at)
    with django_assert_num_queries(1):
        begun = scraping.begin(now())
    assert [work.cluster_id for work in begun] == [mine.id]


def test_a_shard_twice_has_one_effect(fleet: Fleet) -> None:
    (work,) = scraping.begin(now())
    assert [run(work), run(work)] == [True, False]
    assert len(fleet.server.requests) == 2 * NODES
    assert Cycle.objects.get().shards_scraped == 1


def test_a_shard_beside_itself_has_one_effect(fleet: Fleet) -> None:
    (work,) = scraping.begin(now())
    found: list[bool] = []

    def scrape() -> None:
        found.append(run(work))
        connection.close()

    threads = [threading.Thread(target=scrape) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == [False, False, True]
    assert len(fleet.server.requests) == 2 * NODES
    assert Cycle.objects.get().shards_scraped == 1


def test_two_results_of_one_shard_are_kept_once(fleet: Fleet) -> None:
    """Without Valkey's lease the mark on the cycle decides."""
    (work,) = scraping.begin(now())
    cycle = Cycle.objects.get()
    targets = active_targets(fleet.cluster.id)
    collector = process_collector(scraping.interval_seconds())
    results = [collector.scrape(fleet.cluster, targets, work.cycle, now()) for _ in range(2)]
    assert [actions.store_shard(cycle.id, 0, result, now()) for result in results] == [True, False]
    assert len(read_cycle([target.id for target in targets], work.cycle)) == 2 * NODES
    assert set(TargetStatus.objects.values_list("failures_in_a_row", flat=True)) == {0}


def test_a_late_shard_is_dropped(fleet: Fleet) -> None:
    (work,) = scraping.begin(now())
    late = now() + timedelta(seconds=scraping.interval_seconds() + 1)
    assert not run(work, late)
    assert fleet.server.requests == []
    assert Cycle.objects.get().shards_scraped == 0
    assert run(work)


def test_a_held_lease_drops_the_shard_and_is_not_taken_away(fleet: Fleet) -> None:
    (work,) = scraping.begin(now())
    name = f"gpufleet:shard:{work.cluster_id}:0"
    broker(settings.BROKER_URL).set(name, "somebody else", px=30_000)
    assert not run(work)
    assert fleet.server.requests == []
    assert broker(settings.BROKER_URL).get(name) == b"somebody else"
    broker(settings.BROKER_URL).delete(name)
    assert run(work)
    assert broker(settings.BROKER_URL).get(name) is None


def test_without_valkey_scraping_goes_on(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "BROKER_URL", "redis://127.0.0.1:1/0")
    (work,) = scraping.begin(now())
    assert run(work)


@pytest.mark.parametrize(("targets", "shards"), [(8, 1), (7, 2), (4, 2), (3, 3), (2, 4), (1, 8)])
def test_shards_hold_whole_nodes(fleet: Fleet, shards_of: Callable[[int], None], targets: int, shards: int) -> None:
    shards_of(targets)
    work = scraping.begin(now())
    interval = scraping.interval_seconds()
    assert [one.delay_seconds for one in work] == [interval * n / shards for n in range(shards)]
    parts = [active_targets(fleet.cluster.id, n, shards) for n in range(shards)]
    nodes = [{target.node for target in part} for part in parts]
    assert sorted(name for part in nodes for name in part) == [f"gpu-n0{n}" for n in range(1, NODES + 1)]
    assert sum(len(part) for part in parts) == 2 * NODES


def test_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(settings.ENV, "GPUFLEET_SCRAPE_QUEUES", 3)
    assert [scraping.queue_of("scrape", n) for n in range(4)] == ["scrape", "scrape-1", "scrape-2", "scrape"]
    assert [scraping.queue_of("detect", n) for n in range(2)] == ["detect", "detect"]


def next_cycle(offset: int) -> scraping.ShardWork:
    (work,) = scraping.begin(now() + timedelta(seconds=offset * scraping.interval_seconds()))
    Cycle.objects.filter(number=work.cycle).update(started_at=now())
    return work


def test_a_steady_cycle_has_a_fixed_number_of_queries(fleet: Fleet) -> None:
    for n in range(2):
        assert run(next_cycle(n))
    work = next_cycle(2)
    with CaptureQueriesContext(connection) as told:
        assert run(work)
    assert [shape(query["sql"]) for query in told.captured_queries] == [
        "SELECT scrape_cycle",
        "SELECT fleet_target",
        "BEGIN",
        "UPDATE scrape_cycle",
        "SAVEPOINT",
        "SELECT unnest",
        "SAVEPOINT",
        "COPY store_frame",
        "RELEASE",
        "INSERT store_head",
        "RELEASE",
        "INSERT scrape_targetstatus",
        "COMMIT",
    ]


def shape(sql: Any) -> str:
    """The verb of a statement and the table it is about."""
    text = (sql if isinstance(sql, str) else sql.as_string(None)).strip()
    table = re.search(r"(?:FROM|INTO|UPDATE|COPY)\s+\"?(\w+)", text)
    return f"{text.split()[0]} {table[1]}" if table else text.split()[0]


def test_a_database_that_goes_away_costs_one_cycle(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(next_cycle(0))

    def lost(*args: object) -> None:
        raise OperationalError("the connection is closed")

    work = next_cycle(1)
    with monkeypatch.context() as broken:
        broken.setattr(actions, "append_frames", lost)
        with pytest.raises(OperationalError):
            run(work)
    assert Cycle.objects.get(number=work.cycle).shards_scraped == 0
    later = next_cycle(2)
    assert run(later)
    targets = list(Target.objects.values_list("id", flat=True))
    assert [frame.reason for frame in read_cycle(targets, later.cycle)] == [""] * 2 * NODES
    assert Gpu.objects.count() == NODES * GPUS


def test_a_new_worker_finds_everything_again(fleet: Fleet) -> None:
    assert run(next_cycle(0))
    before = list(Placement.objects.values_list("id", "gpu_id", "slot"))
    close_collectors()
    assert isinstance(process_collector(scraping.interval_seconds()), Collector)
    assert run(next_cycle(1))
    assert list(Placement.objects.values_list("id", "gpu_id", "slot")) == before
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*), count(DISTINCT target_id) FROM store_layout")
        assert cursor.fetchone() == (2 * NODES, 2 * NODES)
