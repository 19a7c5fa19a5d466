"""What a target was like at a moment of which only roll-ups are left: the last values of the step before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from django.db import connection

from gpufleet.store.frames import Frame
from gpufleet.store.partitions import CHUNKS, FRAMES, present
from gpufleet.store.rollups import RolledRow, read_rollups
from gpufleet.store.tiers import TIER_1H, TIER_5M, Tier


def sampled_since() -> float:
    """Unix seconds before which there are no samples any longer."""
    starts = [start.timestamp() for ladder in (CHUNKS, FRAMES) for start, _ in present(ladder).values()]
    return min(starts, default=float("inf"))


def rolled_frames(target_ids: Sequence[int], at: float, within_seconds: float) -> list[Frame]:
    """One frame a target, of the newest whole step that ended in `[at - within_seconds, at]`, or of the one before it.

    `scraped_at` is the start of its step: what it shows is no older than that.
    """
    found: dict[int, Frame] = {}
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, id FROM store_name")
        names = dict(cursor.fetchall())
    for tier in (TIER_5M, TIER_1H):
        left = [target_id for target_id in target_ids if target_id not in found]
        since = at - within_seconds - tier.seconds
        rows: dict[int, list[RolledRow]] = {}
        for row in read_rollups(tier, left, since, at, names, {"last"}) if left else ():
            rows.setdefault(row.target_id, []).append(row)
        for target_id, mine in rows.items():
            frame = _newest(tier, mine, since, at)
            if frame is not None:
                found[target_id] = frame
    return list(found.values())


def _newest(tier: Tier, rows: list[RolledRow], since: float, at: float) -> Frame | None:
    newest, where = -1.0, [-1] * len(rows)
    for number, row in enumerate(rows):
        times = row.starts_at + tier.seconds * np.arange(tier.steps)
        there = ~np.isnan(row.columns["last"]).all(axis=1) & (times + tier.seconds <= at) & (times >= since)
        if there.any():
            where[number] = int(np.flatnonzero(there)[-1])
            newest = max(newest, float(times[where[number]]))
    if newest < 0:
        return None
    layout = max((row.layout for row in rows), key=len)
    place = {series_id: number for number, series_id in enumerate(layout.series_ids.tolist())}
    values = np.full(len(layout), np.nan)
    for row, step in zip(rows, where, strict=True):
        if step >= 0 and row.starts_at + step * tier.seconds == newest:
            for series_id, value in zip(row.layout.series_ids[row.places], row.columns["last"][step], strict=True):
                if int(series_id) in place:
                    values[place[int(series_id)]] = value
    accepted = int(np.count_nonzero(~np.isnan(values)))
    return Frame(layout.target_id, newest, 0, "", 0.0, 0, accepted, 0, 0, layout.id, values)
