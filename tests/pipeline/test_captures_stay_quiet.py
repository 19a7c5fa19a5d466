"""Captured bodies of real exporters, served as a still picture for ten minutes: no healthy one raises an incident.

A still picture is what `telemetry_frozen` is there to find, so that kind is exempt here. Two captures hold real
faults, as signals that later rules read: node_exporter's own end-to-end output and the demo of nvidia_gpu_exporter.
"""

from __future__ import annotations

import pytest
from scenario import Scenario
from shared import SHARED, shared

pytestmark = pytest.mark.django_db

ROOT = "data/real/exporters"
FOLDERS = ("dcgm", "nvidia_gpu_exporter", "amd", "node_exporter")
CAPTURES = sorted(
    f"{path.parent.name}/{path.name}" for folder in FOLDERS for path in (SHARED / ROOT / folder).glob("*")
)


@pytest.mark.skipif(not CAPTURES, reason="captures not at hand")
def test_no_healthy_capture_raises_an_incident() -> None:
    names = [f"capture-{number:02d}" for number in range(len(CAPTURES))]
    answers: dict[tuple[str, str], bytes | str] = {
        (node, "exporter"): shared(f"{ROOT}/{capture}").read_bytes()
        for node, capture in zip(names, CAPTURES, strict=True)
    }
    fleet = Scenario(*answers)
    for seconds in range(0, 600, 15):
        fleet.step(seconds, answers)
    raised = [(CAPTURES[int(one.subject[-2:])], one.kind) for one in fleet.incidents() if one.subject[:5] == "node:"]
    assert [one for one in raised if one[1] != "telemetry_frozen"] == []
    assert [one.title for one in fleet.incidents() if one.subject[:5] != "node:"] == []
