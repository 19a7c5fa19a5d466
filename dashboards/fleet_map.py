"""The first screen: every GPU of the fleet, live or at a past minute, with the open incidents beside it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import parse_etags
from django.views.decorators.http import require_safe

from dashboards import wall
from dashboards.incident_panel import read_panel
from dashboards.month_box import read_month_box
from dashboards.scrubber import read_scrubber
from dashboards.shell import Shell, page_address, shell
from dashboards.sparkline import read_sparkline
from dashboards.time_range import TimeExpressionError, read_instant, zone
from gpufleet.accounts.roles import can
from gpufleet.catalogue.metrics import METRICS
from gpufleet.fleet.models import Cluster
from gpufleet.pipeline.health import collection_health
from gpufleet.pipeline.live import FIRST_METRICS, LIVE_METRICS, newest_message, picture, shown
from gpufleet.pipeline.snapshot import FRESH_INTERVALS, STATES, FleetSnapshot, GpuView, NodeView, fleet_snapshot
from gpufleet.store.queries import read_last_before


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address asks for. `problem`: words about what could not be used; it is then left out."""

    metric: str
    view: str
    group: str
    states: tuple[str, ...]
    at: datetime | None
    problem: str


def read_asked(request: HttpRequest, now: datetime) -> Asked:
    at, problem = None, ""
    if request.GET.get("at"):
        try:
            at = read_instant(request.GET["at"], now, zone(request.GET.get("tz", "")))
        except TimeExpressionError as error:
            problem = f"{error}. The live fleet is shown."
    if at is not None and at > now:
        at, problem = None, "That moment has not come yet. The live fleet is shown."
    view, group = request.GET.get("view", ""), request.GET.get("group", "")
    states = tuple(state for state in request.GET.get("state", "").split(",") if state in STATES)
    return Asked(
        wall.metric_or_default(request.GET.get("metric", "")).name,
        view if view in wall.VIEWS else wall.VIEWS[0],
        group if group in wall.GROUPS else wall.GROUPS[0],
        states,
        at,
        problem,
    )


@require_safe
def fleet(request: HttpRequest) -> HttpResponse:
    """The page. Reads without scripts."""
    frame = shell(request)["shell"]
    asked = read_asked(request, frame.now)
    if frame.cluster is None:
        return render(request, "fleet_empty.html", {"section": "fleet"})
    snapshot = _snapshot(frame.cluster, frame.now, asked)
    if not snapshot.nodes and asked.at is None:
        return render(request, "fleet_empty.html", {"section": "fleet"})
    return render(request, "fleet.html", _context(request, frame, frame.cluster, snapshot, asked))


def _snapshot(cluster: Cluster, now: datetime, asked: Asked) -> FleetSnapshot:
    metrics = tuple(dict.fromkeys((asked.metric, wall.POWER)))
    return fleet_snapshot(cluster, now, asked.at, metrics)


def _context(
    request: HttpRequest, frame: Shell, cluster: Cluster, snapshot: FleetSnapshot, asked: Asked
) -> dict[str, Any]:
    metric = METRICS[asked.metric]
    values = wall.values_of(snapshot, metric)
    counts = snapshot.counts
    groups = wall.build_wall(snapshot, metric, asked.group)
    return {
        "section": "fleet",
        "asked": asked,
        "past": asked.at is not None,
        "shows_live": True,
        "snapshot": snapshot,
        "moment": snapshot.as_of,
        "counts": counts,
        "node_total": sum(counts["nodes"].values()) - counts["nodes"]["out_of_service"],
        "gpu_total": sum(counts["gpus"].values()) - counts["gpus"]["out_of_service"],
        "metric": metric,
        "first_metrics": [METRICS[name] for name in FIRST_METRICS],
        "more_metrics": [METRICS[name] for name in LIVE_METRICS if name not in FIRST_METRICS],
        "groups": groups,
        "matrix_blocks": wall.matrix_blocks(groups) if asked.view == "matrix" else [],
        "group_names": wall.GROUPS,
        "slots": range(1 + max((gpu.slot for gpu in snapshot.gpus), default=-1)),
        "bars": wall.histogram(values, metric),
        "scale_ends": wall.scale_ends(metric),
        "spread": wall.spread(values, metric),
        "page_data": wall.page_data(snapshot, cluster.name),
        "panel": read_panel(cluster, asked.at),
        "may_acknowledge": asked.at is None and can(request.user.role, "incident.act"),  # type: ignore[union-attr]
        "scrubber": read_scrubber(cluster, frame.now, asked.at),
        "month": read_month_box(cluster, snapshot.as_of),
        "health": frame.health if asked.at is None else collection_health(cluster, asked.at),
        "targets_url": page_address("targets"),
        "targets_down": frame.health.targets - frame.health.targets_up,
    }


