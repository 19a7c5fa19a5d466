"""What the month page says, as text and geometry: figures against the target, causes, the last twelve months."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.parse import urlencode

from dashboards.templatetags.month import percent
from gpufleet.availability.month import Month

MONTHS = 12
WIDTH, HEIGHT, SIDE, HEAD = 720, 132, 30, 22
SORTS = {
    "subject": lambda row: row["subject"],
    "availability": lambda row: (row["availability_ratio"] is None, row["availability_ratio"] or 0, row["subject"]),
    "lost": lambda row: (-row["down_seconds"], row["subject"]),
    "planned": lambda row: (-row["planned_seconds"], row["subject"]),
    "unknown": lambda row: (-row["unknown_seconds"], row["subject"]),
    "outages": lambda row: (-row["incidents"], row["subject"]),
}


@dataclass(frozen=True, slots=True)
class Budget:
    """The loss that the target leaves of the time that was up or down so far, and what is used of it, in seconds."""

    allowed_seconds: float
    used_seconds: float
    met: bool

    @property
    def left_seconds(self) -> float:
        return self.allowed_seconds - self.used_seconds

    @property
    def used_percent(self) -> int | None:
        """Cut; None when the target leaves nothing."""
        return int(100 * self.used_seconds / self.allowed_seconds) if self.allowed_seconds else None


@dataclass(frozen=True, slots=True)
class Dot:
    x: float
    y: float | None
    name: str
    text: str
    met: bool
    url: str


def budget(row: Mapping[str, Any], objective: Decimal) -> Budget | None:
    """None when nothing is known of the month."""
    ratio = row["availability_ratio"]
    if ratio is None:
        return None
    allowed = float((100 - objective) / 100) * (row["up_seconds"] + row["down_seconds"])
    return Budget(allowed, row["down_seconds"], Decimal(repr(ratio)) * 100 >= objective)


def sorted_rows(rows: Sequence[dict[str, Any]], sort: str) -> list[dict[str, Any]]:
    return sorted(rows, key=SORTS.get(sort, SORTS["lost"]))


def strip(months: Sequence[Month], ratios: Sequence[float | None], objective: Decimal, tz: str) -> dict[str, Any]:
    """Dots against the target's line. The scale ends at 100 % and begins a little under the lowest dot."""
    known = [ratio for ratio in ratios if ratio is not None]
    low = min([*known, float(objective) / 100])
    low -= (1 - low) * 0.15 or 0.001

    def y(ratio: float) -> float:
        return round(HEAD + (1 - ratio) / (1 - low) * (HEIGHT - 2 * HEAD), 1)

    step = (WIDTH - 2 * SIDE) / (len(months) - 1)
    dots = [
        Dot(
            round(SIDE + at * step, 1),
            None if ratio is None else y(ratio),
            f"{month.start.astimezone(month.zone):%b}",
            percent(ratio).removesuffix(" %"),
            ratio is not None and Decimal(repr(ratio)) * 100 >= objective,
            f"/availability/{month.text}/?{urlencode({'tz': tz})}",
        )
        for at, (month, ratio) in enumerate(zip(months, ratios, strict=True))
    ]
    points = " ".join(f"{dot.x},{dot.y}" for dot in dots if dot.y is not None)
    return {"dots": dots, "points": points, "line": y(float(objective) / 100), "width": WIDTH, "height": HEIGHT}
