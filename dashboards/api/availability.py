"""GET /availability: up, down, planned and unknown time of a month or a range."""

from __future__ import annotations

import re
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Schema

from dashboards.api import schemas
from dashboards.api.access import needs
from dashboards.api.fleet import answer
from dashboards.api.parameters import cluster_named, instant
from dashboards.api.problems import invalid
from gpufleet.availability.queries import SCOPES, availability
from gpufleet.core.times import utc_now

router = Router(tags=["availability"])
MONTH = re.compile(r"^(\d{4})-(0[1-9]|1[0-2])$")


class Parameters(Schema):
    month: str | None = None
    start: str | None = None
    end: str | None = None
    scope: str = "fleet"
    tz: str = "UTC"
    cluster: str | None = None


@router.get(
    "/availability", response=schemas.answers(schemas.AvailabilityOut, 404, 422), auth=needs("read"),
    summary="Availability of the fleet, its racks, nodes or GPUs over a month or a range",
)  # fmt: skip
def availability_report(request: HttpRequest, parameters: Query[Parameters]) -> HttpResponse:
    if parameters.scope not in SCOPES:
        raise invalid("scope", f"{parameters.scope!r} is none of {', '.join(SCOPES)}")
    now = utc_now()
    start, end = _span(parameters, now)
    rows = availability(cluster_named(parameters.cluster), start, end, parameters.scope, now=now)
    month = parameters.month or (None if parameters.start else start.astimezone(_zone(parameters.tz)).strftime("%Y-%m"))
    return answer({"month": month, "tz": parameters.tz, "scope": parameters.scope, "rows": rows})


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise invalid("tz", f"{name!r} is no time zone name, for example Europe/Berlin") from error


def _span(parameters: Parameters, now: datetime) -> tuple[datetime, datetime]:
    """The range asked for; without one the month, without that the month of `now` in the zone."""
    zone = _zone(parameters.tz)
    start, end = instant("start", parameters.start), instant("end", parameters.end)
    if start or end:
        if parameters.month:
            raise invalid("month", "give either month or start and end")
        if not (start and end) or start >= end:
            raise invalid("start", "start and end go together, and start lies before end")
        return start, end
    text = parameters.month or now.astimezone(zone).strftime("%Y-%m")
    match = MONTH.match(text)
    if not match:
        raise invalid("month", f"{text!r} is no month, for example 2026-03")
    year, month = int(match[1]), int(match[2])
    if not 1970 <= year <= 9998:
        raise invalid("month", "the year is from 1970 to 9998")
    return datetime(year, month, 1, tzinfo=zone), datetime(year + month // 12, month % 12 + 1, 1, tzinfo=zone)
