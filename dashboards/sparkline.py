"""The last hour of one metric of one GPU as SVG geometry, gaps left open."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from gpufleet.catalogue.metrics import Metric
from gpufleet.store.queries import read_range

SPAN_SECONDS = 3600
STEP_SECONDS = 60
WIDTH, HEIGHT = 240, 40


@dataclass(frozen=True, slots=True)
class Sparkline:
    """One polyline for each stretch without a gap, in a viewBox of 240 x 40. `words` says the same in text."""

    lines: list[str]
    words: str


def read_sparkline(metric: Metric, gpu_id: int, until: datetime) -> Sparkline:
    """Mean of each minute on the metric's fixed scale."""
    end = until.timestamp()
    found = read_range(metric.name, gpu_ids=[gpu_id], start=end - SPAN_SECONDS, end=end, step=STEP_SECONDS)
    if not found.rows:
        return Sparkline([], "no value in the last hour")
    means = np.asarray(found.rows[0].mean, dtype=np.float64)
    return draw(means, metric)


def draw(means: np.ndarray, metric: Metric) -> Sparkline:
    """`means` in canonical units, NaN for a gap."""
    known = means[~np.isnan(means)]
    if known.size == 0:
        return Sparkline([], "no value in the last hour")
    span = metric.scale_high - metric.scale_low
    heights = HEIGHT - 2 - np.clip((means - metric.scale_low) / span, 0, 1) * (HEIGHT - 4)
    xs = np.linspace(1, WIDTH - 1, num=max(2, means.size))
    lines: list[str] = []
    run: list[str] = []
    for x, y in zip(xs, heights, strict=False):
        if np.isnan(y):
            _finish(lines, run)
            run = []
        else:
            run.append(f"{x:.1f},{y:.1f}")
    _finish(lines, run)
    low, high = (float(edge) * metric.display_factor for edge in (known.min(), known.max()))
    words = f"last hour {low:,.{metric.digits}f} to {high:,.{metric.digits}f} {metric.display_unit}".strip()
    return Sparkline(lines, words)


def _finish(lines: list[str], run: list[str]) -> None:
    """A single point is drawn as a dash, so that it is seen."""
    if len(run) == 1:
        x, y = run[0].split(",")
        run = [run[0], f"{float(x) + 2:.1f},{y}"]
    if run:
        lines.append(" ".join(run))
