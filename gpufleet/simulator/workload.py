"""How a training job loads the fleet, in closed form: any instant can be computed without history.

Sessions of eight hours begin with an idle gap; every two hours a checkpoint lets the GPUs wait. In between, the steps
of the job make a ripple. Every integral (energy, work) is exact, so counters always agree with the gauges.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

EPOCH = 1_735_689_600.0  # 2025-01-01: boot of every node, start of every counter
SESSION = 28_800.0
CHECKPOINT_EVERY = 7_200.0
CHECKPOINT = 60.0
GAP = 240.0
WAITING = 0.12
RIPPLE = 0.06
STEP = 11.25  # divides a session, so a whole session's ripple repeats
DRIFT = 600.0
DRIFT_WATTS = 6.0
LAG = 20.0  # seconds over which heat follows power
PIECES: tuple[tuple[float, float, float], ...] = (
    (GAP, CHECKPOINT_EVERY - CHECKPOINT, 1.0),
    *((k * CHECKPOINT_EVERY - CHECKPOINT, k * CHECKPOINT_EVERY, WAITING) for k in (1, 2, 3)),
    *((k * CHECKPOINT_EVERY, (k + 1) * CHECKPOINT_EVERY - CHECKPOINT, 1.0) for k in (1, 2, 3)),
    (SESSION - CHECKPOINT, SESSION, WAITING),
)


def session(t: float) -> tuple[int, float]:
    """The number of the session at `t` and the seconds since it began."""
    number, inside = divmod(t - EPOCH, SESSION)
    return int(number), inside


def level(t: float) -> float:
    """Load of the training job without ripple: 0 idle, 1 busy."""
    inside = session(t)[1]
    return next((load for start, end, load in PIECES if start <= inside < end), 0.0)


class Workload:
    """Loads and powers of `nodes * gpus` GPUs, as arrays in the order (node, slot)."""

    def __init__(self, spare: npt.NDArray[np.bool_], seed: int) -> None:
        random = np.random.default_rng([seed, 1])
        size = spare.size
        self.working = np.where(spare, 0.0, 1.0)
        self.idle_watts = random.normal(165.0, 6.0, size).clip(145, 190)
        self.span_watts = random.normal(690.0, 18.0, size).clip(630, 760)
        self.phase = random.uniform(-0.25, 0.25, size)
        self.drift_phase = random.uniform(0, 2 * math.pi, size)
        self.thermal_resistance = random.normal(0.0335, 0.0012, size).clip(0.03, 0.038)
        self._whole = self._integral_inside(SESSION)

    def load(self, t: float) -> FloatArray:
        """Load of each GPU at `t`, 0 to about 1.06."""
        ripple = 1 + RIPPLE * np.sin(2 * math.pi * (t - EPOCH) / STEP + self.phase)
        return np.asarray(self.working * level(t) * ripple)

    def work(self, t: float) -> FloatArray:
        """Integral of the load since EPOCH, seconds."""
        number, inside = session(t)
        return np.asarray(self.working * (number * self._whole + self._integral_inside(inside)))

    def _integral_inside(self, inside: float) -> FloatArray:
        total = np.zeros(self.working.size)
        turn = 2 * math.pi / STEP
        for start, end, load in PIECES:
            if inside <= start:
                continue
            stop = min(inside, end)
            wave = np.cos(turn * start + self.phase) - np.cos(turn * stop + self.phase)
            total += load * (stop - start + RIPPLE * wave / turn)
        return total

    def power(self, t: float) -> FloatArray:
        """Board power, watts."""
        drift = DRIFT_WATTS * np.sin(2 * math.pi * (t - EPOCH) / DRIFT + self.drift_phase)
        return np.asarray(self.idle_watts + self.span_watts * self.load(t) + drift)

    def energy(self, t: float) -> FloatArray:
        """Integral of `power` since EPOCH, joules."""
        turn = 2 * math.pi / DRIFT
        drift = np.cos(self.drift_phase) - np.cos(turn * (t - EPOCH) + self.drift_phase)
        return np.asarray(self.idle_watts * (t - EPOCH) + self.span_watts * self.work(t) + DRIFT_WATTS * drift / turn)

    def temperature(self, t: float) -> FloatArray:
        """GPU temperature, degrees Celsius: the inlet of the day plus the heat of the last seconds."""
        heat = (self.energy(t) - self.energy(t - LAG)) / LAG
        return np.asarray(inlet(t) + 5 + self.thermal_resistance * heat)


def inlet(t: float) -> float:
    """Inlet air, degrees Celsius, warmest in the afternoon (UTC)."""
    return 24.0 + 2.0 * math.sin(2 * math.pi * (t / 86_400.0 - 0.375))
