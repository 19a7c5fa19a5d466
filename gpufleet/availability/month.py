"""A calendar month of a zone, and what the ledger says of it: rows, lost time by cause, lost time by node and day."""

from __future__ import annotations

import calendar
import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from gpufleet.availability.queries import SECONDS_OF, cut, read_spans
from gpufleet.availability.spans import Span
from gpufleet.fleet.models import Cluster
from gpufleet.incidents.models import Incident

MONTH = re.compile(r"(\d{4})-(0[1-9]|1[0-2])", re.ASCII)
FIRST_YEAR, LAST_YEAR = 1970, 9997
NO_INCIDENT = "no incident on record"


class MonthError(ValueError):
    """Not a month, or not a zone; the text says which."""


@dataclass(frozen=True, slots=True)
class Month:
    """`[start, end)`, as instants in UTC."""

    year: int
    number: int
    zone: ZoneInfo
    start: datetime
    end: datetime

    @property
    def text(self) -> str:
        return f"{self.year:04}-{self.number:02}"

    @property
    def edges(self) -> list[float]:
        """Unix seconds of its midnights in the zone, the end included: a day has 23, 24 or 25 hours."""
        days = calendar.monthrange(self.year, self.number)[1]
        midnights = [datetime(self.year, self.number, day, tzinfo=self.zone).timestamp() for day in range(1, days + 1)]
        return [*midnights, self.end.timestamp()]

    def moved(self, months: int) -> Month:
        """`months` later, or earlier when negative."""
        at = self.year * 12 + self.number - 1 + months
        return month_of(at // 12, at % 12 + 1, self.zone)


@dataclass(frozen=True, slots=True)
class Cause:
    """Lost seconds behind one name; `incident_ids` are those that took them, the greatest first."""

    name: str
    seconds: float
    incident_ids: tuple[int, ...]


@dataclass(slots=True)
class Day:
    """Seconds of a node on one day, over its GPUs."""

    lost: float = 0.0
    planned: float = 0.0
    unknown: float = 0.0


def parse_month(text: str, zone_name: str) -> Month:
    """Raises MonthError."""
    try:
        zone = ZoneInfo(zone_name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise MonthError(f"{zone_name[:64]!r} is no time zone name, for example Europe/Berlin") from error
    match = MONTH.fullmatch(text)
    if not match or not FIRST_YEAR < int(match[1]) <= LAST_YEAR:
        raise MonthError(f"{text[:64]!r} is no month, for example 2026-03")
    return month_of(int(match[1]), int(match[2]), zone)


def month_of(year: int, number: int, zone: ZoneInfo) -> Month:
    return Month(year, number, zone, _midnight(year, number, zone), _midnight(*_after(year, number), zone))


def current_month(now: datetime, zone: ZoneInfo) -> Month:
    here = now.astimezone(zone)
    return month_of(here.year, here.month, zone)


def _after(year: int, number: int) -> tuple[int, int]:
    return year + number // 12, number % 12 + 1


def _midnight(year: int, number: int, zone: ZoneInfo) -> datetime:
    return datetime(year, number, 1, tzinfo=zone).astimezone(UTC)


def lost_by_cause(cluster: Cluster, spans: Iterable[Span]) -> list[Cause]:
    """Failed seconds by cause, the greatest first. An imported outage's cause is what its record said. One query."""
    seconds: dict[int | None, float] = {}
    for span in spans:
        if span.state == "failed":
            seconds[span.incident_id] = seconds.get(span.incident_id, 0.0) + span.ends_at - span.starts_at
    ids = [pk for pk in seconds if pk is not None]
    named = Incident.objects.filter(cluster=cluster, pk__in=ids).values_list("pk", "kind", "title")
    name_of = {pk: title if kind == "external" else kind for pk, kind, title in named}
    found: dict[str, list[tuple[float, int]]] = {}
    for pk, lost in seconds.items():
        found.setdefault(name_of.get(pk or 0, NO_INCIDENT), []).append((lost, pk or 0))
    causes = [
        Cause(name, sum(lost for lost, _ in parts), tuple(pk for _, pk in sorted(parts, reverse=True) if pk))
        for name, parts in found.items()
    ]
    return sorted(causes, key=lambda cause: (-cause.seconds, cause.name))


def by_node_and_day(spans: Iterable[Span], edges: Sequence[float]) -> dict[int, dict[int, Day]]:
    """Node id, then number of the day from 0, of what was lost, planned or unknown. Days without any are left out."""
    found: dict[int, dict[int, Day]] = {}
    for span in spans:
        if span.state not in ("failed", "maintenance", "unknown"):
            continue
        number = bisect_right(edges, span.starts_at) - 1
        start = span.starts_at
        while start < span.ends_at and number < len(edges) - 1:
            end = min(span.ends_at, edges[number + 1])
            day = found.setdefault(span.node_id, {}).setdefault(number, Day())
            name = {"failed": "lost", "maintenance": "planned", "unknown": "unknown"}[span.state]
            setattr(day, name, getattr(day, name) + end - start)
            start, number = end, number + 1
    return found


def ratios(cluster: Cluster, months: Sequence[Month], now: datetime) -> list[float | None]:
    """Availability of the fleet in each of the months, which follow one another. As many queries as one month takes."""
    edges = [month.start.timestamp() for month in months] + [months[-1].end.timestamp()]
    sums = [{"up": 0.0, "down": 0.0} for _ in months]
    for span in read_spans(cluster, months[0].start, min(months[-1].end, now)):
        name = SECONDS_OF[span.state]
        if name not in ("up", "down"):
            continue
        for number in range(max(0, bisect_right(edges, span.starts_at) - 1), len(months)):
            if edges[number] >= span.ends_at:
                break
            part = min(span.ends_at, edges[number + 1]) - max(span.starts_at, edges[number])
            sums[number][name] += part
    return [cut(one["up"] / (one["up"] + one["down"])) if one["up"] + one["down"] else None for one in sums]
