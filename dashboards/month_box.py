"""The strip's fourth box: this month's availability against the objective, and how much of the error budget is used."""

from __future__ import annotations

import calendar
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_DOWN, Decimal

from django.conf import settings
from django.core.cache import cache

from dashboards.shell import page_address
from gpufleet.availability.queries import fleet_ratio
from gpufleet.core.bus import BROKER_ERRORS
from gpufleet.fleet.models import Cluster

KEPT_SECONDS = 60


@dataclass(frozen=True, slots=True)
class MonthBox:
    """Texts and geometry. `percent` is cut, never rounded up; a dash when nothing is known of the month."""

    title: str
    objective: str
    percent: str
    words: str
    fill: str
    used_width: float
    elapsed_percent: float
    url: str


def read_month_box(cluster: Cluster, now: datetime) -> MonthBox:
    """The month so far; kept for a minute, since it moves slowly and is on every screen."""
    month = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    key = f"month-box:{cluster.pk}:{month:%Y-%m}"
    try:
        kept = cache.get(key)
        ratio = fleet_ratio(cluster, month, now, now=now) if kept is None else kept
        if kept is None:
            cache.set(key, "none" if ratio is None else ratio, KEPT_SECONDS)
    except BROKER_ERRORS:
        ratio = fleet_ratio(cluster, month, now, now=now)
    return month_box(None if ratio == "none" else ratio, Decimal(settings.ENV["GPUFLEET_SLO_PERCENT"]), month, now)


def month_box(ratio: float | None, objective: Decimal, month: datetime, now: datetime) -> MonthBox:
    """`ratio`: up / (up + unplanned down), None when neither is known. The budget is what the objective leaves."""
    days = calendar.monthrange(month.year, month.month)[1]
    elapsed = round((now - month).total_seconds() / (days * 86400) * 100, 1)
    percent = None if ratio is None else Decimal(repr(ratio)) * 100
    used = _budget_used(percent, objective)
    return MonthBox(
        title=f"{month:%B}",
        objective=f"{objective:.2f}",
        percent="–" if percent is None else str(percent.quantize(Decimal("0.01"), ROUND_DOWN)),
        words="nothing known of this month yet" if used is None else f"{used} % of budget used",
        fill="f-ok" if used is None or used <= 100 else "f-risk",
        used_width=0 if used is None else float(min(100, used)),
        elapsed_percent=min(99.0, elapsed),
        url=page_address("availability-now"),
    )


def _budget_used(percent: Decimal | None, objective: Decimal) -> int | None:
    if percent is None:
        return None
    budget = 100 - objective
    return 0 if budget <= 0 else int((100 - percent) / budget * 100)
