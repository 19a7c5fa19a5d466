"""What scrapes tell about boards, taken in by PostgreSQL: once, whoever tells it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from gpufleet.catalogue.devices import Device
from gpufleet.fleet.models import Assignment, Cluster, Gpu, Node, NodeEvent, Placement
from gpufleet.fleet.observation import Observed, observe_devices
from gpufleet.fleet.specs import BoardSeen, NodeSeen

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster.objects.create(name="c")
    Node.objects.bulk_create([Node(cluster=made, name=f"n{n}") for n in range(3)])
    return made


def node_id(name: str) -> int:
    return Node.objects.get(name=name).id


def board(n: int, slot: int, *pods: str, uuid: bool = True, **facts: Any) -> BoardSeen:
    device = Device(
        uuid=f"GPU-{n}" if uuid else "", index=slot, pci_bus_id=f"0000:{slot:02x}:00.0", vendor="nvidia", **facts
    )
    return BoardSeen(frozenset({device.key}), device, frozenset((("pod", pod),) for pod in pods))


def tell(cluster: Cluster, seconds: float, **nodes: list[BoardSeen]) -> Observed:
    seen = [NodeSeen(node_id(name), tuple(boards)) for name, boards in nodes.items()]
    return observe_devices(cluster, seen, NOW + timedelta(seconds=seconds), interval_seconds=15)


def placed() -> list[tuple[str, str, int]]:
    rows = Placement.objects.filter(ends_at=None).order_by("node__name", "slot", "gpu__uuid")
    return list(rows.values_list("node__name", "slot", "gpu__uuid"))


def test_first_sight(cluster: Cluster) -> None:
    found = tell(cluster, 0, n0=[board(1, 0, model="B200", driver_version="570"), board(2, 1)])
    gpu = Gpu.objects.get(uuid="GPU-1")
    assert found.gpu_ids[node_id("n0"), "GPU-1"] == gpu.id
    assert (gpu.model, gpu.vendor, gpu.driver_version, gpu.first_seen_at) == ("B200", "nvidia", "570", NOW)
    assert placed() == [("n0", 0, "GPU-1"), ("n0", 1, "GPU-2")]
    assert Node.objects.get(name="n0").expected_gpus == 2
    assert list(NodeEvent.objects.values_list("kind", "text")) == [("driver", "driver 570")]


def test_the_largest_number_seen_is_expected_unless_a_person_said_so(cluster: Cluster) -> None:
    for seconds, count, expected in ((0, 2, 2), (15, 1, 2), (30, 3, 3)):
        tell(cluster, seconds, n0=[board(n, n) for n in range(count)])
        assert Node.objects.get(name="n0").expected_gpus == expected
    Node.objects.filter(name="n0").update(expected_gpus=2, expected_gpus_by="ann")
    tell(cluster, 45, n0=[board(n, n) for n in range(4)])
    assert Node.objects.get(name="n0").expected_gpus == 2


def test_a_board_that_moves_keeps_its_record(cluster: Cluster) -> None:
    tell(cluster, 0, n0=[board(1, 0), board(2, 1)], n1=[board(3, 0)])
    tell(cluster, 600, n1=[board(3, 0), board(2, 1)])
    assert placed() == [("n0", 0, "GPU-1"), ("n1", 0, "GPU-3"), ("n1", 1, "GPU-2")]
    history = Placement.objects.filter(gpu__uuid="GPU-2").order_by("starts_at")
    assert [(row.node.name, row.starts_at, row.ends_at) for row in history] == [
        ("n0", NOW, NOW + timedelta(seconds=600)),
        ("n1", NOW + timedelta(seconds=600), None),
    ]
    assert Gpu.objects.count() == 3


def test_a_board_that_is_replaced(cluster: Cluster) -> None:
    tell(cluster, 0, n0=[board(1, 0), board(2, 1)])
    tell(cluster, 600, n0=[board(1, 0), board(9, 1)])
    assert placed() == [("n0", 0, "GPU-1"), ("n0", 1, "GPU-9")]


def test_a_move_in_the_moment_of_its_start_leaves_no_empty_interval(cluster: Cluster) -> None:
    tell(cluster, 0, n0=[board(1, 0)])
    tell(cluster, 0, n0=[board(1, 5)])
    assert list(Placement.objects.values_list("slot", "ends_at")) == [(5, None)]


def test_a_board_without_uuid_is_its_bus(cluster: Cluster) -> None:
    tell(cluster, 0, n0=[board(1, 0, uuid=False)], n1=[board(1, 0, uuid=False)])
    assert sorted(Gpu.objects.values_list("uuid", flat=True)) == ["n0/0000:00:00.0", "n1/0000:00:00.0"]


def test_the_same_again_writes_no_new_row(cluster: Cluster) -> None:
    boards = [board(1, 0, "a", driver_version="570"), board(2, 1, "b")]
    first = tell(cluster, 0, n0=boards)
    before = [list(model.objects.order_by("id").values("id")) for model in (Gpu, Placement, Assignment, NodeEvent)]
    assert tell(cluster, 15, n0=boards) == first
    after = [list(model.objects.order_by("id").values("id")) for model in (Gpu, Placement, Assignment, NodeEvent)]
    assert after == before


def test_the_statements_do_not_grow_with_the_fleet(cluster: Cluster) -> None:
    counts = []
    for seconds, nodes in ((0, 1), (15, 3)):
        boards = {f"n{k}": [board(100 * nodes + 10 * k + n, n, "p") for n in range(8)] for k in range(nodes)}
        seen = [NodeSeen(node_id(name), tuple(told)) for name, told in boards.items()]
        with CaptureQueriesContext(connection) as told:
            observe_devices(cluster, seen, NOW + timedelta(seconds=seconds), interval_seconds=15)
        counts.append(len(told.captured_queries))
    assert counts[0] <= 14
    # The second time boards are replaced, which is one statement more.
    assert counts[1] <= counts[0] + 1


@pytest.mark.django_db(transaction=True)
def test_two_workers_that_tell_the_same(cluster: Cluster) -> None:
    seen = [NodeSeen(node.id, (board(node.id, 0, "a", driver_version="570"),)) for node in Node.objects.all()]
    found: list[Observed] = []

    def work(order: int) -> None:
        found.append(observe_devices(cluster, seen[::order], NOW, interval_seconds=15))
        connection.close()

    threads = [threading.Thread(target=work, args=(order,)) for order in (1, -1, 1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 4
    assert all(one == found[0] for one in found)
    assert [model.objects.count() for model in (Gpu, Placement, Assignment, NodeEvent)] == [3, 3, 3, 3]
