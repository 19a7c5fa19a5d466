"""One node: where it stands, the state of its GPUs over time, and their metrics on the same axis."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from dashboards.addresses import node_address
from dashboards.incident_list import line
from dashboards.node_events import read_events
from dashboards.ribbon import read_ribbon
from dashboards.shell import shell
from dashboards.time_range import QUICK_RANGES, read_range
from dashboards.wall import with_unit
from gpufleet.catalogue.metrics import METRICS
from gpufleet.fleet.models import Cluster, Node, Placement
from gpufleet.incidents import queries
from gpufleet.pipeline.live import shown
from gpufleet.pipeline.snapshot import GpuView, NodeView, fleet_snapshot, natural

PANELS = (
    "gpu_temperature_celsius",
    "gpu_memory_temperature_celsius",
    "gpu_power_watts",
    "gpu_sm_clock_hertz",
    "gpu_utilization_ratio",
    "gpu_tensor_active_ratio",
)
COLUMNS = ("gpu_utilization_ratio", "gpu_temperature_celsius", "gpu_memory_temperature_celsius", "gpu_power_watts",
           "gpu_memory_used_bytes", "gpu_sm_clock_hertz")  # fmt: skip
DEFAULT_RANGE = ("now-1h", "now")
INCIDENTS = 20
MOVES = 50
MOST_PANELS = 12


@require_safe
def node(request: HttpRequest, name: str) -> HttpResponse:
    frame = shell(request)["shell"]
    found = _node(frame.cluster, name)
    span = read_range(request.GET, frame.now, DEFAULT_RANGE)
    view, neighbours = _view(found, frame)
    placements = list(Placement.objects.filter(node=found, ends_at=None).select_related("gpu").order_by("slot"))
    incidents = queries.of_node(found, limit=INCIDENTS)
    context: dict[str, Any] = {
        "section": "fleet",
        "node": found,
        "view": view,
        "neighbours": neighbours,
        "range": span,
        "quick_ranges": QUICK_RANGES,
        "kept_query": [(key, value) for key, value in request.GET.items() if key not in ("from", "to")],
        "shows_live": True,
        "moment": frame.now,
        "ribbon": read_ribbon(found, placements, span, frame.now),
        "listed": sum(any(value is not None for value in gpu.metrics.values()) for gpu in view.gpus),
        "columns": [METRICS[column] for column in COLUMNS],
        "gpus": [(gpu, [_cell(gpu, column) for column in COLUMNS]) for gpu in view.gpus],
        "models": sorted({gpu.model for gpu in view.gpus if gpu.model}),
        "drivers": sorted({placement.gpu.driver_version for placement in placements if placement.gpu.driver_version}),
        "panels": _panels(request),
        "all_metrics": [metric for metric in METRICS.values() if metric.subject == "gpu"],
        "open_incidents": [line(incident) for incident in incidents if incident.resolved_at is None],
        "past_incidents": [line(incident) for incident in incidents if incident.resolved_at is not None],
        "moves": _moves(found),
        "events": read_events(found, {placement.gpu_id: placement.slot for placement in placements}),
        "targets": found.targets.filter(removed_at=None).select_related("status"),
        "focus": _focus(request, view),
    }
    return render(request, "node.html", context)


@require_safe
def gpu(request: HttpRequest, uuid: str) -> HttpResponse:
    """A GPU is shown on the page of the node it sits in, with itself in focus."""
    frame = shell(request)["shell"]
    if "\x00" in uuid:
        raise Http404("There is no such GPU.")
    place = (
        Placement.objects.filter(gpu__cluster=frame.cluster, gpu__uuid=uuid)
        .select_related("node")
        .order_by("-starts_at")
        .first()
    )
    if place is None:
        raise Http404("There is no such GPU.")
    query = request.GET.copy()
    query["gpu"] = str(place.slot)
    return redirect(f"{node_address(place.node.name)}?{query.urlencode()}")


def _node(cluster: Cluster | None, name: str) -> Node:
    found = (
        Node.objects.filter(cluster=cluster, name=name).select_related("cluster", "rack", "switch").first()
        if cluster and "\x00" not in name
        else None
    )
    if found is None:
        raise Http404("There is no such node.")
    return found


def _moves(found: Node) -> list[Placement]:
    """Who sat in the slots of this node, and where else these GPUs sat; newest first, empty when nothing ever moved."""
    ever = Placement.objects.filter(node=found).values("gpu_id")
    rows = Placement.objects.filter(gpu_id__in=ever).select_related("gpu", "node")
    newest = list(rows.order_by("-starts_at", "node__name", "slot", "id")[:MOVES])
    moved = {place.gpu_id for place in newest if place.ends_at is not None}
    slots = {(place.node_id, place.slot) for place in newest if place.ends_at is not None}
    return [place for place in newest if place.gpu_id in moved or (place.node_id, place.slot) in slots]


def _view(found: Node, frame: Any) -> tuple[NodeView, dict[str, str]]:
    """The node as the fleet map shows it, and the names before and after it in the map's order."""
    snapshot = fleet_snapshot(found.cluster, frame.now, metrics=COLUMNS)
    views = sorted(snapshot.nodes, key=lambda view: natural(view.name))
    at = next((place for place, view in enumerate(views) if view.id == found.pk), None)
    if at is None:
        raise Http404("This node has been retired.")
    neighbours = {
        "previous": views[at - 1].name if at else "",
        "next": views[at + 1].name if at + 1 < len(views) else "",
    }
    return views[at], neighbours


def _cell(gpu_view: GpuView, column: str) -> str:
    metric = METRICS[column]
    value = shown(gpu_view.metrics.get(column), metric)
    return "–" if value is None else with_unit(float(value), metric)


def _panels(request: HttpRequest) -> list[str]:
    """The metrics to draw: those of the address that exist, at most twelve, else the default six."""
    asked = [name for name in request.GET.get("panels", "").split(",") if name in METRICS]
    return list(dict.fromkeys(asked))[:MOST_PANELS] or list(PANELS)


def _focus(request: HttpRequest, view: NodeView) -> int | None:
    """The slot in focus: the one asked for, else the first that is not healthy."""
    slots = [gpu.slot for gpu in view.gpus]
    asked = request.GET.get("gpu", "")
    if asked.isdecimal() and int(asked) in slots:
        return int(asked)
    sick = [gpu.slot for gpu in view.gpus if gpu.state in ("failed", "degraded")]
    return next(iter(sick or slots), None)
