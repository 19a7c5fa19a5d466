"""GET /values and GET /bands: a metric of the whole fleet at a moment, and its percentiles over time."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from ninja import Router

from dashboards.api.access import needs
from dashboards.api.fleet import answer
from dashboards.api.parameters import cluster_named, instant
from dashboards.api.problems import invalid
from dashboards.api.schemas import BandsOut, ValuesOut, answers
from dashboards.api.series import check_known, json_values, metrics_of, span_of, subjects_told, unit_of
from gpufleet.core.times import utc_now
from gpufleet.store.frames import StoreError
from gpufleet.store.instants import read_values
from gpufleet.store.lines import Scope
from gpufleet.store.queries import read_bands

router = Router(tags=["series"])


@router.get(
    "/values", response=answers(ValuesOut, 404, 422), auth=needs("read"),
    summary="The newest value of a metric of every node and GPU, now or at a past moment",
)  # fmt: skip
def values(request: HttpRequest, metric: str, at: str | None = None, cluster: str | None = None) -> HttpResponse:
    where, moment = cluster_named(cluster), instant("at", at) or utc_now()
    found = read_values([metric], Scope.cluster(where.pk or 0), moment.timestamp())[metric]
    if not found:
        check_known(metric, where)
    tell = subjects_told(found)
    rows = [{**tell(row), "labels": row.labels, "at": row.at, "value": row.value} for row in found]
    return answer({"metric": metric, "unit": unit_of(metric), "values": rows})


@router.get(
    "/bands", response=answers(BandsOut, 404, 422), auth=needs("read"),
    summary="Percentiles of metrics (one, or several with commas) over the fleet in each step",
)  # fmt: skip
def bands(
    request: HttpRequest, metric: str, start: str | None = None, end: str | None = None, step: float | None = None,
    cluster: str | None = None,
) -> HttpResponse:  # fmt: skip
    where, metrics = cluster_named(cluster), metrics_of(metric)
    first, last, seconds = span_of(start, end, step, utc_now())
    try:
        found = read_bands(metrics, where.pk or 0, first.timestamp(), last.timestamp(), seconds)
    except StoreError as error:
        raise invalid("step", str(error)) from error
    for name, band in found.items():
        if not band.present.any():
            check_known(name, where)
    rows = [
        {
            "metric": name,
            "unit": unit_of(name),
            **{share: json_values(getattr(band, share)) for share in ("p5", "p50", "p95")},
            "present": band.present,
        }
        for name, band in found.items()
    ]
    return answer({"times": found[metrics[0]].times, "bands": rows})
