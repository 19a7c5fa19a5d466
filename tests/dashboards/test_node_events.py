"""The same happening on several GPUs of a node at once is one line of its page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from factories import MadeFleet, make_fleet, make_user, raw_values

from dashboards.node_events import MOST_LINES, read_events
from gpufleet.core.times import utc_now
from gpufleet.fleet.models import Node, NodeEvent
from gpufleet.store.append import append_frames
from gpufleet.store.frames import Frame

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def happened(made: MadeFleet, slot: int, kind: str, at: datetime, *, xid: int | None = None, text: str = "") -> None:
    NodeEvent.objects.create(
        node=made.nodes[0], gpu=made.gpu(0, slot), at=at, kind=kind, xid=xid, source="scrape", text=text,
        fingerprint=f"{kind}{slot}{at.timestamp()}{xid}",
    )  # fmt: skip


def slots_of(made: MadeFleet) -> dict[int, int]:
    return {gpu.pk: slot for slot, gpu in enumerate(made.gpus[made.nodes[0].id])}


@pytest.mark.django_db
def test_one_driver_on_eight_gpus_is_one_line_and_two_xids_are_two() -> None:
    made = make_fleet(NOW, nodes=1)
    for slot in range(8):
        happened(made, slot, "driver", NOW - timedelta(hours=1), text="driver 580.95.05")
    happened(made, 3, "xid", NOW, xid=79)
    happened(made, 5, "xid", NOW, xid=31)
    with CaptureQueriesContext(connection) as asked:
        lines = read_events(made.nodes[0], slots_of(made))
    assert len(asked) == 1
    assert [(line.kind, line.xid, line.where, line.count) for line in lines] == [
        ("xid", 79, "g3", 1),
        ("xid", 31, "g5", 1),
        ("driver", None, "8 GPUs", 8),
    ]


@pytest.mark.django_db
def test_the_list_ends_somewhere_and_a_gpu_that_left_has_no_slot() -> None:
    made = make_fleet(NOW, nodes=1)
    for number in range(MOST_LINES + 5):
        happened(made, 0, "xid", NOW - timedelta(minutes=number), xid=13)
    lines = read_events(made.nodes[0], {})
    assert len(lines) == MOST_LINES
    assert (lines[0].at, lines[0].where) == (NOW, "")


@pytest.mark.django_db
def test_the_head_counts_the_gpus_that_have_values(client: Client) -> None:
    now = utc_now()
    made = make_fleet(now, nodes=1)
    Node.objects.update(expected_gpus=8)
    client.force_login(make_user())
    assert client.get("/nodes/gpu-001/").context["listed"] == 8
    raw = raw_values(0, 8)
    raw[5::8] = np.nan
    target, at = made.targets[0], now.timestamp() - 1
    append_frames([Frame(target.pk, at, 1, "", 0.05, 9000, raw.size, 0, 0, made.layouts[target.pk], raw)], now)
    answer = client.get("/nodes/gpu-001/")
    assert answer.context["listed"] == 7
    assert "7 of 8" in answer.content.decode()
