"""GET /series: metrics over time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from django.db import connection
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from dashboards.api import schemas
from dashboards.api.access import needs
from dashboards.api.fleet import answer
from dashboards.api.parameters import cluster_named, instant, node_named
from dashboards.api.problems import Problem, invalid
from gpufleet.catalogue.metrics import METRICS
from gpufleet.core.times import utc_now
from gpufleet.fleet.models import Cluster, Gpu, Node
from gpufleet.store.frames import StoreError
from gpufleet.store.instants import Value
from gpufleet.store.models import Series
from gpufleet.store.queries import RangeResult, RangeRow, read_ranges

router = Router(tags=["series"])
MAX_POINTS = 11_000
MAX_METRICS = 50
STEPS = (15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 86400)
POINTS = 360


class Parameters(Schema):
    metric: str
    node: str | None = None
    gpu_uuid: str | None = None
    start: str | None = None
    end: str | None = None
    step: float | None = None
    cluster: str | None = None


@router.get(
    "/series", response=schemas.answers(schemas.SeriesOut, 404, 422), auth=needs("read"),
    summary="Metrics (one, or several with commas) over time, by node or GPU; the mean of each step, null for no value",
)  # fmt: skip
def series(request: HttpRequest, parameters: Query[Parameters]) -> HttpResponse:
    cluster = cluster_named(parameters.cluster)
    metrics = metrics_of(parameters.metric)
    start, end, step = span_of(parameters.start, parameters.end, parameters.step, utc_now())
    gpu_ids, node_ids = _subjects(parameters, cluster)
    try:
        found = read_ranges(metrics, gpu_ids, node_ids, start=start.timestamp(), end=end.timestamp(), step=step)
    except StoreError as error:
        raise invalid("step", str(error)) from error
    for metric in metrics:
        if not found[metric].rows:
            check_known(metric, cluster)
    units = {unit_of(metric) for metric in metrics}
    return answer(
        {
            "metric": parameters.metric,
            "unit": units.pop() if len(units) == 1 else "",
            "times": found[metrics[0]].times,
            "series": _rows(found),
        }
    )


def metrics_of(text: str) -> list[str]:
    """The metrics of a parameter: one, or several with commas."""
    metrics = list(dict.fromkeys(text.split(",")))
    if not 0 < len(metrics) <= MAX_METRICS:
        raise invalid("metric", f"at most {MAX_METRICS} metrics at once")
    return metrics


def span_of(
    start_text: str | None, end_text: str | None, wanted_step: float | None, now: datetime
) -> tuple[datetime, datetime, float]:
    end = instant("end", end_text) or now
    start = instant("start", start_text) or end - timedelta(hours=1)
    seconds = (end - start).total_seconds()
    if seconds <= 0:
        raise invalid("start", "start has to lie before end")
    step = wanted_step if wanted_step is not None else _default_step(seconds)
    if not math.isfinite(step) or step < 1:
        raise invalid("step", "step is a number of seconds, 1 or more")
    if seconds / step > MAX_POINTS:
        longer = math.ceil(seconds / MAX_POINTS)
        raise invalid("step", f"that is more than {MAX_POINTS:,} points a series: use a step of {longer} s or more")
    return start, end, step


def _default_step(seconds: float) -> float:
    return float(next((step for step in STEPS if seconds / step <= POINTS), STEPS[-1]))


def _subjects(parameters: Parameters, cluster: Cluster) -> tuple[list[int] | None, list[int] | None]:
    """(GPU keys, node keys) that the caller asked for; without either, the cluster's nodes."""
    if parameters.gpu_uuid:
        gpu = Gpu.objects.filter(cluster_id=cluster.pk, uuid=parameters.gpu_uuid).first()
        if gpu is None:
            raise Problem(
                404, f"There is no GPU {parameters.gpu_uuid!r} in cluster {cluster.name!r}.", field="gpu_uuid"
            )
        return [gpu.pk], None
    if parameters.node:
        return None, [node_named(parameters.node, cluster).pk]
    return None, list(Node.objects.filter(cluster_id=cluster.pk).values_list("pk", flat=True))


def check_known(metric: str, cluster: Cluster) -> None:
    if metric not in METRICS and not Series.objects.filter(target__cluster_id=cluster.pk, metric=metric).exists():
        raise invalid("metric", f"there is no metric {metric!r}; GET /api/v1/fleet lists those of the GPUs")


def unit_of(metric: str) -> str:
    known = METRICS.get(metric)
    if known is not None:
        return known.unit
    return Series.objects.filter(metric=metric).values_list("unit", flat=True).first() or ""


def _rows(found: dict[str, RangeResult]) -> list[dict[str, Any]]:
    told = subjects_told([row for result in found.values() for row in result.rows])
    return [
        {**told(row), "metric": metric, "labels": labels, "values": json_values(row.mean)}
        for metric, result in found.items()
        for row, labels in zip(result.rows, result.labels, strict=True)
    ]


_SUBJECTS = """
SELECT gpu.id, gpu.uuid, (SELECT slot FROM fleet_placement WHERE gpu_id = gpu.id ORDER BY starts_at DESC LIMIT 1)
FROM fleet_gpu gpu WHERE gpu.id = ANY(%s)
"""


def subjects_told(rows: Sequence[RangeRow | Value]) -> Callable[[RangeRow | Value], dict[str, Any]]:
    """What tells a row's subject: node, UUID and slot; two queries for all rows together."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, name FROM fleet_node WHERE id = ANY(%s)", [list({row.node_id for row in rows})])
        nodes = dict(cursor.fetchall())
        cursor.execute(_SUBJECTS, [list({row.gpu_id for row in rows if row.gpu_id is not None})])
        gpus = {gpu_id: (uuid, slot) for gpu_id, uuid, slot in cursor.fetchall()}

    def tell(row: RangeRow | Value) -> dict[str, Any]:
        uuid, slot = gpus.get(row.gpu_id, (None, None))
        return {"node": nodes.get(row.node_id, ""), "gpu_uuid": uuid, "slot": slot}

    return tell


def json_values(values: Any) -> Any:
    """Seven significant digits: rounding is worth more bytes than any encoding. NaN becomes null in orjson."""
    with np.errstate(divide="ignore", invalid="ignore"):
        digits = 6 - np.floor(np.log10(np.abs(values)))
        factor = 10.0 ** np.where(np.isfinite(digits), digits, 0)
        return np.where(np.isfinite(digits), np.rint(values * factor) / factor, values)
