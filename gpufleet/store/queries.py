"""Reads. Instants are Unix seconds (float64) in and out; values of frames are raw, those of ranges canonical."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from django.conf import settings
from django.db import connection

from gpufleet.core.times import from_unix
from gpufleet.store.chunks import SPAN_SECONDS, read_spans
from gpufleet.store.frame_rows import AT, FRAME, frame_of, newest_rows, read
from gpufleet.store.frames import FloatArray, Frame
from gpufleet.store.layouts import LayoutTable, layout_tables
from gpufleet.store.partitions import LIVE
from gpufleet.store.ranges import (
    Band,
    IncreaseResult,
    IncreaseRow,
    RangeResult,
    RangeRow,
    Samples,
    read_band,
    read_bands,
    read_increase,
    read_last_before,
    read_range,
    read_ranges,
    read_samples,
)
from gpufleet.store.realms import by_realm
from gpufleet.store.rolled_frames import rolled_frames, sampled_since
from gpufleet.store.sealed_frames import frames_of, sealed_frames
from gpufleet.store.sources import chunk_pieces

__all__ = [
    "Band",
    "Health",
    "IncreaseResult",
    "IncreaseRow",
    "Latest",
    "RangeResult",
    "RangeRow",
    "Samples",
    "latest_by_gpu",
    "read_at",
    "read_band",
    "read_bands",
    "read_cycle",
    "read_frames",
    "read_health",
    "read_increase",
    "read_last_before",
    "read_latest",
    "read_range",
    "read_ranges",
    "read_samples",
]

_MICRO = 1e-6
_ORDER = "ORDER BY target_id, scraped_at"


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest good frame of a target and what its values mean."""

    target_id: int
    scraped_at: float
    frame: Frame
    layout: LayoutTable

    @property
    def values(self) -> FloatArray:
        """Canonical, in the order of the layout; NaN is missing."""
        assert self.frame.values is not None  # noqa: S101 - a good frame
        return self.layout.clean(self.frame.values)


@dataclass(frozen=True, slots=True)
class Health:
    """The scrapes of one target, in order of time; arrays of one length."""

    target_id: int
    times: FloatArray
    ok: npt.NDArray[np.bool_]
    reasons: list[str]
    duration_seconds: FloatArray
    bytes: FloatArray
    accepted: FloatArray
    rejected: FloatArray
    missing: FloatArray


def read_cycle(target_ids: Sequence[int], cycle: int) -> list[Frame]:
    """The frames of a cycle, good or not, in order of (target, time).

    A live cycle is a slot of the wall clock, so its frames lie within a few intervals of it; a replayed one may have
    another length and is found by its index. Chunks are only asked for targets that have no frame.
    """
    interval = int(settings.ENV["GPUFLEET_INTERVAL_SECONDS"])
    slot = cycle * interval
    found: list[Frame] = []
    for realm, ids in by_realm(target_ids).items():
        if realm != LIVE:
            found += _frames(ids, "cycle = %s", [cycle])
            continue
        start, end = max(0, slot - 60), slot + 3 * interval + 60
        condition = "cycle = %s AND scraped_at >= %s AND scraped_at < %s"
        frames = _frames(ids, condition, [cycle, from_unix(start), from_unix(end)])
        missing = sorted(set(ids) - {frame.target_id for frame in frames})
        found += frames + list(sealed_frames(missing, start, end, lambda scrapes: scrapes.cycle == cycle))
    return sorted(found, key=_place)


def read_frames(target_ids: Sequence[int], start: float, end: float, every: int = 1) -> list[Frame]:
    """All frames of `[start, end)`, good or not, in order of (target, time).

    `every=n` keeps those whose cycle is a multiple of n: the same ones wherever the window begins.
    """
    if every < 1:
        raise ValueError("every must be 1 or more")
    condition, window = "scraped_at >= %s AND scraped_at < %s", [from_unix(start), from_unix(end)]
    if every == 1:
        frames = _frames(target_ids, condition, window)
    else:
        frames = _frames(target_ids, f"{condition} AND cycle %% %s = 0", [*window, every])
    sealed = sealed_frames(_live(target_ids), start, end, None if every == 1 else lambda of: of.cycle % every == 0)
    return sorted({_place(frame): frame for frame in (*frames, *sealed)}.values(), key=_place)


def read_latest(target_ids: Sequence[int], metrics: Collection[str] | None = None) -> list[Latest]:
    """The newest good frame of each target, in order of target; with `metrics` only where the layout has one of them.

    A target that never had a good scrape is left out. Two queries, whatever the number of targets, and one more when
    some have been silent for so long that their last scrape is sealed.
    """
    with connection.cursor() as cursor:
        cursor.execute("SELECT target_id, scraped_at FROM store_head WHERE target_id = ANY(%s)", [list(target_ids)])
        heads = dict(cursor.fetchall())
    if not heads:
        return []
    # The bounds let the planner leave out every partition but the newest.
    condition = (
        "scraped_at BETWEEN %s AND %s AND (target_id, scraped_at) IN"
        " (SELECT * FROM unnest(%s::bigint[], %s::timestamptz[])) AND values IS NOT NULL"
    )
    bounds = [min(heads.values()), max(heads.values())]
    frames = _frames(list(heads), condition, [*bounds, list(heads), list(heads.values())])
    there = {frame.target_id for frame in frames}
    silent = {target_id: at.timestamp() for target_id, at in heads.items() if target_id not in there}
    return _latest(sorted([*frames, *_sealed_at(silent)], key=_place), metrics)


