"""The numbers behind a node's charts, as compact JSON: one time axis, values rounded to what a chart can show."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from dashboards.shell import shell
from dashboards.time_range import read_range
from gpufleet.catalogue.metrics import METRICS, Metric
from gpufleet.fleet.models import Node, Placement
from gpufleet.store.queries import read_bands
from gpufleet.store.queries import read_range as read_values

MOST_METRICS = 12
CHART_DIGITS = 2
BAND_POINTS = 90


@require_safe
def node_series(request: HttpRequest, name: str) -> HttpResponse:
    """`{start, step, panels: [{metric, title, unit, low, high, gpus: [{slot, mean, min, max}], band}]}`, times in ms.

    Values are in the unit that is shown. `null` is a gap and stays one.
    """
    frame = shell(request)["shell"]
    node = Node.objects.filter(cluster=frame.cluster, name=name.replace("\x00", "")).first()
    metrics = [METRICS[metric] for metric in request.GET.get("metrics", "").split(",") if metric in METRICS][
        :MOST_METRICS
    ]
    if node is None or not metrics:
        raise Http404("no such node or metric")
    span = read_range(request.GET, frame.now)
    step = span.step_seconds
    start = span.start.timestamp() // step * step
    end = min(span.end, frame.now).timestamp()
    with_band = request.GET.get("band") == "1"
    slots = dict(Placement.objects.filter(node=node).order_by("starts_at").values_list("gpu_id", "slot"))
    panels = [_panel(metric, node, slots, start, end, step) for metric in metrics]
    body: dict[str, Any] = {"start": start * 1000, "step": step * 1000, "end": span.end.timestamp() * 1000}
    if with_band:
        body["band_step"] = _add_bands(panels, metrics, node, start, end, step)
    body["panels"] = panels
    return HttpResponse(
        orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY),
        content_type="application/json",
        headers={"Cache-Control": "private, no-cache"},
    )


def _add_bands(
    panels: list[dict[str, Any]], metrics: list[Metric], node: Node, start: float, end: float, step: int
) -> float:
    """Gives each panel the fleet's band and returns the band's step in ms: coarser than the lines, a background."""
    wide = step * max(1, math.ceil((end - start) / step / BAND_POINTS))
    bands = read_bands([metric.name for metric in metrics], node.cluster_id, start, end, wide)
    for panel, metric in zip(panels, metrics, strict=True):
        band = bands[metric.name]
        panel["band"] = {name: _shown(getattr(band, name), metric) for name in ("p5", "p50", "p95")}
    return wide * 1000.0


def _panel(metric: Metric, node: Node, slots: dict[int, int], start: float, end: float, step: int) -> dict[str, Any]:
    found = read_values(metric.name, node_ids=[node.pk], start=start, end=end, step=step)
    rows = sorted((row for row in found.rows if row.gpu_id in slots), key=lambda row: slots[row.gpu_id or 0])
    return {
        "metric": metric.name,
        "title": metric.title,
        "unit": metric.display_unit,
        "digits": metric.digits,
        "low": metric.scale_low * metric.display_factor,
        "high": metric.scale_high * metric.display_factor,
        "gpus": [
            {
                "slot": slots[row.gpu_id or 0],
                "mean": _shown(row.mean, metric),
                "min": _shown(row.min, metric),
                "max": _shown(row.max, metric),
            }
            for row in rows
        ],
    }


def _shown(values: Any, metric: Metric) -> Any:
    return np.round(np.asarray(values, dtype=np.float64) * metric.display_factor, metric.digits + CHART_DIGITS)
