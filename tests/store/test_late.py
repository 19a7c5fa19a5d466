"""Samples and roll-ups from the past: added in any order, any number of times, they are there once."""

from __future__ import annotations

import math
from datetime import timedelta

import numpy as np
import pytest
from store.small_fleet import NOW, T0, Fleet, make_fleet, spec

from gpufleet.store import queries
from gpufleet.store.append import append_frames
from gpufleet.store.frames import StoreError
from gpufleet.store.late import add_samples
from gpufleet.store.models import Head
from gpufleet.store.names import name_ids
from gpufleet.store.partitions import SPAN
from gpufleet.store.rollups import COLUMNS, add_rollups, read_rollups
from gpufleet.store.seal import GRACE, seal
from gpufleet.store.series import ensure_series
from gpufleet.store.tiers import TIERS

NAN = math.nan
LATER = NOW + SPAN + GRACE


def series(fleet: Fleet, *names: str) -> list[int]:
    return ensure_series(fleet.targets[0].id, [spec(name, fleet.gpus[0].id) for name in names], NOW)


def samples(ids: list[int]) -> dict[int, list[tuple[float, float]]]:
    found = queries.read_samples(ids, T0 - 1e9, T0 + 1e9)
    return {
        ids.index(one): list(zip((of.times - T0).tolist(), of.values.tolist(), strict=True))
        for one, of in found.items()
    }


def test_samples_of_any_time_are_there_once(fleet: Fleet) -> None:
    ids = series(fleet, "a", "b")
    times = np.array([0.0, 15.0, -7200.0, -400 * 86400.0, 15.25]) + T0
    values = [[1, 10], [2, NAN], [3, 30], [4, 40], [NAN, NAN]]
    now = NOW + timedelta(minutes=1)
    assert add_samples(fleet.targets[0].id, ids, times, values, now) == 7
    assert add_samples(fleet.targets[0].id, ids, times[::-1], values[::-1], now) == 0
    old = -400 * 86400.0
    assert samples(ids) == {0: [(old, 4), (-7200, 3), (0, 1), (15, 2)], 1: [(old, 40), (-7200, 30), (0, 10)]}
    assert Head.objects.get().scraped_at == NOW + timedelta(seconds=15)


def test_series_that_a_scrape_lacks_are_added_to_it_and_the_first_value_wins(fleet: Fleet) -> None:
    a, b, c = series(fleet, "a", "b", "c")
    target = fleet.targets[0].id
    layout = fleet.layout(0, [spec("a", fleet.gpus[0].id)])
    append_frames([fleet.frame(0, at, layout, at) for at in (0, 15)] + [fleet.frame(0, 30, None)], NOW)
    times = [T0, T0 + 15, T0 + 30, T0 + 45]
    later = NOW + SPAN
    assert add_samples(target, [b, a], times, [[5, 99], [NAN, 99], [6, 6], [7, 8]], later) == 3
    assert add_samples(target, [c], times, [[1], [2], [3], [4]], later) == 3
    expected = {0: [(0, 0), (15, 15), (45, 8)], 1: [(0, 5), (45, 7)], 2: [(0, 1), (15, 2), (45, 4)]}
    assert samples([a, b, c]) == expected
    seal(LATER)
    assert samples([a, b, c]) == expected
    health = queries.read_health([target], T0, T0 + 60)[target]
    assert health.reasons == ["", "", "timeout", ""]


def test_a_time_twice_in_one_call_is_one_scrape(fleet: Fleet) -> None:
    a, b = series(fleet, "a", "b")
    assert add_samples(fleet.targets[0].id, [a, b], [T0, T0, T0], [[NAN, 1], [2, 3], [4, 5]], NOW) == 2
    assert samples([a, b]) == {0: [(0, 2)], 1: [(0, 1)]}


