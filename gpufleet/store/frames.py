"""Frames: what one scrape of one target brought, good or not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Frame:
    """One scrape. `values` are raw, float64, in the order of the layout; None when the scrape failed.

    `scraped_at` is the start of the scrape in Unix seconds, kept to the microsecond; `reason` is empty for a good
    scrape.
    """

    target_id: int
    scraped_at: float
    cycle: int
    reason: str
    duration_seconds: float
    bytes: int
    accepted: int
    rejected: int
    missing: int
    layout_id: int | None
    values: FloatArray | None

    @property
    def ok(self) -> bool:
        return not self.reason


@dataclass(frozen=True, slots=True)
class SeriesSpec:
    """What is needed to make a series. Fields as in `models.Series`."""

    name: str
    metric: str
    labels: dict[str, str]
    gpu_id: int | None
    kind: str
    unit: str
    scale: float
    low: float | None
    high: float | None
    sentinels: str


class StoreError(ValueError):
    """What was handed to the store cannot be kept or read; the message says why."""
