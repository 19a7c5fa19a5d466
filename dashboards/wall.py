"""The GPU wall: which class each cell has, in which group each node stands, and how the values spread."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpufleet.catalogue.metrics import METRICS, Metric
from gpufleet.pipeline.live import FIRST_METRICS, LIVE_METRICS, shown
from gpufleet.pipeline.snapshot import FRESH_INTERVALS, FleetSnapshot, GpuView, NodeView, natural

BINS = 16
GROUPS = ("rack", "switch", "none")
VIEWS = ("racks", "matrix")
NUMBERED_NAME = re.compile(r"(.*?)(\d{1,4})$")
POWER = "gpu_power_watts"


@dataclass(frozen=True, slots=True)
class Cell:
    """`index`: place in the live message. `text`: the value in display units, for the matrix."""

    index: int
    slot: int
    state: str
    classes: str
    mark: str
    text: str


@dataclass(frozen=True, slots=True)
class Tile:
    index: int
    node: NodeView
    prefix: str
    short: str
    cells: list[Cell]
    power_kilowatts: str

    @property
    def row(self) -> list[Cell | None]:
        """The cells by slot, for the matrix; None where no GPU is."""
        by_slot = {cell.slot: cell for cell in self.cells}
        return [by_slot.get(slot) for slot in range(max(by_slot, default=-1) + 1)]

    @property
    def label(self) -> str:
        """What a screen reader says of the tile."""
        sick = [cell for cell in self.cells if cell.state not in ("healthy", self.node.state)]
        words = [f"{self.node.name}, {self.node.state.replace('_', ' ')}"]
        return ", ".join(words + [f"GPU {cell.slot} {cell.state.replace('_', ' ')}" for cell in sick])


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    power_kilowatts: str
    tiles: list[Tile] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of the legend's histogram, in the units of its viewBox (176 x 26)."""

    bin: int
    x: int
    y: float
    height: float


def metric_or_default(name: str) -> Metric:
    """The metric of the picker with that name; the first one for any other text."""
    return METRICS[name] if name in LIVE_METRICS else METRICS[FIRST_METRICS[0]]


def bin_of(value: float | None, metric: Metric) -> int | None:
    """0 to 15 on the metric's fixed scale; None: no value. `value`: in display units, as the browser has it."""
    if value is None:
        return None
    low, high = metric.scale_low * metric.display_factor, metric.scale_high * metric.display_factor
    return min(BINS - 1, max(0, int((value - low) / (high - low) * BINS)))


def is_fresh(gpu: GpuView, interval_seconds: int) -> bool:
    return gpu.data_age_seconds is not None and gpu.data_age_seconds <= FRESH_INTERVALS * interval_seconds


def cell_class(gpu: GpuView, value: float | None, metric: Metric) -> tuple[str, str]:
    """Class and glyph of a cell: the fill is the metric, edge and glyph are the state; a missing value is hatched."""
    found = bin_of(value, metric)
    fill = "nd" if found is None else f"b{found}"
    if gpu.state == "failed":
        return "fail", "x"
    if gpu.state == "degraded":
        return f"{fill} risk", "tri"
    return {"unknown": "nd", "maintenance": "mtc", "out_of_service": "oos"}.get(gpu.state, fill), ""


def build_wall(snapshot: FleetSnapshot, metric: Metric, group_by: str) -> list[Group]:
    """Groups in natural order, so are nodes inside. A node without a rack or switch stands in the last one."""
    groups: dict[str, list[Tile]] = {}
    first = 0
    for place, node in enumerate(snapshot.nodes):
        tile = _tile(place, node, first, metric, snapshot.interval_seconds)
        first += len(node.gpus)
        groups.setdefault(_group_name(node, group_by), []).append(tile)
    names = sorted(groups, key=lambda name: (name == "", natural(name)))
    return [
        Group(name, kilowatts(gpu for tile in groups[name] for gpu in tile.node.gpus), groups[name]) for name in names
    ]


