"""Whether values contradict the unit that a field's name says: found by their range, over many values at once."""

from __future__ import annotations

import numpy as np

from gpufleet.catalogue.metrics import Metric
from gpufleet.catalogue.values import FloatArray

LEAST_VALUES = 3
SHARE = 0.9
_MEMORY = frozenset({"gpu_memory_used_bytes", "gpu_memory_free_bytes", "gpu_memory_total_bytes"})
# (unit, canonical values above this, below that, what they look like); the first that nearly all values fit counts.
_RANGES = (
    ("ratio", 1.01, 105.0, "per cent under a name that means 0 to 1"),
    ("hertz", 1.0, 1e6, "MHz under a name that means Hz"),
    ("hertz", 5e10, np.inf, "Hz under a name that means MHz"),
    ("watts", 5e3, np.inf, "milliwatts under a name that means watts"),
    ("celsius", 200.0, 400.0, "kelvin under a name that means degrees Celsius"),
    ("celsius", 5e3, np.inf, "thousandths of a degree under a name that means degrees"),
)
_UNITS = frozenset(unit for unit, *_ in _RANGES)


def contradiction(metric: Metric, canonical: FloatArray, scale: float) -> str:
    """What the values look like instead of what they should be, in words; empty when nothing speaks against the unit.

    `canonical`: values times `scale`, without those that mean "no value", but with impossible ones. Zeros tell nothing;
    fewer than three values neither, and nine in ten must agree.
    """
    if metric.kind != "gauge" or (metric.unit not in _UNITS and metric.name not in _MEMORY):
        return ""
    told = canonical[np.isfinite(canonical) & (canonical != 0)]
    if told.size < LEAST_VALUES:
        return ""
    for unit, above, below, words in _RANGES:
        if metric.unit == unit and _most((told > above) & (told < below)):
            return words if metric.name != "gpu_fan_ratio" or _most(told > 2) else ""
    if metric.unit == "ratio" and scale == 0.01:
        raw = told / scale
        return "0 to 1 under a name that means per cent" if _most((raw < 1) & (raw > 0)) else ""
    if metric.name in _MEMORY:
        if _most(told > metric.high):
            return "bytes under a name that means MiB"
        return "MiB under a name that means bytes" if _most((told > 0) & (told < 1e6)) else ""
    return ""


def energy_contradiction(joules: FloatArray, watts: FloatArray, seconds: float) -> str:
    """`joules`: how much the counters rose in `seconds`; `watts`: the mean power of the same boards."""
    told = np.isfinite(joules) & np.isfinite(watts) & (joules > 0) & (watts > 5)
    if np.count_nonzero(told) < LEAST_VALUES or seconds < 60:
        return ""
    times = joules[told] / (watts[told] * seconds)
    if _most(times > 100):
        return "millijoules under a name that means joules"
    return "joules under a name that means millijoules" if _most(times < 0.01) else ""


def _most(fits: object) -> bool:
    return float(np.mean(np.asarray(fits))) >= SHARE
