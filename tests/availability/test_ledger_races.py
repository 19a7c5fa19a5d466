"""The ledger told by several workers at once, and outages that one cause made."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from gpufleet.availability.ledger import GpuTold, NodeTold, record
from gpufleet.availability.models import LedgerHead, StateInterval
from gpufleet.availability.queries import availability
from gpufleet.fleet.models import Cluster, Gpu, Node
from gpufleet.incidents.models import Incident

DAY = datetime(2026, 3, 10, tzinfo=UTC)
STEP = timedelta(seconds=15)


def make(nodes: int, gpus: int) -> tuple[Cluster, list[Node], list[Gpu]]:
    cluster = Cluster.objects.create(name="default")
    made = [Node.objects.create(cluster=cluster, name=f"gpu-n{number:02}") for number in range(nodes)]
    boards = [
        Gpu.objects.create(cluster=cluster, uuid=f"GPU-{number}", first_seen_at=DAY, last_seen_at=DAY)
        for number in range(nodes * gpus)
    ]
    return cluster, made, boards


@pytest.mark.django_db(transaction=True)
def test_workers_that_tell_the_same_cycles_at_once_leave_one_gap_free_ledger() -> None:
    """Each worker tells all cycles, in its own order of nodes: no deadlock, no double row, no gap."""
    cluster, nodes, boards = make(4, 2)
    states = ["healthy", "failed", "failed", "healthy", "degraded"]
    barrier = threading.Barrier(4)
    errors: list[BaseException] = []

    def work(turn: int) -> None:
        try:
            barrier.wait()
            for cycle, state in enumerate(states):
                at = DAY + cycle * STEP
                told = [
                    NodeTold(
                        node.pk, at, at + STEP, state, gpus={b.pk: GpuTold(state) for b in boards[n * 2 : n * 2 + 2]}
                    )
                    for n, node in enumerate(nodes)
                ]
                record(cluster, told[turn:] + told[:turn], at)
        except BaseException as error:
            errors.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=work, args=(turn,)) for turn in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert set(LedgerHead.objects.values_list("told_until", flat=True)) == {DAY + 5 * STEP}
    subjects: list[dict[str, Any]] = [{"gpu": board} for board in boards]
    subjects += [{"node": node, "gpu": None} for node in nodes]
    for subject in subjects:
        rows = list(StateInterval.objects.filter(**subject).order_by("starts_at"))
        assert rows[0].starts_at == DAY
        assert [row.ends_at for row in rows] == [*(row.starts_at for row in rows[1:]), None]
        assert rows[-1].state == "degraded"


@pytest.mark.django_db
def test_members_of_one_cause_are_one_outage() -> None:
    cluster, (node,), boards = make(1, 2)
    rows: dict[str, Any] = {"cluster": cluster, "severity": "critical", "opened_at": DAY, "first_evidence_at": DAY,
            "last_seen_at": DAY, "last_event_at": DAY}  # fmt: skip
    cause = Incident.objects.create(kind="node_down", subject="node:gpu-n00", **rows)
    member = Incident.objects.create(kind="gpu_missing", subject="gpu:GPU-1", parent=cause, **rows)
    behind = (cause, member)
    for at, state in ((DAY, "healthy"), (DAY + STEP, "failed"), (DAY + 2 * STEP, "healthy")):
        gpus = {
            board.pk: GpuTold(state, (), incident.pk if state == "failed" else None)
            for board, incident in zip(boards, behind, strict=True)
        }
        record(cluster, [NodeTold(node.pk, at, at + STEP, state, gpus=gpus)], at)
    (row,) = availability(cluster, DAY, DAY + 3 * STEP, "fleet", now=DAY + 3 * STEP)
    assert (row["incidents"], row["down_seconds"], row["mttr_seconds"]) == (1, 30, 15)
