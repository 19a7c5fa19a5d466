"""The same happening on several GPUs of a node at once is one line of its page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from factories import MadeFleet, make_fleet

from dashboards.node_events import MOST_LINES, read_events
from gpufleet.fleet.models import NodeEvent

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
