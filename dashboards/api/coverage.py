"""GET /coverage: which node sends which field, and which rules are blind."""

from __future__ import annotations

from typing import Any, Literal

from django.http import HttpRequest, HttpResponse
from ninja import Router, Schema

from dashboards.api.access import needs
from dashboards.api.fleet import answer
from dashboards.api.parameters import cluster_named
from dashboards.api.problems import invalid
from dashboards.api.schemas import Instant, answers
from dashboards.coverage_page import chosen
from gpufleet.catalogue.metrics import METRICS
from gpufleet.core.times import rfc3339, utc_now
from gpufleet.detect.rules import load_rules
from gpufleet.pipeline.coverage import STATES, Cell, NodeCoverage, coverage

router = Router(tags=["fleet"])


class FieldOut(Schema):
    name: str
    title: str
    unit: str
    rules: list[str]


class CellOut(Schema):
    state: Literal["present", "partial", "missing", "frozen", "wrong_unit", "quiet", "unknown", "never"]
    since: Instant | None
    detail: str | None


class NodeCoverageOut(Schema):
    node: str
    rack: str | None
    exporters: list[str]
    last_scrape_at: Instant | None
    blind_rules: list[str]
    fields: dict[str, CellOut]


class CoverageOut(Schema):
    as_of: Instant
    fields: list[FieldOut]
    nodes: list[NodeCoverageOut]


@router.get(
    "/coverage", response=answers(CoverageOut, 404, 422), auth=needs("read"),
    summary="Every node with the state of each field, and the rules that are blind without one",
)  # fmt: skip
def field_coverage(
    request: HttpRequest, cluster: str | None = None, state: str = "", rack: str = "", exporter: str = ""
) -> HttpResponse:
    if state and state not in STATES:
        raise invalid("state", f"state is one of {', '.join(STATES)}")
    found = cluster_named(cluster)
    whole = coverage(found if found.pk else None, utc_now())
    nodes = chosen(whole, state=state, rack=rack, exporter=exporter)
    rules = load_rules()
    fields = [
        {
            "name": name,
            "title": METRICS[name].title,
            "unit": METRICS[name].unit,
            "rules": [rule.id for rule in rules if any(name in part for part in rule.inputs)],
        }
        for name in whole.fields
    ]
    return answer(
        {"as_of": rfc3339(whole.as_of), "fields": fields, "nodes": [_node(one, whole.fields) for one in nodes]}
    )


def _node(one: NodeCoverage, fields: tuple[str, ...]) -> dict[str, Any]:
    return {
        "node": one.node,
        "rack": one.rack or None,
        "exporters": list(one.exporters),
        "last_scrape_at": None if one.last_scrape_at is None else rfc3339(one.last_scrape_at),
        "blind_rules": list(one.blind),
        "fields": {name: _cell(one.cell(name)) for name in fields},
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "state": cell.state,
        "since": None if cell.since is None else rfc3339(cell.since),
        "detail": cell.detail or None,
    }
