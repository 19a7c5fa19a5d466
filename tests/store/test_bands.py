"""Bands of several metrics, read once, are the bands of each."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from factories import make_fleet, scrape

from gpufleet.store.queries import read_band, read_bands

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.mark.django_db
def test_bands_of_several_metrics_are_those_of_each() -> None:
    made = make_fleet(NOW, nodes=3)
    for second in (15, 30, 45):
        scrape(made, NOW + timedelta(seconds=second))
    metrics = ["gpu_temperature_celsius", "gpu_power_watts", "no_such_metric"]
    start = NOW.timestamp()
    together = read_bands(metrics, made.cluster.pk, start, start + 60, 30.0)
    assert list(together) == metrics
    for metric in metrics:
        alone = read_band(metric, made.cluster.pk, start, start + 60, 30.0)
        for name in ("times", "p5", "p50", "p95", "present"):
            np.testing.assert_array_equal(getattr(together[metric], name), getattr(alone, name))
    assert together["gpu_power_watts"].present.tolist() == [24, 24]
    assert together["no_such_metric"].present.tolist() == [0, 0]
