"""The state ribbon of a node: one lane for the node, one for jobs, one a GPU, on one time axis, as SVG geometry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import Q

from dashboards.time_range import TimeRange
from gpufleet.availability.models import StateInterval
from gpufleet.fleet.models import Assignment, Node, NodeEvent, Placement

WIDTH, LEFT, TOP = 1020.0, 58.0, 25.0
LANE, GAP = 9.5, 2.7
FILL = {
    "healthy": "r-ok",
    "degraded": "r-risk",
    "failed": "r-fail",
    "unknown": "r-nd",
    "maintenance": "r-mt",
    "out_of_service": "r-idle",
}
TICK_STEPS = tuple(
    timedelta(seconds=s) for s in (60, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800)
)
MOST_TICKS = 8
MOST_MARKS = 12


@dataclass(frozen=True, slots=True)
class Block:
    """One state in a lane; `x` and `width` in the units of the view box, `title` for a pointer and a screen reader."""

    x: float
    width: float
    fill: str
    title: str

    @property
    def text_x(self) -> float:
        return self.x + 6


@dataclass(frozen=True, slots=True)
class Lane:
    name: str
    label_y: float
    y: float
    height: float
    blocks: list[Block]


@dataclass(frozen=True, slots=True)
class Mark:
    x: float
    icon: str
    colour: str
    text: str
    at: datetime

    @property
    def left(self) -> float:
        """The glyph is twelve units wide and stands in the middle."""
        return round(self.x - 6, 1)


@dataclass(frozen=True, slots=True)
class Tick:
    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Ribbon:
    lanes: list[Lane]
    jobs: list[Block]
    marks: list[Mark]
    ticks: list[Tick]
    height: float
    axis_y: float
    jobs_y: float


class Axis:
    """Instants to horizontal places."""

    def __init__(self, span: TimeRange) -> None:
        self.start, self.end = span.start, span.end
        self.seconds = (span.end - span.start).total_seconds()

    def x(self, at: datetime) -> float:
        share = (min(max(at, self.start), self.end) - self.start).total_seconds() / self.seconds
        return round(LEFT + share * (WIDTH - LEFT), 1)

    def block(self, starts_at: datetime, ends_at: datetime | None, fill: str, title: str) -> Block:
        """At least one unit wide: a short outage is seen at every zoom."""
        left, right = self.x(starts_at), self.x(ends_at or self.end)
        return Block(left, max(1.0, round(right - left, 1)), fill, title)

    def ticks(self) -> list[Tick]:
        step = next((s for s in TICK_STEPS if self.seconds / s.total_seconds() <= MOST_TICKS), TICK_STEPS[-1])
        size = step.total_seconds()
        first = -(-self.start.timestamp() // size) * size
        count = int((self.end.timestamp() - first) // size) + 1
        instants = [datetime.fromtimestamp(first + n * size, tz=UTC) for n in range(max(0, count))]
        return [Tick(self.x(at), at.strftime("%d %b" if size >= 86400 else "%H:%M")) for at in instants]


def read_ribbon(node: Node, placements: Sequence[Placement], span: TimeRange, now: datetime) -> Ribbon:
    """Three queries, whatever the range. States after `now` are not drawn."""
    axis = Axis(span)
    gpu_ids = [placement.gpu_id for placement in placements]
    by_gpu = _intervals(node, gpu_ids, span)
    height = TOP + 14 + 5 + 13 + 5
    lanes = [Lane("node", TOP + 11, TOP, 14, _blocks(axis, by_gpu.get(None, []), now))]
    for placement in placements:
        lanes.append(
            Lane(f"g{placement.slot}", height + 8.5, height, LANE, _blocks(axis, by_gpu.get(placement.gpu_id, []), now))
        )
        height += LANE + GAP
    return Ribbon(
        lanes,
        _jobs(axis, gpu_ids, span, now),
        _marks(axis, node, span),
        axis.ticks(),
        height + 22,
        height + 14,
        TOP + 19,
    )


def _intervals(node: Node, gpu_ids: list[int], span: TimeRange) -> dict[int | None, list[StateInterval]]:
    rows = (
        StateInterval.objects.filter(Q(node=node, gpu=None) | Q(gpu_id__in=gpu_ids), starts_at__lt=span.end)
        .filter(Q(ends_at=None) | Q(ends_at__gt=span.start))
        .order_by("starts_at")
    )
    found: dict[int | None, list[StateInterval]] = {}
    for row in rows:
        found.setdefault(row.gpu_id, []).append(row)
    return found


def _blocks(axis: Axis, intervals: Iterable[StateInterval], now: datetime) -> list[Block]:
    blocks = []
    for row in intervals:
        ends_at = row.ends_at or now
        if ends_at <= axis.start:
            continue
        until = f"{row.ends_at:%d %b %H:%M:%S}" if row.ends_at else "now"
        words = f"{row.state.replace('_', ' ')} {row.starts_at:%d %b %H:%M:%S} to {until}"
        reasons = ", ".join(str(reason).replace("_", " ") for reason in row.reasons)
        blocks.append(axis.block(row.starts_at, ends_at, FILL[row.state], f"{words}: {reasons}" if reasons else words))
    return blocks


def _jobs(axis: Axis, gpu_ids: list[int], span: TimeRange, now: datetime) -> list[Block]:
    """The node's jobs, each once however many of its GPUs it holds."""
    rows = (
        Assignment.objects.filter(gpu_id__in=gpu_ids, starts_at__lt=span.end)
        .filter(Q(ends_at=None) | Q(ends_at__gt=span.start))
        .order_by("starts_at")
        .values_list("job", "starts_at", "ends_at")
    )
    spans: dict[str, tuple[datetime, datetime]] = {}
    for job, starts_at, ends_at in rows:
        first, last = spans.get(job, (starts_at, starts_at))
        spans[job] = (min(first, starts_at), max(last, ends_at or now))
    return [axis.block(first, last, "jb", job) for job, (first, last) in spans.items()]


def _marks(axis: Axis, node: Node, span: TimeRange) -> list[Mark]:
    events = NodeEvent.objects.filter(node=node, at__gte=span.start, at__lt=span.end).order_by("-at")[:MOST_MARKS]
    return [_mark(axis, event) for event in events]


def _mark(axis: Axis, event: NodeEvent) -> Mark:
    icon, colour = ("crit", "c-fail") if event.kind == "xid" else ("min", "t2")
    words = f"XID {event.xid}" if event.xid is not None else event.kind
    return Mark(axis.x(event.at), icon, colour, words, event.at)
