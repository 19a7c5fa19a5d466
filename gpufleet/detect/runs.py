"""Runs: how long a condition has held, looking back from the newest row. Vectorised over columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpufleet.detect.windows import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, slots=True)
class Run:
    """Per column: `length`, how many valid rows in a row hold the condition up to the newest valid one, and `start`,
    the index of the first of them (-1 when there is none)."""

    length: IntArray
    start: IntArray


def trailing_run(condition: BoolArray, valid: BoolArray) -> Run:
    """The unbroken run at the end of each column of [T, X] arrays. Rows that are not valid neither count nor break."""
    rows = np.arange(len(condition))[:, None]
    last_break = np.max(np.where(valid & ~condition, rows, -1), axis=0, initial=-1)
    inside = valid & condition & (rows > last_break)
    length = inside.sum(axis=0)
    start = np.where(length > 0, np.argmax(inside, axis=0) if len(inside) else 0, -1)
    return Run(length.astype(np.int64), start.astype(np.int64))


def newest(valid: BoolArray) -> IntArray:
    """[X]: index of the newest valid row of each column, -1 when there is none."""
    rows = np.arange(len(valid))[:, None]
    found: IntArray = np.max(np.where(valid, rows, -1), axis=0, initial=-1).astype(np.int64)
    return found


def held_seconds(run: Run, times: FloatArray) -> FloatArray:
    """[X]: seconds from the first to the newest row of each run; 0 without one. `times` is [T, X]."""
    if not len(times):
        return np.zeros(run.length.shape)
    columns = np.arange(times.shape[1])
    spans: FloatArray = times[-1] - times[np.maximum(run.start, 0), columns]
    return np.where(run.length > 0, spans, 0.0)


def carried(values: FloatArray, before: FloatArray) -> FloatArray:
    """[T, X]: for each row the last known value strictly before it (`before` for the first), NaN when never known."""
    stacked = np.vstack([before[None, :], values])
    rows = np.where(np.isnan(stacked), 0, np.arange(len(stacked))[:, None])
    rows = np.maximum.accumulate(rows, axis=0)
    filled: FloatArray = np.take_along_axis(stacked, rows, axis=0)
    return filled[:-1]
