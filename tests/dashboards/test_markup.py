"""What a user or an exporter writes is text on every page, never a part of it."""

from __future__ import annotations

import pytest
from django.test import Client
from django.utils.html import escape
from scenario import Scenario
from shared import case

from gpufleet.fleet.models import LIVE, Assignment, Gpu


@pytest.mark.parametrize("page", ["/nodes/gpu-n61/", "/?view=matrix", "/api/v1/fleet"])
def test_case_044_markup_in_labels_is_text_everywhere(page: str, viewer: Client) -> None:
    folder, facts = case("044")
    fleet = Scenario(("gpu-n61", "dcgm"))
    fleet.step(0, {("gpu-n61", "dcgm"): (folder / "input.prom").read_bytes()})
    pods = [row.workload["pod"] for row in Assignment.objects.order_by("gpu__uuid", "id")]
    assert len(pods) == facts["numbers"]["samples_accepted"] == Gpu.objects.count()
    assert sorted(pods) == sorted(
        [
            "<img src=x onerror=alert(1)>",
            '"><script>alert(2)</script>',
            "' onmouseover='alert(3)",
            "{{7*7}}",
            "javascript:alert(5)",
            "</title><b>6",
        ]
    )
    fleet.cluster.is_replay = False
    fleet.cluster.name = LIVE
    fleet.cluster.save()
    answer = viewer.get(page)
    assert answer.status_code == 200
    text = answer.content.decode()
    if "json" not in answer["Content-Type"]:
        for pod in pods:
            assert pod not in text or pod in {"{{7*7}}", "javascript:alert(5)"}
        assert "&amp;lt;" not in text
        assert 'href="javascript:' not in text
        assert "'unsafe-inline'" not in answer["Content-Security-Policy"]
    if page.startswith("/nodes/"):
        assert all(escape(pod) in text for pod in pods)
