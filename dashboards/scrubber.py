"""The last day of the ledger as bars: how many GPUs were failed or degraded, and when a state changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
from django.db.models import Q

from gpufleet.availability.models import StateInterval
from gpufleet.core.times import from_unix
from gpufleet.fleet.models import Cluster

HOURS = 24
BARS = 144
WIDTH, HEIGHT = 1000, 30
BASE = 34


@dataclass(frozen=True, slots=True)
class ScrubberBar:
    """Geometry in a viewBox of 1000 x 50: failed from the base up, degraded on top of it."""

    x: float
    failed_y: float
    failed_height: float
    degraded_y: float
    degraded_height: float


@dataclass(frozen=True, slots=True)
class Scrubber:
    start: datetime
    end: datetime
    bars: list[ScrubberBar]
    ticks: list[tuple[float, str]]
    previous_change: datetime | None
    next_change: datetime | None
    playhead: float


def read_scrubber(cluster: Cluster, now: datetime, at: datetime | None) -> Scrubber:
    """One query. Bars hold the largest number of GPUs that were in the state at once within ten minutes."""
    start = now - timedelta(hours=HOURS)
    rows = StateInterval.objects.filter(
        Q(ends_at=None) | Q(ends_at__gt=start), cluster=cluster, gpu__isnull=False, starts_at__lt=now
    ).filter(state__in=("failed", "degraded"))
    spans = [
        (state, begin.timestamp(), (end or now).timestamp(), end is not None)
        for state, begin, end in rows.values_list("state", "starts_at", "ends_at")
    ]
    failed, degraded = (_counts(spans, state, start.timestamp(), now.timestamp()) for state in ("failed", "degraded"))
    changes = sorted({begin for _, begin, _, _ in spans} | {end for _, _, end, over in spans if over})
    moment = (at or now).timestamp()
    inside = [change for change in changes if start.timestamp() <= change <= now.timestamp()]
    before = [change for change in inside if change < moment - 1]
    after = [change for change in inside if change > moment + 1]
    playhead = WIDTH * min(1.0, max(0.0, (moment - start.timestamp()) / (HOURS * 3600)))
    return Scrubber(
        start,
        now,
        _bars(failed, degraded),
        _ticks(start, now),
        from_unix(before[-1]) if before else None,
        from_unix(after[0]) if after and at is not None else None,
        round(min(playhead, WIDTH - 1), 1),
    )


def _counts(spans: list[tuple[str, float, float, bool]], state: str, start: float, end: float) -> np.ndarray:
    """The largest number at once in each bar: a running sum over the edges, then the maximum of each bar."""
    edges = [(max(begin, start), 1) for name, begin, _, _ in spans if name == state]
    edges += [(stop, -1) for name, _, stop, over in spans if name == state and over]
    edges.sort()
    width = (end - start) / BARS
    peaks, level, place = np.zeros(BARS), 0, 0
    for bar in range(BARS):
        peak = level
        while place < len(edges) and edges[place][0] < start + (bar + 1) * width:
            level += edges[place][1]
            peak = max(peak, level)
            place += 1
        peaks[bar] = peak
    return peaks


def _bars(failed: np.ndarray, degraded: np.ndarray) -> list[ScrubberBar]:
    unit = HEIGHT / max(8.0, float((failed + degraded).max()))
    step = WIDTH / BARS
    found = []
    for bar, (bad, risky) in enumerate(zip(failed, degraded, strict=True)):
        bad_height, risky_height = round(float(bad) * unit, 1), round(float(risky) * unit, 1)
        top = round(BASE - bad_height, 1)
        found.append(ScrubberBar(round(bar * step, 1), top, bad_height, round(top - risky_height, 1), risky_height))
    return found


def _ticks(start: datetime, end: datetime) -> list[tuple[float, str]]:
    hour = start.replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    hour += timedelta(hours=-hour.hour % 3)
    found = []
    while hour < end:
        x = (hour - start).total_seconds() / (HOURS * 3600) * WIDTH
        if 15 < x < WIDTH - 15:
            found.append((round(x, 1), f"{hour:%H:%M}"))
        hour += timedelta(hours=3)
    return found
