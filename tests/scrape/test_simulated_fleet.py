"""The reference fleet, simulated: 63 nodes, 126 targets, 504 GPUs, all good, through HTTP into PostgreSQL."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from gpufleet.fleet.actions import import_targets
from gpufleet.fleet.models import Cluster, Gpu, Node, Placement, Target
from gpufleet.fleet.queries import active_targets, inventory
from gpufleet.scrape.actions import store_shard
from gpufleet.scrape.collector import Collector
from gpufleet.scrape.discovery import parse_file_sd
from gpufleet.store.layouts import forget_layouts
from gpufleet.store.queries import read_frames

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


def fetch(url: str) -> bytes:
    until = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                body: bytes = answer.read()
                return body
        except (urllib.error.URLError, OSError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


@pytest.fixture
def simulator() -> Iterator[str]:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "gpufleet.simulator", "--port", str(port)])
    try:
        fetch(f"http://127.0.0.1:{port}/targets.json")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)


def test_the_reference_fleet(simulator: str, collector: Collector) -> None:
    forget_layouts()
    specs = parse_file_sd(fetch(f"{simulator}/targets.json").decode(), is_json=True)
    assert len(specs) == 126
    import_targets(specs, source="simulator", actor="test", now=START, trusted=True)
    cluster = Cluster.objects.get()
    for cycle in (1, 2, 3):
        now = START + timedelta(seconds=15 * cycle)
        result = collector.scrape_at(cluster, active_targets(cluster.id), cycle, now)
        assert store_shard(None, 0, result, now)
        assert {frame.reason for frame in result.frames} == {""}
        assert sum(frame.rejected for frame in result.frames) == 0
    assert Node.objects.count() == 63
    assert Gpu.objects.count() == Placement.objects.filter(ends_at=None).count() == 504
    assert Placement.objects.count() == 504
    assert {(node.expected_gpus, len(node.gpus)) for node in inventory(cluster).nodes.values()} == {(8, 8)}
    assert sorted(Target.objects.values_list("kind", flat=True)) == ["gpu"] * 63 + ["node"] * 63
    ids = [target.id for target in active_targets(cluster.id)]
    frames = read_frames(ids, START.timestamp(), START.timestamp() + 60)
    assert [frame.ok for frame in frames] == [True] * 126 * 3
