"""The store as the storage of queries: frames and chunks to samples, with a marker where a series ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from django.db import OperationalError, connection, transaction
from psycopg.errors import QueryCanceled

from gpufleet.promql import inventory
from gpufleet.promql.errors import QueryTimeout
from gpufleet.promql.inventory import Listed
from gpufleet.promql.limits import Budget
from gpufleet.promql.matchers import LabelMatcher
from gpufleet.promql.vectors import STALE, FloatArray, IntArray, LabelKey, Labels, Samples, is_stale, key_of
from gpufleet.store.names import name_ids
from gpufleet.store.queries import read_health
from gpufleet.store.scrape_times import layouts_with, scrape_times
from gpufleet.store.sources import Block, Wanted, blocks

LATEST_MILLIS = 253_402_300_000_000  # the end of the year 9999, beyond which there are no dates


class ScrapedStorage:
    """What was scraped, and `up`, `scrape_duration_seconds`, `scrape_samples_scraped` of every scrape."""

    def select(self, matchers: Sequence[LabelMatcher], start: int, end: int, budget: Budget) -> list[Samples]:
        start, end = max(start, 0), min(end, LATEST_MILLIS)
        if start > end:
            return []
        with _in_time(budget):
            found = inventory.list_series(matchers, start, end, budget)
            parts = list(_of_scrapes(matchers, start, end, budget))
            for canonical in (False, True):
                listed = [one for one in found if one.canonical is canonical]
                if listed:
                    parts += _of_series(listed, start, end, canonical, budget)
        return _unique(parts)

    def series(self, matchers: Sequence[LabelMatcher], start: int, end: int, budget: Budget) -> list[Labels]:
        with _in_time(budget):
            found = [one.labels for one in inventory.list_series(matchers, start, end, budget)]
            found += [labels for _, _, labels in inventory.list_scrapes(matchers, start, end)]
        return list({key_of(labels): labels for labels in found}.values())


@contextmanager
def _in_time(budget: Budget) -> Iterator[None]:
    """No statement begins when the query's time is over, and the server ends one that outlives it."""

    def timed(execute: Callable[..., Any], *statement: Any) -> Any:
        budget.check_time()
        return execute(*statement)

    try:
        with transaction.atomic(), connection.cursor() as cursor, connection.execute_wrapper(timed):
            millis = int(budget.seconds_left * 1000) + 1
            cursor.execute("SELECT set_config('statement_timeout', %s, true)", [str(max(1, millis))])
            yield
    except OperationalError as error:
        if isinstance(error.__cause__, QueryCanceled):
            raise QueryTimeout(f"the query took longer than {budget.limits.timeout_seconds:g} s") from error
        raise


def _of_series(listed: Sequence[Listed], start: int, end: int, canonical: bool, budget: Budget) -> Iterator[Samples]:
    """One Samples a target, its series under one kind of name."""
    by_target: dict[int, list[Listed]] = {}
    for one in listed:
        by_target.setdefault(one.target_id, []).append(one)
    wanted: Wanted = {
        target_id: np.unique(np.array([one.series_id for one in mine], dtype=np.int64))
        for target_id, mine in by_target.items()
    }
    low, high = start / 1000, (end + 1) / 1000
    names = name_ids({one.exporter_name for one in listed})
    of_target: dict[int, list[Block]] = {}
    for block in blocks(wanted, low, high, names, clean=canonical):
        budget.take(len(listed), block.values.size)
        of_target.setdefault(block.layout.target_id, []).append(block)
    silent = scrape_times(list(of_target), low, high, layouts_with(wanted))
    for target_id, mine in of_target.items():
        quiet = silent[target_id][0] if target_id in silent else np.empty(0, dtype=np.int64)
        yield _samples(by_target[target_id], wanted[target_id], mine, quiet, canonical)


def _samples(
    listed: Sequence[Listed], series_ids: IntArray, blocks_of: Sequence[Block], quiet: IntArray, canonical: bool
) -> Samples:
    """`quiet`: microseconds of scrapes that listed none of the series, or failed."""
    micros = [np.rint(block.times * 1e6).astype(np.int64) for block in blocks_of]
    times = np.concatenate([*micros, quiet])
    values = np.full((series_ids.size, times.size), STALE)
    first = 0
    for block in blocks_of:
        rows = np.searchsorted(series_ids, block.series_ids)
        after = first + block.times.size
        values[rows, first:after] = _marked(block, canonical).T
        first = after
    order = np.argsort(times, kind="stable")
    places = np.searchsorted(series_ids, [one.series_id for one in listed])
    return Samples([one.labels for one in listed], times[order] // 1000, values[places][:, order])


def _marked(block: Block, canonical: bool) -> FloatArray:
    """The block's values with a marker where there is no sample: not listed; or, of a canonical one, no value."""
    if canonical:
        return np.where(np.isnan(block.values), STALE, block.values)
    return block.values if block.listed is None else np.where(block.listed, block.values, STALE)


def _of_scrapes(matchers: Sequence[LabelMatcher], start: int, end: int, budget: Budget) -> Iterator[Samples]:
    """Samples of inventory.SCRAPE_NAMES. A failed scrape is a sample too: there `up` is 0."""
    rows = list(inventory.list_scrapes(matchers, start, end))
    low, high = start / 1000, (end + 1) / 1000
    ups = {target_id: labels for name, target_id, labels in rows if name == inventory.UP}
    if ups:
        for target_id, (micros, good) in scrape_times(list(ups), low, high).items():
            budget.take(len(ups), micros.size)
            yield Samples([ups[target_id]], micros // 1000, good.astype(np.float64)[None, :])
    others = [row for row in rows if row[0] != inventory.UP]
    health = read_health(sorted({target_id for _, target_id, _ in others}), low, high) if others else {}
    for name, target_id, labels in others:
        if target_id in health:
            mine = health[target_id]
            values = mine.duration_seconds if name == inventory.DURATION else mine.accepted
            budget.take(len(others), values.size)
            yield Samples([labels], np.rint(mine.times * 1e6).astype(np.int64) // 1000, values[None, :])


def _unique(parts: Sequence[Samples]) -> list[Samples]:
    """Series of equal labels made one: a metric that an exporter renamed, a target that got another address."""
    places: dict[LabelKey, list[tuple[int, int]]] = {}
    for number, part in enumerate(parts):
        for row, labels in enumerate(part.labels):
            places.setdefault(key_of(labels), []).append((number, row))
    several = [found for found in places.values() if len(found) > 1]
    if not several:
        return list(parts)
    merged = {place for found in several for place in found}
    kept = []
    for number, part in enumerate(parts):
        rows = [row for row in range(len(part.labels)) if (number, row) not in merged]
        if rows:
            kept.append(part.taken(rows, slice(None)))
    return kept + [_as_one([parts[number].taken([row], slice(None)) for number, row in found]) for found in several]


def _as_one(same: Sequence[Samples]) -> Samples:
    """All samples in order of time, the first of two at one time; a marker only where none of the series goes on."""
    lives = [one.times[~is_stale(one.values[0])] for one in same]
    times, values = [], []
    for number, one in enumerate(same):
        kept = np.ones(one.times.size, dtype=np.bool_)
        for other, life in enumerate(lives):
            if other != number and life.size:
                kept &= (one.times < life[0]) | (one.times > life[-1])
        kept |= ~is_stale(one.values[0])
        times.append(one.times[kept])
        values.append(one.values[0, kept])
    all_times, first = np.unique(np.concatenate(times), return_index=True)
    return Samples(same[0].labels, all_times, np.concatenate(values)[first][None, :])
