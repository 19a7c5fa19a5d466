"""How many queries each page makes, pinned: a change shows in review, and none grows with the fleet."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.conf import settings
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from factories import make_fleet, make_incident

from gpufleet.core.bus import broker
from gpufleet.pipeline.live import newest_key
from gpufleet.store.layouts import forget_layouts

PINNED: dict[str, int] = json.loads(Path(__file__).with_name("query_counts.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("nodes", [2, 5])
@pytest.mark.parametrize("path", PINNED)
def test_pinned(viewer: Client, path: str, nodes: int) -> None:
    now = datetime.now(tz=UTC)
    address = path.replace("{month}", f"{now:%Y-%m}")
    fleet = make_fleet(now, nodes=nodes)
    for node in range(nodes):
        make_incident(fleet, node, now)
    forget_layouts()
    broker(settings.BROKER_URL).delete(newest_key("default", "gpu_utilization_ratio"))
    viewer.get(address)
    cache.clear()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert viewer.get(address).status_code == 200
    assert len(queries) == PINNED[path], "\n".join(query["sql"][:160] for query in queries)
