"""Quantiles out of counters by bucket, for histograms of the classic kind (label `le`)."""

from __future__ import annotations

import numpy as np

from gpufleet.promql.vectors import NAME, FloatArray, LabelKey, Vector, key_of, without

BUCKET = "le"


def histogram_quantile(share: FloatArray, vector: Vector) -> Vector:
    """The `share` quantile (t) of each histogram; series without a readable `le` are left out."""
    rows_of: dict[LabelKey, list[tuple[float, int]]] = {}
    for row, labels in enumerate(vector.labels):
        try:
            bound = float(labels.get(BUCKET, ""))
        except ValueError:
            continue
        rows_of.setdefault(key_of(without(labels, (BUCKET, NAME))), []).append((bound, row))
    values = np.full((len(rows_of), share.size), np.nan)
    present = np.zeros(values.shape, dtype=np.bool_)
    for number, buckets in enumerate(rows_of.values()):
        buckets.sort()
        bounds = np.array([bound for bound, _ in buckets])
        rows = [row for _, row in buckets]
        counts, there = vector.values[rows], vector.present[rows]
        present[number] = there.any(axis=0)
        # Steps with the same buckets are worked out together.
        patterns, which = np.unique(there, axis=1, return_inverse=True)
        for index in range(patterns.shape[1]):
            steps = np.flatnonzero(which.reshape(-1) == index)
            mine = patterns[:, index]
            values[number, steps] = _quantiles(share[steps], bounds[mine], counts[mine][:, steps])
    return Vector([dict(key) for key in rows_of], values, present)


def _quantiles(share: FloatArray, bounds: FloatArray, counts: FloatArray) -> FloatArray:
    """`bounds` (b) ascending, `counts` (b, t) cumulative; counts of equal bounds add up."""
    edge = np.where(np.isnan(share), np.nan, np.where(share < 0, -np.inf, np.inf))
    outside = np.isnan(share) | (share < 0) | (share > 1)
    bounds, starts = np.unique(bounds, return_index=True)
    if bounds.size < 2 or bounds[-1] != np.inf:
        return np.where(outside, edge, np.nan)
    counts = np.add.reduceat(counts, starts, axis=0)
    counts = np.fmax.accumulate(counts, axis=0)
    total = counts[-1]
    rank = share * total
    bucket = np.minimum((~(counts[:-1] >= rank)).sum(axis=0), bounds.size - 1)
    steps = np.arange(share.size)
    low = np.where(bucket > 0, bounds[bucket - 1], 0.0)
    before = np.where(bucket > 0, counts[bucket - 1, steps], 0.0)
    inside = counts[bucket, steps] - before
    found = low + (bounds[bucket] - low) * ((rank - before) / inside)
    found = np.where((bucket == 0) & (bounds[0] <= 0), bounds[0], found)
    found = np.where(bucket == bounds.size - 1, bounds[-2], found)
    result: FloatArray = np.where(outside, edge, np.where(total == 0, np.nan, found))
    return result
