"""The canonical metrics: what a number means, whichever exporter sent it."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

DATA = Path(__file__).parent / "data"
KINDS = frozenset({"gauge", "counter", "code", "mask", "enum", "window"})


@dataclass(frozen=True, slots=True)
class Metric:
    """One canonical metric. `low` and `high` bound what the thing can be, in its unit; `scale_low` and `scale_high`
    are the fixed ends of its colour scale. Shown is `value * display_factor` with `digits` decimals and `display_unit`.

    `per_instance`: a MIG instance has a value of its own; otherwise the lines of the instances repeat the board's.
    """

    name: str
    title: str
    short_title: str
    unit: str
    display_unit: str
    display_factor: float
    digits: int
    kind: str
    subject: str
    per_instance: bool
    low: float
    high: float
    scale_low: float
    scale_high: float
    meaning: str


def rows(file: str) -> Iterator[dict[str, str]]:
    """The rows of a CSV file of the catalogue."""
    with (DATA / file).open(newline="", encoding="utf-8") as lines:
        yield from csv.DictReader(lines)


def yes(word: str) -> bool:
    """True for `yes`, False for `no`. Raises ValueError for anything else."""
    if word not in {"yes", "no"}:
        raise ValueError(f"yes or no, not {word!r}")
    return word == "yes"


def _metric(row: Mapping[str, str]) -> Metric:
    if row["kind"] not in KINDS:
        raise ValueError(f"{row['name']}: unknown kind {row['kind']!r}")
    return Metric(
        name=row["name"],
        title=row["title"],
        short_title=row["short_title"],
        unit=row["unit"],
        display_unit=row["display_unit"],
        display_factor=float(row["display_factor"]),
        digits=int(row["digits"]),
        kind=row["kind"],
        subject=row["subject"],
        per_instance=yes(row["per_instance"]),
        low=float(row["low"]),
        high=float(row["high"]),
        scale_low=float(row["scale_low"]),
        scale_high=float(row["scale_high"]),
        meaning=row["meaning"],
    )


METRICS: Mapping[str, Metric] = MappingProxyType({row["name"]: _metric(row) for row in rows("metrics.csv")})