@pytest.mark.parametrize(
    ("times", "values"),
    [
        ([T0], [[1.0]]),
        ([T0, T0 - 1], [[1.0, 1.0]]),
        ([T0 + 1], [[1.0, 1.0]]),
        ([NAN], [[1.0, 1.0]]),
        ([-1.0], [[1.0, 1.0]]),
    ],
)
def test_what_makes_no_sense_is_refused(fleet: Fleet, times: list[float], values: list[list[float]]) -> None:
    with pytest.raises(StoreError):
        add_samples(fleet.targets[0].id, series(fleet, "a", "b"), times, values, NOW)
    assert samples(series(fleet, "a", "b")) == {}


def test_a_replay_takes_no_samples_from_the_past(fleet: Fleet) -> None:
    replay = make_fleet("replay", is_replay=True)
    with pytest.raises(StoreError, match="replay"):
        add_samples(replay.targets[0].id, series(replay, "a"), [T0], [[1.0]], NOW)


def rolled(fleet: Fleet, tier: str, name: str) -> dict[float, list[float]]:
    """`{start: [count, sum, min, max, last, increase]}` of the first series of a name."""
    kept = TIERS[tier]
    found = {}
    for row in read_rollups(kept, [fleet.targets[0].id], T0 - 1e9, T0 + 1e9, name_ids([name]), COLUMNS):
        for step in np.flatnonzero(row.columns["count"][:, 0]).tolist():
            at = row.starts_at + step * kept.seconds - T0
            found[at] = [float(row.columns[name][step, 0]) if name in row.columns else NAN for name in COLUMNS]
    return found


@pytest.mark.parametrize("tier", ["5m", "1h"])
def test_rollups_without_samples_are_kept_once(fleet: Fleet, tier: str) -> None:
    a, b = series(fleet, "a", "b")
    seconds = TIERS[tier].seconds
    starts = np.array([0, seconds, 400 * seconds]) + T0
    one = np.array([[20, 20], [0, 20], [5, 20]])

    def add(add_to: float) -> int:
        cells = one + add_to
        return add_rollups(
            tier, fleet.targets[0].id, [a, b], starts, count=one, mean=cells, min=cells - 1, max=cells + 1,
            last=cells, increase=None, now=NOW,
        )  # fmt: skip

    assert add(0.5) == 5
    assert add(7.5) == 0
    expected = {0: [20, 410, 19.5, 21.5, 20.5, NAN], 400.0 * seconds: [5, 27.5, 4.5, 6.5, 5.5, NAN]}
    np.testing.assert_equal(rolled(fleet, tier, "a"), expected)


def test_sealed_samples_go_before_rollups_that_came_without(fleet: Fleet) -> None:
    [a] = series(fleet, "a")
    for value in (100.0, 200.0):
        cells = [[value]] * 2
        add_rollups(
            "5m",
            fleet.targets[0].id,
            [a],
            [T0, T0 + 300],
            count=[[20]] * 2,
            mean=cells,
            min=cells,
            max=cells,
            last=cells,
            now=NOW,
        )
    add_samples(fleet.targets[0].id, [a], [T0 + 310, T0 + 320], [[1.0], [3.0]], LATER)
    np.testing.assert_equal(rolled(fleet, "5m", "a"), {0: [20, 2000, 100, 100, 100, NAN], 300: [2, 4, 1, 3, 3, NAN]})


@pytest.mark.parametrize(
    "wrong",
    [
        {"tier": "1d"},
        {"starts": [T0 + 1]},
        {"starts": [T0, T0]},
        {"mean": [[NAN]]},
        {"count": [[1, 2]]},
        {"last": [[math.inf]]},
    ],
    ids=str,
)
def test_rollups_that_make_no_sense_are_refused(fleet: Fleet, wrong: dict[str, object]) -> None:
    [a] = series(fleet, "a")
    cells = {"starts": [T0], "count": [[1]], "mean": [[1.0]], "min": [[1.0]], "max": [[1.0]], "last": [[1.0]]}
    with pytest.raises(StoreError):
        add_rollups(**{"tier": "5m", "target_id": fleet.targets[0].id, "series_ids": [a], "now": NOW, **cells, **wrong})  # type: ignore[arg-type]
    assert rolled(fleet, "5m", "a") == {}
