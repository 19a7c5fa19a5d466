"""How many queries each route makes, pinned: none grows with the fleet."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from api_callers import by_token
from django.db import connection
from django.test.utils import CaptureQueriesContext
from factories import make_fleet, make_incident

from gpufleet.fleet.models import MaintenanceWindow
from gpufleet.incidents.models import Silence
from gpufleet.store.layouts import forget_layouts

PINNED = {
    "fleet": 11,
    "fleet?at={past}": 11,
    "targets": 3,
    "incidents": 3,
    "incidents/{incident}": 3,
    "incidents/{incident}/events": 4,
    "series?metric=gpu_power_watts": 9,
    "values?metric=gpu_power_watts": 8,
    "bands?metric=gpu_power_watts": 6,
    "silences": 3,
    "maintenance": 3,
    "availability?scope=gpu": 9,
    "trends?by=model": 7,
}


@pytest.mark.django_db
@pytest.mark.parametrize("nodes", [2, 6])
@pytest.mark.parametrize("path", PINNED)
def test_pinned(path: str, nodes: int) -> None:
    now = datetime.now(tz=UTC)
    fleet = make_fleet(now, nodes=nodes)
    incidents = [make_incident(fleet, node, now) for node in range(nodes)]
    period = {"starts_at": now, "ends_at": now + timedelta(hours=1), "reason": "x", "created_by": "a"}
    for node in fleet.nodes:
        Silence.objects.create(cluster=fleet.cluster, node=node, **period)
        MaintenanceWindow.objects.create(node=node, created_at=now, **period)
    asking = by_token("viewer")
    forget_layouts()
    address = path.format(incident=incidents[0].pk, past=f"{now - timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}")
    with CaptureQueriesContext(connection) as queries:
        assert asking.get(address).status_code == 200
    assert len(queries) == PINNED[path], "\n".join(query["sql"][:160] for query in queries)
