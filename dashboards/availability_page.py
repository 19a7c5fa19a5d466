"""`/availability/<YYYY-MM>/`: the month against its target, and the intervals behind each number."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db.models import Max, Min, Q
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboards.availability_figures import MONTHS, SORTS, budget, sorted_rows, strip
from dashboards.calendar_map import calendar_map
from dashboards.shell import Shell, shell
from gpufleet.availability.models import State, StateInterval
from gpufleet.availability.month import (
    Month,
    MonthError,
    by_node_and_day,
    current_month,
    lost_by_cause,
    parse_month,
    ratios,
)
from gpufleet.availability.queries import SCOPES, read_spans, rows_of
from gpufleet.availability.tables import write_csv
from gpufleet.fleet.models import Cluster

MOST_INTERVALS = 500
MOST_CAUSES = 10
LOOKUPS = (("node", "node__name"), ("rack", "node__rack__name"), ("gpu", "gpu__uuid"), ("state", "state"))
BEHIND = ("node", "rack", "gpu", "state", "day")


@require_safe
def availability_now(request: HttpRequest) -> HttpResponse:
    """To the month that it is now in the reader's zone."""
    now = shell(request)["shell"].now
    try:
        zone = parse_month("2000-01", request.GET.get("tz") or "UTC").zone
    except MonthError as error:
        raise Http404(str(error)) from error
    query = request.GET.urlencode()
    return HttpResponseRedirect(f"/availability/{current_month(now, zone).text}/" + (f"?{query}" if query else ""))


@require_safe
def availability_month(request: HttpRequest, month: str) -> HttpResponse:
    """The month; with `node`, `rack`, `gpu`, `state` or `day` the intervals behind it; with `csv=SCOPE` its table."""
    frame: Shell = shell(request)["shell"]
    picked = request.GET.get("pick") or ""
    try:
        found = parse_month(picked or month, request.GET.get("tz") or "UTC")
    except MonthError as error:
        raise Http404(str(error)) from error
    if picked:
        query = request.GET.copy()
        del query["pick"]
        return HttpResponseRedirect(f"/availability/{found.text}/?{query.urlencode()}")
    if request.GET.get("csv"):
        return _csv(frame, found, request.GET["csv"])
    base = {name: request.GET[name] for name in ("tz", "cluster") if request.GET.get(name)}
    context = {
        "section": "availability-now", "month": found, "base": base, "tz": found.zone.key, "moment": frame.now,
        "before": found.moved(-1).text, "after": found.moved(1).text if found.end <= frame.now else "",
    }  # fmt: skip
    if any(request.GET.get(name) for name in BEHIND):
        return render(request, "availability_intervals.html", {**context, **_intervals(request, frame, found)})
    return render(request, "availability.html", {**context, **_figures(request, frame, found, base)})


def _csv(frame: Shell, month: Month, scope: str) -> HttpResponse:
    if scope not in SCOPES or frame.cluster is None:
        raise Http404("There is no such table.")
    end = min(month.end, frame.now)
    spans = read_spans(frame.cluster, month.start, end)
    rows = rows_of(frame.cluster, spans, month.start, end, scope)
    names = list(rows[0]) if rows else ["subject"]
    text = write_csv(names, [[row[name] for name in names] for row in rows])
    name = f"availability-{month.text}-{scope}.csv"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)


def _figures(request: HttpRequest, frame: Shell, month: Month, base: dict[str, str]) -> dict[str, Any]:
    cluster, now = frame.cluster, frame.now
    end = min(month.end, now)
    spans = read_spans(cluster, month.start, end) if cluster else []
    if cluster is None or not spans:
        return {"known": False, "in_future": month.start > now, "objective": _objective()}
    rows = {scope: rows_of(cluster, spans, month.start, end, scope) for scope in ("fleet", "rack", "node")}
    sort = request.GET.get("sort", "") if request.GET.get("sort") in SORTS else "lost"
    causes = lost_by_cause(cluster, spans)
    with_record = {span.node_id for span in spans}
    nodes = [
        (pk, name, rack or "")
        for pk, name, rack in cluster.nodes.values_list("pk", "name", "rack__name")
        if pk in with_record
    ]
    months = [month.moved(-back) for back in range(MONTHS - 1, -1, -1)]
    return {
        "known": True,
        "objective": _objective(),
        "fleet": rows["fleet"][0],
        "budget": budget(rows["fleet"][0], _objective()),
        "causes": causes[:MOST_CAUSES],
        "more_causes": causes[MOST_CAUSES:],
        "most_lost": max((cause.seconds for cause in causes), default=1),
        "calendar": calendar_map(nodes, by_node_and_day(spans, month.edges), month, base),
        "strip": strip(months, ratios(cluster, months, now), _objective(), month.zone.key),
        "tables": [(scope, sorted_rows(rows[scope], sort)) for scope in ("rack", "node")],
        "sort": sort,
        "sorts": list(SORTS),
        "reach": _reach(cluster),
        "until": end,
        "is_over": month.end <= now,
    }


def _objective() -> Decimal:
    return Decimal(settings.ENV["GPUFLEET_SLO_PERCENT"])


def _reach(cluster: Cluster) -> dict[str, datetime | None]:
    """Since when and up to when the ledger was told of anything."""
    since = StateInterval.objects.filter(cluster=cluster).exclude(state=State.UNKNOWN).aggregate(since=Min("starts_at"))
    told = cluster.nodes.aggregate(told_until=Max("ledger_head__told_until"))
    return {**since, **told}


def _intervals(request: HttpRequest, frame: Shell, month: Month) -> dict[str, Any]:
    """The stored intervals that touch the month, or one of its days, newest first."""
    start, end = month.start, min(month.end, frame.now)
    day = request.GET.get("day", "")
    if day:
        if not (day.isascii() and day.isdigit() and 1 <= int(day[:3]) < len(month.edges)):
            raise Http404("The month has no such day.")
        start, end = (datetime.fromtimestamp(at, tz=UTC) for at in month.edges[int(day) - 1 : int(day) + 1])
    wanted = Q(ends_at=None) | Q(ends_at__gt=start)
    words = []
    for name, lookup in (
        ("node", "node__name"),
        ("rack", "node__rack__name"),
        ("gpu", "gpu__uuid"),
        ("state", "state"),
    ):
        text = request.GET.get(name, "")[:255].replace("\x00", "")
        if text:
            wanted &= Q(**{lookup: text}) if (name, text) != ("rack", "no rack") else Q(node__rack=None)
            words.append(text)
    rows = StateInterval.objects.filter(wanted, cluster=frame.cluster, starts_at__lt=end)
    rows = rows.select_related("node", "gpu").order_by("-starts_at", "-id")
    lines = list(rows[: MOST_INTERVALS + 1])
    return {
        "lines": lines[:MOST_INTERVALS],
        "more": len(lines) > MOST_INTERVALS,
        "most": MOST_INTERVALS,
        "words": ", ".join(words) or "the fleet",
        "day": f"{month.text}-{int(day):02}" if day else "",
        "states": State.values,
        "chosen": {name: request.GET.get(name, "") for name in BEHIND},
    }
