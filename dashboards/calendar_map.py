"""The month as a picture: a row for each node in rack order, a cell for each day on which something was not up."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from gpufleet.availability.month import Day, Month

LEFT, TOP, CELL, ROW, RACK_GAP, RIGHT = 96, 20, 16, 13, 5, 64
BINS = (2, 5, 10, 20, 40, 80, float("inf"))  # GPU-hours a day from which the next bin begins
MOST_NODES = 200
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Cell:
    """`classes`: the bin of what was lost, or how the day was planned or unknown."""

    x: int
    classes: str
    words: str
    url: str


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    y: int
    url: str
    cells: tuple[Cell, ...]
    lost_hours: float
    bar: float  # 0 to RIGHT - 10


@dataclass(frozen=True, slots=True)
class CalendarMap:
    """`days`: (x, number). `left_out`: nodes beyond the limit, those that lost least."""

    lines: tuple[Line, ...]
    days: tuple[tuple[float, int], ...]
    width: int
    height: int
    grid_width: int
    left_out: int


def calendar_map(
    nodes: Sequence[tuple[int, str, str]], days: Mapping[int, Mapping[int, Day]], month: Month, query: Mapping[str, str]
) -> CalendarMap:
    """`nodes`: (id, name, rack) of those with a record."""
    count = len(month.edges) - 1
    lost = {node: sum(day.lost for day in days.get(node, {}).values()) / HOUR for node, _, _ in nodes}
    shown = sorted(sorted(nodes, key=lambda one: -lost[one[0]])[:MOST_NODES], key=lambda one: (one[2], one[1]))
    most = max(lost.values(), default=0) or 1
    lines: list[Line] = []
    y, rack = TOP, shown[0][2] if shown else ""
    for node_id, name, in_rack in shown:
        y += RACK_GAP if in_rack != rack else 0
        rack = in_rack
        cells = tuple(_cell(number, day, name, month, query) for number, day in sorted(days.get(node_id, {}).items()))
        bar = round(lost[node_id] / most * (RIGHT - 10), 1)
        lines.append(Line(name, y, _address(query, node=name), cells, lost[node_id], bar))
        y += ROW
    numbers = tuple((LEFT + number * CELL + CELL / 2, number + 1) for number in range(count))
    width = LEFT + count * CELL + RIGHT
    return CalendarMap(tuple(lines), numbers, width, y + 4, count * CELL, len(nodes) - len(shown))


def _cell(number: int, day: Day, node: str, month: Month, query: Mapping[str, str]) -> Cell:
    parts = (("lost", day.lost), ("planned", day.planned), ("unknown", day.unknown))
    words = ", ".join(f"{seconds / HOUR:.1f} GPU-h {name}" for name, seconds in parts if seconds)
    # The bin says what was lost; planned days are outlined; hatched: nobody saw, and nothing is known to be lost.
    classes = [f"dl{bisect_left(BINS, day.lost / HOUR)}" if day.lost else "unk" if day.unknown else "none"]
    if day.planned:
        classes.append("planned")
    said = f"{node}, {month.text}-{number + 1:02}: {words}"
    return Cell(LEFT + number * CELL, " ".join(classes), said, _address(query, node=node, day=str(number + 1)))


def _address(query: Mapping[str, str], **more: str) -> str:
    return "?" + urlencode({**query, **more})