@require_safe
def snapshot(request: HttpRequest) -> HttpResponse:
    """The newest live message of a metric, for pages that poll; 304 when the reader has it already."""
    frame = shell(request)["shell"]
    if frame.cluster is None:
        raise Http404("no such cluster")
    metric = wall.metric_or_default(request.GET.get("metric", ""))
    body = newest_message(frame.cluster.name, metric.name) or _fresh_message(frame.cluster, frame.now, metric.name)
    tag = f'"{hashlib.sha256(body).hexdigest()[:24]}"'
    if tag in parse_etags(request.headers.get("If-None-Match", "")):
        return HttpResponse(status=304, headers={"ETag": tag, "Cache-Control": "private, no-cache"})
    return HttpResponse(
        body, content_type="application/json", headers={"ETag": tag, "Cache-Control": "private, no-cache"}
    )


def _fresh_message(cluster: Cluster, now: datetime, metric: str) -> bytes:
    """No cycle has spoken lately: the state as the database has it. Its sequence number is 0."""
    health = collection_health(cluster, now)
    whole = picture(fleet_snapshot(cluster, now, metrics=(metric,)), health, cluster.name, 0)
    return whole.message(METRICS[metric])


@require_safe
def incidents(request: HttpRequest) -> HttpResponse:
    """The panel beside the wall, asked for again whenever an incident changes."""
    frame = shell(request)["shell"]
    if frame.cluster is None:
        raise Http404("no such cluster")
    context = {
        "panel": read_panel(frame.cluster),
        "fragment": True,
        "moment": frame.now,
        "may_acknowledge": can(request.user.role, "incident.act"),  # type: ignore[union-attr]
    }
    return render(request, "partials/incident_panel.html", context)


@require_safe
def gpu_card(request: HttpRequest, node: str, slot: int) -> HttpResponse:
    """The card of one GPU: value, state and reason, age, the last hour, UUID and job."""
    frame = shell(request)["shell"]
    if frame.cluster is None:
        raise Http404("no such cluster")
    asked = read_asked(request, frame.now)
    found = fleet_snapshot(frame.cluster, frame.now, asked.at, (asked.metric,))
    view, gpu = _find_gpu(found, node, slot)
    metric = METRICS[asked.metric]
    age = gpu.data_age_seconds
    if gpu.metrics.get(metric.name) is None:  # no longer in what its exporter sends: when was it last?
        last = read_last_before(metric.name, [gpu.id], found.as_of.timestamp()).get(gpu.id)
        age = found.as_of.timestamp() - last[0] if last else age
    value = shown(gpu.metrics.get(metric.name), metric)
    context = {
        "node": view,
        "gpu": gpu,
        "metric": metric,
        "value": "no value" if value is None else wall.with_unit(float(value), metric),
        "age_seconds": age,
        "old": age is None or age > FRESH_INTERVALS * found.interval_seconds,
        "line": read_sparkline(metric, gpu.id, found.as_of),
        "moment": found.as_of,
    }
    return render(request, "partials/gpu_card.html", context)


def _find_gpu(snapshot: FleetSnapshot, node: str, slot: int) -> tuple[NodeView, GpuView]:
    for view in snapshot.nodes:
        if view.name == node:
            for gpu in view.gpus:
                if gpu.slot == slot:
                    return view, gpu
    raise Http404("no such GPU")