def _group_name(node: NodeView, group_by: str) -> str:
    return {"rack": node.rack, "switch": node.switch}.get(group_by) or ""


def _tile(place: int, node: NodeView, first: int, metric: Metric, interval: int) -> Tile:
    cells = []
    for offset, gpu in enumerate(node.gpus):
        value = shown(gpu.metrics.get(metric.name), metric) if is_fresh(gpu, interval) else None
        classes, mark = cell_class(gpu, value, metric)
        text = "" if value is None or gpu.state == "unknown" else f"{value:,}"
        cells.append(Cell(first + offset, gpu.slot, gpu.state, classes, mark, text))
    match = NUMBERED_NAME.fullmatch(node.name)
    prefix, short = (match[1], match[2]) if match else ("", node.name)
    return Tile(place, node, prefix, short, cells, kilowatts(node.gpus))


def kilowatts(gpus: Iterable[GpuView]) -> str:
    """The sum of known powers; empty when none is known."""
    known = [watts for gpu in gpus if (watts := gpu.metrics.get(POWER)) is not None]
    return f"{sum(known) / 1000:.1f}" if known else ""


def values_of(snapshot: FleetSnapshot, metric: Metric) -> list[float]:
    """The fresh values in display units."""
    fresh = [gpu for gpu in snapshot.gpus if is_fresh(gpu, snapshot.interval_seconds)]
    values = [shown(gpu.metrics.get(metric.name), metric) for gpu in fresh]
    return [float(value) for value in values if value is not None]


def histogram(values: Sequence[float], metric: Metric) -> list[Bar]:
    """Heights go with the square root, so that one full bin does not flatten the rest."""
    counts = np.zeros(BINS)
    for value in values:
        counts[bin_of(value, metric) or 0] += 1
    most = counts.max() or 1
    heights = np.round(16 * np.sqrt(counts / most), 1)
    return [Bar(place, place * 11, round(18 - float(height), 1), float(height)) for place, height in enumerate(heights)]


def spread(values: Sequence[float], metric: Metric) -> str:
    """`median 94 %, p5 0 %, p95 99 %`; says so when nothing is known."""
    if not values:
        return "no current value"
    p5, p50, p95 = (with_unit(float(value), metric) for value in np.percentile(values, (5, 50, 95)))
    return f"median {p50}, p5 {p5}, p95 {p95}"


def with_unit(value: float, metric: Metric) -> str:
    """A number in display units, as pages write it."""
    text = f"{value:,.{metric.digits}f}"
    return f"{text} {metric.display_unit}".strip()


def scale_ends(metric: Metric) -> tuple[str, str]:
    low, high = metric.scale_low * metric.display_factor, metric.scale_high * metric.display_factor
    return f"{low:,.{metric.digits}f}", with_unit(high, metric)


def page_data(snapshot: FleetSnapshot, cluster: str) -> dict[str, object]:
    """What the page's script needs besides the message: the scales, and which node and slot each index is."""
    metrics: Mapping[str, dict[str, object]] = {
        name: {
            "title": METRICS[name].title,
            "unit": METRICS[name].display_unit,
            "digits": METRICS[name].digits,
            "low": METRICS[name].scale_low * METRICS[name].display_factor,
            "high": METRICS[name].scale_high * METRICS[name].display_factor,
        }
        for name in LIVE_METRICS
    }
    return {
        "cluster": cluster,
        "wall": snapshot.fingerprint,
        "metrics": metrics,
        "nodes": [[node.name, [gpu.slot for gpu in node.gpus]] for node in snapshot.nodes],
    }


def matrix_blocks(groups: Sequence[Group], blocks: int = 3) -> list[list[Tile]]:
    """All nodes, in the order of the wall, in blocks of equal height."""
    tiles = [tile for group in groups for tile in group.tiles]
    height = max(1, -(-len(tiles) // blocks))
    return [tiles[start : start + height] for start in range(0, len(tiles), height)]
