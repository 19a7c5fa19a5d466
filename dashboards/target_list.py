"""The page of targets: what is scraped, how it went, and what is wrong. Filters, order and page are in the address."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from django.core.cache import cache
from django.db.models import Case, Count, F, IntegerField, Q, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboards.shell import shell
from gpufleet.accounts.roles import can
from gpufleet.core.bus import BROKER_ERRORS
from gpufleet.fleet.models import Cluster, Target
from gpufleet.fleet.shown import shown_url
from gpufleet.pipeline.retrying import Try, tries
from gpufleet.pipeline.sources import statuses
from gpufleet.scrape.models import TargetStatus
from gpufleet.store.queries import read_health

PAGE_SIZE = 100
SHOWS = ("all", "down", "up", "bad lines", "never scraped")
# What a person may sort by, with the columns behind it. The ids at the end keep pages apart.
SORTS: dict[str, tuple[Any, ...]] = {
    "node": ("node__name", "id"),
    "duration": (F("status__duration_seconds").desc(nulls_last=True), "node__name", "id"),
    "samples": (F("status__samples_accepted").desc(nulls_last=True), "node__name", "id"),
    "rejected": (F("status__samples_rejected").desc(nulls_last=True), "node__name", "id"),
    "missing": (F("status__samples_missing").desc(nulls_last=True), "node__name", "id"),
    "age": (F("status__last_scrape_at").asc(nulls_first=True), "node__name", "id"),
}
FAILING_FIRST = Case(
    When(Q(status=None), then=Value(1)), When(status__reason="", then=Value(2)), default=Value(0),
    output_field=IntegerField(),
)  # fmt: skip
USUAL_SECONDS = 3_600
USUAL_KEPT_SECONDS = 300
SLOW_TIMES, SLOW_LEAST_SECONDS = 3.0, 0.5
WORDS = {
    "timeout": "did not answer in time",
    "refused": "refuses connections: nothing listens there",
    "unreachable": "cannot be reached over the network",
    "dns": "its name cannot be resolved",
    "tls": "TLS failed",
    "cut off": "the answer was cut off",
    "too large": "the answer is larger than allowed",
    "bad packing": "the answer cannot be unpacked",
    "not an exposition": "answers with something that is no metrics text",
    "redirected": "answers with a redirect, which is not followed",
    "too many samples": "sends more samples than allowed",
    "too many series": "has sent more different series than allowed",
    "no GPU samples": "answers, but lists no GPU",
    "no samples": "answers, but with no sample that can be read",
    "stale values": "answers with values that another server kept too long",
    "http status": "answers with an error status",
    "unauthorised": "wants other credentials",
    "forbidden address": "lies outside the networks that may be scraped",
    "collector": "was not scraped: a failure on our side",
}


@dataclass(frozen=True, slots=True)
class Line:
    """A target and its newest scrape, None when it was never scraped. `usual_seconds`: median of the last hour's good
    scrapes, None without one. `tried`: what a person asked for in the last ten minutes."""

    target: Target
    status: TargetStatus | None
    usual_seconds: float | None
    tried: Try | None

    @property
    def url(self) -> str:
        return shown_url(self.target.url)

    @property
    def why(self) -> str:
        """The reason of the failure as a person says it."""
        return WORDS.get(self.status.reason, self.status.reason) if self.status is not None else ""

    @property
    def is_slow(self) -> bool:
        if self.status is None or self.usual_seconds is None:
            return False
        return self.status.duration_seconds > max(SLOW_LEAST_SECONDS, SLOW_TIMES * self.usual_seconds)


@require_safe
def targets(request: HttpRequest) -> HttpResponse:
    """Failing targets first, unless the reader sorts otherwise; a hundred a page. htmx gets the rows alone."""
    frame = shell(request)["shell"]
    of_cluster = Target.objects.filter(cluster=frame.cluster, removed_at=None)
    total = of_cluster.count()
    asked = _asked(request)
    found = of_cluster.filter(_fits(asked["show"], asked["q"], asked["reason"]))
    count = found.count() if any(asked[name] for name in ("q", "reason")) or asked["show"] != "all" else total
    pages = max(1, -(-count // PAGE_SIZE))
    page = min(_page(request), pages)
    context = {
        "section": "targets",
        **asked,
        **_state(frame.cluster, total),
        "lines": lines_of(_rows(found, asked["sort"], page), frame.now.timestamp()),
        "count": count,
        "page": page,
        "pages": pages,
        "before": page - 1 if page > 1 else None,
        "after": page + 1 if page < pages else None,
        "sorts": list(SORTS),
        "shows": SHOWS,
        "moment": frame.now,
        "back": request.get_full_path(),
        "may_retry": can(request.user.role, "target.retry"),  # type: ignore[union-attr]
    }
    if request.headers.get("HX-Request"):
        return render(request, "targets/_rows.html", context)
    return render(request, "targets/list.html", {**context, "sources": statuses()})


def lines_of(rows: Sequence[Target], now: float) -> list[Line]:
    """The rows with what is known beside them: two reads for all of them."""
    ids = [target.pk for target in rows]
    usual, tried = usual_durations(ids, now), tries(ids)
    return [Line(row, getattr(row, "status", None), usual.get(row.pk), tried.get(row.pk)) for row in rows]


def usual_durations(target_ids: Sequence[int], now: float) -> dict[int, float]:
    """Median duration (seconds) of each target's good scrapes in the last hour, kept for five minutes.

    It comes from the stored scrapes and costs the cycle nothing; a target without a good one is left out.
    """
    key = {target_id: f"usual-duration:{target_id}" for target_id in target_ids}
    try:
        kept = cache.get_many(key.values())
    except BROKER_ERRORS:
        kept = {}
    missing = [target_id for target_id in target_ids if key[target_id] not in kept]
    if missing:
        health = read_health(missing, now - USUAL_SECONDS, now + 60)
        fresh = {one: float(np.median(h.duration_seconds[h.ok])) if h.ok.any() else -1.0 for one, h in health.items()}
        told = {key[target_id]: fresh.get(target_id, -1.0) for target_id in missing}
        kept = {**kept, **told}
        with suppress(*BROKER_ERRORS):
            cache.set_many(told, USUAL_KEPT_SECONDS)
    return {target_id: kept[key[target_id]] for target_id in target_ids if kept[key[target_id]] >= 0}


def _asked(request: HttpRequest) -> dict[str, str]:
    show, sort = request.GET.get("show", ""), request.GET.get("sort", "")
    return {
        "show": show if show in SHOWS else "all",
        "sort": sort if sort in SORTS else "",
        "q": request.GET.get("q", "").replace("\x00", "").strip()[:255],
        "reason": request.GET.get("reason", "") if request.GET.get("reason") in WORDS else "",
    }


def _page(request: HttpRequest) -> int:
    text = request.GET.get("page", "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 7 else 1


def _fits(show: str, words: str, reason: str) -> Q:
    found = {
        "all": Q(),
        "down": Q(status__isnull=False) & ~Q(status__reason=""),
        "up": Q(status__reason=""),
        "bad lines": Q(status__samples_rejected__gt=0),
        "never scraped": Q(status=None),
    }[show]
    if reason:
        found &= Q(status__reason=reason)
    if words:
        # An address that may hold a secret is not searched: each hit would tell a letter of it.
        plain = Q(url__icontains=words) & ~Q(url__contains="@") & ~Q(url__contains="?")
        names = Q(node__name__icontains=words) | Q(job__icontains=words) | Q(node__rack__name__iexact=words)
        found &= names | plain | Q(status__reason__icontains=words)
    return found


def _rows(found: QuerySet[Target], sort: str, page: int) -> list[Target]:
    order = SORTS[sort] if sort else (FAILING_FIRST, "node__name", "id")
    first = (page - 1) * PAGE_SIZE
    return list(found.select_related("node", "status").order_by(*order)[first : first + PAGE_SIZE])


def _state(cluster: Cluster | None, total: int) -> dict[str, Any]:
    """How many answer, and the failures by reason, most frequent first. One query."""
    rows = TargetStatus.objects.filter(target__cluster=cluster, target__removed_at=None)
    counts = dict(rows.values_list("reason").annotate(Count("target_id")))
    failing = sorted(((count, reason) for reason, count in counts.items() if reason), reverse=True)
    return {
        "total": total,
        "up": counts.get("", 0),
        "waiting": total - sum(counts.values()),
        "reasons": [(reason, count) for count, reason in failing],
    }
