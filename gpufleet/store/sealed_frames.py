"""Sealed scrapes as the frames that they were, bit for bit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from gpufleet.store.chunks import FAILED, Scrapes, SealedSpan, read_spans
from gpufleet.store.frames import FloatArray, Frame
from gpufleet.store.layouts import LayoutTable, layout_tables
from gpufleet.store.names import ensure_names
from gpufleet.store.sources import chunk_pieces

MANY_NAMES = 150  # about what a target of node_exporter has: so long are the pieces that a read is cut into

Mask = npt.NDArray[np.bool_]


def sealed_frames(
    target_ids: Sequence[int], start: float, end: float, keep: Callable[[Scrapes], Mask] | None = None
) -> Iterator[Frame]:
    """Frames of `[start, end)` that are sealed and that `keep` picks, in order of (target, time) within a span."""
    for ids, low, high in chunk_pieces(target_ids, start, end, MANY_NAMES):
        for span in read_spans(ids, low, high, None):
            yield from frames_of(span, low, high, keep)


def frames_of(
    span: SealedSpan, start: float, end: float, keep: Callable[[Scrapes], Mask] | None = None
) -> Iterator[Frame]:
    """The frames of one span, all of whose blobs have been read."""
    scrapes = span.scrapes
    picked = (scrapes.micros >= round(start * 1e6)) & (scrapes.micros < round(end * 1e6))
    if keep is not None:
        picked &= keep(scrapes)
    places = np.flatnonzero(picked)
    layouts = {layout_id for layout_id in scrapes.layout[places].tolist() if layout_id != FAILED}
    tables = layout_tables([*layouts, *([span.layout_id] if layouts else [])])
    values = _values(span, tables[span.layout_id]) if span.layout_id in tables else None
    column = np.cumsum(scrapes.good) - 1
    for place in places.tolist():
        layout_id = int(scrapes.layout[place])
        if layout_id == FAILED:
            yield _frame(span.target_id, scrapes, place, None, None)
        elif values is not None and layout_id in tables:
            among = tables[span.layout_id].series_ids
            mine = _columns(among, tables[layout_id])
            yield _frame(span.target_id, scrapes, place, layout_id, values[mine, column[place]])


def _values(span: SealedSpan, table: LayoutTable) -> FloatArray:
    """Raw values (series x good scrapes)."""
    values = np.full((len(table), span.good_micros.size), np.nan)
    names = ensure_names(table.by_name)
    for name, places in table.by_name.items():
        values[places] = span.matrix(names[name])
    return values


def _columns(among: npt.NDArray[np.int64], layout: LayoutTable) -> npt.NDArray[np.int64]:
    order = np.argsort(among)
    found: npt.NDArray[np.int64] = order[np.searchsorted(among, layout.series_ids, sorter=order)]
    return found


def _frame(target_id: int, scrapes: Scrapes, place: int, layout_id: int | None, values: FloatArray | None) -> Frame:
    return Frame(
        target_id=target_id,
        scraped_at=int(scrapes.micros[place]) / 1e6,
        cycle=int(scrapes.cycle[place]),
        reason=str(scrapes.reason[place]),
        duration_seconds=float(scrapes.duration_seconds[place]),
        bytes=int(scrapes.bytes[place]),
        accepted=int(scrapes.accepted[place]),
        rejected=int(scrapes.rejected[place]),
        missing=int(scrapes.missing[place]),
        layout_id=layout_id,
        values=values,
    )
