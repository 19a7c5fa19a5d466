"""XID happenings out of the windows: edges of the last-code gauge, rises of the counts.

The gauge tells of a change only: it keeps the last code for ever. A windowed count tells of rises only; a fall or a
vanished line is the window moving on. A total may start again from 0. An absent line of a listed GPU means 0. When
several of them tell of the same code on the same GPU, the largest count wins, so nothing is counted twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpufleet.detect.runs import carried
from gpufleet.detect.windows import BoolArray, FloatArray, Windows

MOST_CODE = 9999.0
MOST_COUNT = 1e9


@dataclass(frozen=True, slots=True)
class XidEvent:
    """`count` errors `code` of GPU `gpu` (index), seen by the scrape at `at` (Unix seconds, row `row`)."""

    gpu: int
    code: int
    row: int
    at: float
    count: int
    source: str

    def occurrence(self, uuid: str) -> str:
        """The stable id of the happening: the same in every cut of the windows."""
        return f"xid:{uuid}:{self.code}:{round(self.at * 1000)}"


def xid_events(windows: Windows) -> list[XidEvent]:
    """The happenings in the rows from `windows.tell_from` on, in the order of time."""
    by_code: dict[tuple[int, int], list[XidEvent]] = defaultdict(list)
    for event in (*_gauge_events(windows), *_count_events(windows)):
        by_code[event.gpu, event.code].append(event)
    told = [event for events in by_code.values() for event in _merged(events) if event.row >= windows.tell_from]
    return sorted(told, key=lambda event: (event.at, event.gpu, event.code))


def _merged(events: list[XidEvent]) -> Iterator[XidEvent]:
    """One stream out of several sources: the happenings by which the largest of their sums has grown."""
    sums: dict[str, int] = defaultdict(int)
    told = 0
    for row in sorted({event.row for event in events}):
        here = [event for event in events if event.row == row]
        for event in here:
            sums[event.source] += event.count
        new = max(sums.values()) - told
        if new > 0:
            told += new
            yield XidEvent(here[0].gpu, here[0].code, row, here[0].at, new, here[0].source)


def _sane(values: FloatArray, most: float) -> FloatArray:
    """Values from 0 to `most`; anything else is no code and no count."""
    with np.errstate(invalid="ignore"):
        return np.where((values >= 0) & (values <= most), values, np.nan)


def _seen_before(windows: Windows) -> BoolArray:
    """[T, G]: a good scrape before this row, or before the windows, has named the GPU."""
    seen = np.vstack([windows.before.seen[None, :], windows.gpus.listed])
    return np.logical_or.accumulate(seen, axis=0)[:-1]


def _gauge_events(windows: Windows) -> Iterator[XidEvent]:
    codes = _sane(windows.metric("gpu_xid_code"), MOST_CODE)
    previous = carried(codes, windows.before.xid_code)
    with np.errstate(invalid="ignore"):
        edges = (codes > 0) & np.where(np.isnan(previous), _seen_before(windows), codes != previous)
    times = windows.gpu_times()
    for row, gpu in np.argwhere(edges):
        yield XidEvent(int(gpu), int(codes[row, gpu]), int(row), float(times[row, gpu]), 1, "gauge")


def _count_events(windows: Windows) -> Iterator[XidEvent]:
    xids = windows.xids
    if not len(xids.gpu):
        return
    listed = windows.gpus.listed[:, xids.gpu]
    counts = _sane(np.where(np.isnan(xids.values) & listed, 0.0, xids.values), MOST_COUNT)
    rises = _rises(windows, counts)
    times = windows.gpu_times()
    for row, column in np.argwhere(rises > 0):
        gpu = int(xids.gpu[column])
        code, source = int(xids.code[column]), xids.source[column]
        yield XidEvent(gpu, code, int(row), float(times[row, gpu]), int(rises[row, column]), source)


def _rises(windows: Windows, counts: FloatArray) -> FloatArray:
    """[T, K]: how many errors each row adds. NaN counts add none."""
    xids = windows.xids
    times = windows.gpu_times()[:, xids.gpu]
    is_total = np.array([source == "total" for source in xids.source])
    previous = carried(counts, windows.before.xid_count)
    known_at = carried(np.where(np.isnan(counts), np.nan, times), windows.before.xid_count_at)
    with np.errstate(invalid="ignore"):
        moved_on = times - known_at > xids.window_seconds[None, :]
        began_anew = is_total[None, :] & (counts < previous)
    previous = np.where(moved_on | began_anew, 0.0, previous)
    never_known = np.where(is_total[None, :], counts, 0.0)  # a total may be old, a windowed count is of now
    previous = np.where(np.isnan(previous), never_known, previous)
    return np.nan_to_num(np.maximum(counts - previous, 0.0), nan=0.0)
