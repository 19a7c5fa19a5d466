"""Targets and rules as pages: what is scraped and how it went, and what opens an incident and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboards.shell import shell
from gpufleet.detect.rules import load_rules
from gpufleet.fleet.models import Target
from gpufleet.scrape.models import TargetStatus

SORTS = {
    "node": ("node__name", "url"),
    "duration": ("-status__duration_seconds", "node__name"),
    "samples": ("-status__samples_accepted", "node__name"),
    "rejected": ("-status__samples_rejected", "node__name"),
    "age": ("status__last_scrape_at", "node__name"),
}
SHOWS = ("all", "down", "up")


@dataclass(frozen=True, slots=True)
class Line:
    """A target and its newest scrape; None when it was never scraped."""

    target: Target
    status: TargetStatus | None


@require_safe
def targets(request: HttpRequest) -> HttpResponse:
    """Failing targets first, unless the reader sorts otherwise."""
    frame = shell(request)["shell"]
    sort = request.GET.get("sort", "")
    show = request.GET.get("show", "all") if request.GET.get("show") in SHOWS else "all"
    words = request.GET.get("q", "").strip()[:255]
    found = Target.objects.filter(cluster=frame.cluster, removed_at=None).select_related("node", "status")
    lines = [
        Line(target, getattr(target, "status", None)) for target in found.order_by(*SORTS.get(sort, SORTS["node"]))
    ]
    reasons = Counter(line.status.reason for line in lines if line.status is not None and line.status.reason)
    shown = [line for line in lines if _fits(line, show, words)]
    if sort not in SORTS:
        shown.sort(key=lambda line: line.status is not None and not line.status.reason)
    context = {
        "section": "targets",
        "lines": shown,
        "total": len(lines),
        "up": sum(line.status is not None and not line.status.reason for line in lines),
        "reasons": reasons.most_common(),
        "sorts": list(SORTS),
        "sort": sort,
        "shows": SHOWS,
        "show": show,
        "moment": frame.now,
    }
    return render(request, "targets.html", context)


def _fits(line: Line, show: str, words: str) -> bool:
    up = line.status is not None and not line.status.reason
    if (show == "down" and up) or (show == "up" and not up):
        return False
    reason = line.status.reason if line.status is not None else ""
    return not words or words in line.target.node.name or words in line.target.url or words in reason


@require_safe
def rules(request: HttpRequest) -> HttpResponse:
    """Every rule with its reason, its source, how long it must hold and what clears it."""
    return render(request, "rules.html", {"section": "rules", "rules": load_rules()})
