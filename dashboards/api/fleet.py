"""GET /fleet and GET /targets: what there is and how it stands."""

from __future__ import annotations

from typing import Any

import orjson
from django.http import HttpRequest, HttpResponse
from ninja import Router

from dashboards.api.access import needs
from dashboards.api.parameters import cluster_named, instant
from dashboards.api.schemas import FleetOut, TargetsOut, answers
from gpufleet.core.times import rfc3339, utc_now
from gpufleet.fleet.models import Target
from gpufleet.fleet.shown import shown_url
from gpufleet.pipeline.snapshot import FleetSnapshot, NodeView, fleet_snapshot

router = Router(tags=["fleet"])
OUTCOME = (
    "up",
    "reason",
    "detail",
    "last_scrape_at",
    "duration_seconds",
    "bytes",
    "samples_accepted",
    "samples_rejected",
    "samples_missing",
    "samples_impossible",
    "first_bad_line",
)


@router.get(
    "/fleet",
    response=answers(FleetOut, 404, 422),
    summary="Every node and GPU with state, values and age, now or at a past moment",
    auth=needs("read"),
)
def fleet(request: HttpRequest, at: str | None = None, cluster: str | None = None) -> HttpResponse:
    moment, now = instant("at", at), utc_now()
    return answer(fleet_json(fleet_snapshot(cluster_named(cluster), now, at=moment)))


def fleet_json(snapshot: FleetSnapshot) -> dict[str, Any]:
    return {
        "as_of": rfc3339(snapshot.as_of),
        "counts": snapshot.counts,
        "nodes": [_node(node) for node in snapshot.nodes],
    }


def _node(node: NodeView) -> dict[str, Any]:
    return {
        "name": node.name,
        "cluster": node.cluster,
        "rack": node.rack,
        "switch": node.switch,
        "state": node.state,
        "reasons": node.reasons,
        "data_age_seconds": node.data_age_seconds,
        "gpus": [
            {
                "uuid": gpu.uuid,
                "slot": gpu.slot,
                "model": gpu.model or None,
                "state": gpu.state,
                "reasons": gpu.reasons,
                "data_age_seconds": gpu.data_age_seconds,
                "job": gpu.job or None,
                "metrics": gpu.metrics,
            }
            for gpu in node.gpus
        ],
    }


@router.get(
    "/targets",
    response=answers(TargetsOut, 404, 422),
    summary="Every target with the outcome of its newest scrape",
    auth=needs("read"),
)
def targets(request: HttpRequest, cluster: str | None = None) -> HttpResponse:
    found = cluster_named(cluster)
    rows = (
        Target.objects.filter(cluster_id=found.pk, removed_at=None)
        .select_related("node", "status")
        .order_by("node__name", "url")
    )
    return answer({"targets": [_target(row) for row in rows]})


def _target(target: Target) -> dict[str, Any]:
    status = getattr(target, "status", None)
    outcome: dict[str, Any] = dict.fromkeys(OUTCOME)
    if status is not None:
        outcome = {
            "up": not status.reason,
            "reason": status.reason or None,
            "detail": status.detail or None,
            "last_scrape_at": rfc3339(status.last_scrape_at),
            "duration_seconds": status.duration_seconds,
            "bytes": status.bytes,
            "samples_accepted": status.samples_accepted,
            "samples_rejected": status.samples_rejected,
            "samples_missing": status.samples_missing,
            "samples_impossible": status.samples_impossible,
            "first_bad_line": status.first_bad_line,
        }
    return {
        "url": shown_url(target.url),
        "labels": target.labels,
        "node": target.node.name,
        "job": target.job or None,
        **outcome,
    }


def answer(body: object, status: int = 200) -> HttpResponse:
    """The answer as JSON, written once: no second pass through the schema for thousands of rows."""
    text = orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY)
    return HttpResponse(text, status=status, content_type="application/json")
