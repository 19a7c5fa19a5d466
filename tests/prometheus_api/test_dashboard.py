"""NVIDIA's dashboard for DCGM opens: its variables have values, and every panel has data."""

from __future__ import annotations

import json
import re

from factories import MadeFleet
from prometheus_api.conftest import NOW, Asking
from shared import shared


def test_every_panel_has_data(fleet: MadeFleet, viewer: Asking) -> None:
    dashboard = json.loads(shared("data/real/dashboards/dcgm-exporter-dashboard.json").read_text(encoding="utf-8"))
    given = {"start": NOW.timestamp() - 900, "end": NOW.timestamp()}
    variables = {}
    for one in dashboard["templating"]["list"]:
        if one["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.+), (\w+)\)", one["query"]).groups()  # type: ignore[union-attr]
            variables[one["name"]] = viewer.data(f"label/{label}/values", **{"match[]": selector}, **given)
    assert variables == {"instance": ["gpu-001:9400", "gpu-002:9400"], "gpu": ["0", "1"]}
    asked = 0
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            query = target["expr"]
            for name, values in variables.items():
                query = query.replace(f"${name}", f"({'|'.join(values)})")
            found = viewer.data("query_range", query=query, step=15, **given)["result"]
            assert found, panel["title"]
            assert all(len(series["values"]) > 30 for series in found), panel["title"]
            asked += 1
    assert asked == 8