def read_at(
    target_ids: Sequence[int], at: float, within_seconds: float, metrics: Collection[str] | None = None
) -> list[Latest]:
    """The newest good frame of each target in `[at - within_seconds, at]`: the fleet as it was.

    Where only roll-ups are left, they tell the last values of a step before `at`.
    """
    found = {row[0]: frame_of(row) for row in newest_rows(target_ids, at - within_seconds, at, FRAME)}
    sealed: dict[int, float] = {}
    for span in read_spans(_live(target_ids), at - within_seconds, at + _MICRO, ()):
        times = span.good_micros[: np.searchsorted(span.good_micros, round(at * 1e6), side="right")]
        newest = times[-1] / 1e6 if times.size else -1.0
        other = found.get(span.target_id)
        if newest >= at - within_seconds and (other is None or newest >= other.scraped_at):
            sealed[span.target_id] = newest
    found |= {frame.target_id: frame for frame in _sealed_at(sealed)}
    missing = [target_id for target_id in _live(target_ids) if target_id not in found]
    if missing and at < sampled_since():
        found |= {frame.target_id: frame for frame in rolled_frames(missing, at, within_seconds)}
    return _latest(sorted(found.values(), key=_place), metrics)


def latest_by_gpu(latest: Sequence[Latest], metrics: Collection[str]) -> dict[int, dict[str, tuple[float, float]]]:
    """`{gpu_id: {metric: (at, canonical value)}}` of whole GPUs; what is missing is left out, the newest wins."""
    found: dict[int, dict[str, tuple[float, float]]] = {}
    for item in sorted(latest, key=lambda one: one.scraped_at):
        values, gpu_ids = item.values, item.layout.gpu_ids
        for metric in metrics:
            for place in item.layout.places_of(metric).tolist():
                gpu_id, value = int(gpu_ids[place]), float(values[place])
                if gpu_id >= 0 and value == value:
                    found.setdefault(gpu_id, {})[metric] = (item.scraped_at, value)
    return found


def read_health(target_ids: Sequence[int], start: float, end: float) -> dict[int, Health]:
    """Scrape health of each target in `[start, end)`; a target without a scrape is left out."""
    columns = f"target_id, {AT}, reason, duration_seconds, bytes, accepted, rejected, missing"
    condition, window = "scraped_at >= %s AND scraped_at < %s", [from_unix(start), from_unix(end)]
    rows_of: dict[int, dict[float, tuple[Any, ...]]] = {}
    for target_id, at, *facts in read(target_ids, columns, condition, window):
        rows_of.setdefault(target_id, {})[at] = tuple(facts)
    for ids, low, high in chunk_pieces(_live(target_ids), start, end, 1):
        for span in read_spans(ids, low, high):
            of = span.scrapes
            inside = (of.micros >= round(low * 1e6)) & (of.micros < round(high * 1e6))
            part = of.taken(inside)
            numbers = (part.reason, part.duration_seconds, part.bytes, part.accepted, part.rejected, part.missing)
            if len(part):
                columns_of = [(part.micros / 1e6).tolist(), *(fact.tolist() for fact in numbers)]
                rows_of.setdefault(span.target_id, {}).update(
                    {row[0]: row[1:] for row in zip(*columns_of, strict=True)}
                )
    return {
        target_id: _health(target_id, [(at, *rows[at]) for at in sorted(rows)])
        for target_id, rows in sorted(rows_of.items())
    }


def _health(target_id: int, rows: Sequence[tuple[Any, ...]]) -> Health:
    times, reasons, *numbers = zip(*rows, strict=True)
    arrays = [np.array(column, dtype=np.float64) for column in numbers]
    ok = np.array([not reason for reason in reasons])
    return Health(target_id, np.array(times), ok, list(reasons), *arrays)


def _frames(target_ids: Sequence[int], condition: str, parameters: Sequence[Any]) -> list[Frame]:
    found = [frame_of(row) for row in read(target_ids, FRAME, condition, parameters, _ORDER)]
    return sorted(found, key=_place)


def _place(frame: Frame) -> tuple[int, float]:
    return frame.target_id, frame.scraped_at


def _live(target_ids: Sequence[int]) -> list[int]:
    return by_realm(target_ids).get(LIVE, [])


def _sealed_at(times: dict[int, float]) -> list[Frame]:
    """The good frame of each target at its time (Unix seconds), out of chunks."""
    found: list[Frame] = []
    by_span: dict[float, list[int]] = {}
    for target_id in _live(list(times)):
        by_span.setdefault(times[target_id] // SPAN_SECONDS, []).append(target_id)
    for number, ids in by_span.items():
        for span in read_spans(ids, number * SPAN_SECONDS, (number + 1) * SPAN_SECONDS, None):
            at = times[span.target_id]
            found += frames_of(span, at, at + _MICRO, lambda scrapes: scrapes.good)
    return found


def _latest(frames: Sequence[Frame], metrics: Collection[str] | None) -> list[Latest]:
    tables = layout_tables([frame.layout_id for frame in frames if frame.layout_id is not None])
    return [
        Latest(frame.target_id, frame.scraped_at, frame, tables[frame.layout_id])
        for frame in frames
        if frame.layout_id in tables
        and (metrics is None or any(metric in tables[frame.layout_id].places for metric in metrics))
    ]
