"""GET /trends: failures per 1,000 node-days."""

from __future__ import annotations

from datetime import timedelta

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from dashboards.api import schemas
from dashboards.api.access import needs
from dashboards.api.fleet import answer
from dashboards.api.parameters import cluster_named, instant
from dashboards.api.problems import invalid
from gpufleet.availability.trends import BUCKETS, SUBJECTS, TooManyBuckets, trends
from gpufleet.core.times import rfc3339, utc_now

router = Router(tags=["availability"])
DEFAULT_SPAN = timedelta(days=90)


class Parameters(Schema):
    start: str | None = None
    end: str | None = None
    bucket: str = "week"
    by: str = "kind"
    cluster: str | None = None


@router.get(
    "/trends", response=schemas.answers(schemas.TrendsOut, 404, 422), auth=needs("read"),
    summary="Failures per 1,000 node-days by kind, node, rack or model, with exact 95 % Poisson intervals",
)  # fmt: skip
def trend_buckets(request: HttpRequest, parameters: Query[Parameters]) -> HttpResponse:
    for field, value, allowed in (("bucket", parameters.bucket, BUCKETS), ("by", parameters.by, SUBJECTS)):
        if value not in allowed:
            raise invalid(field, f"{value!r} is none of {', '.join(allowed)}")
    now = utc_now()
    end = instant("end", parameters.end) or now
    try:
        start = instant("start", parameters.start) or end - DEFAULT_SPAN
        if start >= end:
            raise invalid("start", "start has to lie before end")
        found = trends(cluster_named(parameters.cluster), start, end, parameters.bucket, parameters.by, now=now)
    except (TooManyBuckets, OverflowError) as error:
        raise invalid("start", str(error)) from error
    for bucket in found:
        bucket["starts_at"], bucket["ends_at"] = rfc3339(bucket["starts_at"]), rfc3339(bucket["ends_at"])
    return answer({"bucket": parameters.bucket, "by": parameters.by, "buckets": found})
