"""The node's page: its parts, its series as JSON, GPUs by UUID, and charts only through the shared settings."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import orjson
import pytest
from django.test import Client
from factories import MadeFleet, make_incident, scrape

from gpufleet.fleet.models import Gpu, Node, NodeEvent, Placement

SCRIPTS = Path(__file__).resolve().parents[2] / "static/js"
NASTY = "<script>alert(1)</script>"


def test_what_stands_on_it(fleet: MadeFleet, viewer: Client) -> None:
    now = datetime.now(tz=UTC)
    made = make_incident(fleet, 1, now, slot=5)
    NodeEvent.objects.create(
        node=fleet.nodes[1], at=now, kind="xid", xid=79, source="metrics", text=NASTY, fingerprint="a"
    )
    page = viewer.get("/nodes/gpu-002/").content.decode()
    for words in ("gpu-002", "NVIDIA B200", "8 of 8", fleet.gpu(1, 5).uuid, f"/incidents/{made.pk}/", "XID 79"):
        assert words in page
    assert 'rel="prev" href="/nodes/gpu-001/' in page
    assert 'rel="next" href="/nodes/gpu-003/' in page
    assert NASTY not in page
    assert "&lt;script&gt;" in page
    assert '<form method="post" action="/incidents' not in page


def test_a_node_without_gpus_says_what_is_missing(fleet: MadeFleet, viewer: Client) -> None:
    Node.objects.create(cluster=fleet.cluster, name="gpu-099")
    page = viewer.get("/nodes/gpu-099/").content.decode()
    assert "No GPU has been seen on this node yet" in page
    assert 'id="panels"' not in page


@pytest.mark.parametrize("name", ["no-such", "%00", quote("<b>"), "a" * 400])
def test_no_such_node(fleet: MadeFleet, viewer: Client, name: str) -> None:
    assert viewer.get(f"/nodes/{name}/").status_code == 404
    assert viewer.get(f"/nodes/{name}/series.json?metrics=gpu_power_watts").status_code == 404
    assert viewer.get(f"/gpus/{name}/").status_code == 404


@pytest.mark.parametrize(
    "query",
    ["?from=soon", "?from=now&to=now-1h", "?gpu=99", "?gpu=x", "?panels=nothing,<b>", "?tz=Mars/Olympus", "?pin=x"],
)
def test_what_cannot_be_used_is_left_out(fleet: MadeFleet, viewer: Client, query: str) -> None:
    assert viewer.get("/nodes/gpu-001/" + query).status_code == 200


def test_a_gpu_is_shown_on_its_node(fleet: MadeFleet, viewer: Client) -> None:
    answer = viewer.get(f"/gpus/{fleet.gpu(2, 3).uuid}/?from=now-3h")
    assert (answer.status_code, answer["Location"]) == (302, "/nodes/gpu-003/?from=now-3h&gpu=3")
    Gpu.objects.filter(pk=fleet.gpu(2, 3).pk).update(uuid="gpu-003/00000000:1B:00.0")
    assert viewer.get("/gpus/gpu-003/00000000:1B:00.0/")["Location"] == "/nodes/gpu-003/?gpu=3"
    assert viewer.get("/nodes/gpu-003/?gpu=3").context["focus"] == 3


def test_series_have_gaps_and_the_shown_unit(fleet: MadeFleet, viewer: Client) -> None:
    now = datetime.now(tz=UTC)
    for minute in (5, 9):
        scrape(fleet, now - timedelta(minutes=minute), values={0: 50.0})
    address = "/nodes/gpu-001/series.json?metrics=gpu_utilization_ratio,no_such&from=now-15m&to=now&band=1"
    body = orjson.loads(viewer.get(address).content)
    (panel,) = body["panels"]
    assert (panel["metric"], panel["unit"], panel["high"]) == ("gpu_utilization_ratio", "%", 100)
    assert [gpu["slot"] for gpu in panel["gpus"]] == list(range(8))
    known = [value for value in panel["gpus"][0]["mean"] if value is not None]
    assert known[:2] == [50, 50]
    assert len(known) < len(panel["gpus"][0]["mean"]) / 2
    assert panel["band"].keys() == {"p5", "p50", "p95"}


def test_charts_are_made_in_one_place_only() -> None:
    """Every call that makes or changes a chart goes through `draw`, which gives it the fixed settings."""
    makers = re.compile(r"Plotly\s*[.\[]\s*[\"']?(newPlot|react|plot|addFrames|Fx|toImage|downloadImage)|plotly\.plot")
    for script in SCRIPTS.glob("*.js"):
        text = script.read_text(encoding="utf-8")
        if script.name == "charts.js":
            assert [found[0] for found in re.finditer(r"Plotly\.\w+\(.*", text)] == [
                "Plotly.react(element, traces, layout(plan), CONFIG);"
            ]
        else:
            assert not makers.search(text), script.name


def test_no_chart_offers_to_send_itself_away() -> None:
    text = (SCRIPTS / "charts.js").read_text(encoding="utf-8")
    settings = re.search(r"CONFIG = Object\.freeze\(\{(.*?)\}\)", text, re.DOTALL)
    assert settings is not None
    assert "showSendToCloud: false" in settings[1]
    assert 'plotlyServerURL: ""' in settings[1]
    assert "displayModeBar: false" in settings[1]
    assert not re.search(r"showSendToCloud:\s*true", "".join(one.read_text() for one in SCRIPTS.glob("*.js")))


def test_who_sat_in_a_slot_and_where_a_board_was_before(fleet: MadeFleet, viewer: Client) -> None:
    assert "Boards and slots" not in viewer.get("/nodes/gpu-001/").content.decode()
    now = datetime.now(tz=UTC)
    here, there = fleet.gpu(0, 3), fleet.gpu(1, 5)
    for gpu, node, slot in ((here, fleet.nodes[1], 5), (there, fleet.nodes[0], 3)):
        Placement.objects.filter(gpu=gpu, ends_at=None).update(ends_at=now - timedelta(hours=1))
        Placement.objects.create(gpu=gpu, node=node, slot=slot, starts_at=now - timedelta(hours=1))
    for name in ("gpu-001", "gpu-002"):
        page = viewer.get(f"/nodes/{name}/").content.decode()
        table = page[page.index("Boards and slots") :]
        table = table[: table.index("</table>")]
        rows = re.findall(r'title="(GPU-[^"]+)".*?(gpu-00[12])(?:</a>)? g(\d).*?(now|</time></td></tr>)', table)
        assert {(uuid, node, slot, until == "now") for uuid, node, slot, until in rows} == {
            (here.uuid, "gpu-001", "3", False),
            (here.uuid, "gpu-002", "5", True),
            (there.uuid, "gpu-002", "5", False),
            (there.uuid, "gpu-001", "3", True),
        }
    answer = viewer.get(f"/gpus/{here.uuid}/")
    assert answer["Location"].startswith("/nodes/gpu-002/?gpu=5")
