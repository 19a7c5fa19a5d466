"""Sets of time: the laws of sets, held against a set of single seconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.core.intervals import intersect, subtract, total, total_time, union

Pairs = list[tuple[float, float]]
seconds = st.integers(0, 60).map(float)
raw = st.lists(st.tuples(seconds, seconds), max_size=12)
sets = raw.map(union)


def points(pairs: Pairs) -> set[int]:
    """The whole seconds that the pairs hold."""
    return {point for start, end in pairs for point in range(int(start), int(end))}


def is_set(pairs: Pairs) -> bool:
    ends = [end for _, end in pairs]
    starts = [start for start, _ in pairs]
    return all(start < end for start, end in pairs) and all(
        end < start for end, start in zip(ends, starts[1:], strict=False)
    )


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], []),
        ([(5.0, 5.0), (7.0, 6.0)], []),
        ([(0.0, 1.0), (1.0, 2.0)], [(0.0, 2.0)]),
        ([(3.0, 4.0), (0.0, 1.0)], [(0.0, 1.0), (3.0, 4.0)]),
        ([(0.0, 9.0), (2.0, 3.0)], [(0.0, 9.0)]),
    ],
)
def test_union_joins_what_touches_and_drops_what_is_empty(pairs: Pairs, expected: Pairs) -> None:
    assert union(pairs) == expected


def test_half_open_neighbours_share_nothing() -> None:
    assert intersect([(0.0, 5.0)], [(5.0, 9.0)]) == []
    assert subtract([(0.0, 5.0)], [(5.0, 9.0)]) == [(0.0, 5.0)]
    assert subtract([(0.0, 9.0)], [(2.0, 3.0), (4.0, 5.0)]) == [(0.0, 2.0), (3.0, 4.0), (5.0, 9.0)]


@given(raw)
def test_union_holds_every_point_once(pairs: Pairs) -> None:
    joined = union(pairs)
    assert is_set(joined)
    assert points(joined) == points(pairs)
    assert total(joined) == len(points(pairs))
    assert union(joined) == joined


@given(sets, sets)
def test_intersect_and_subtract_are_those_of_sets(one: Pairs, other: Pairs) -> None:
    both, rest = intersect(one, other), subtract(one, other)
    assert is_set(both)
    assert is_set(rest)
    assert points(both) == points(one) & points(other)
    assert points(rest) == points(one) - points(other)
    assert total(both) + total(rest) == total(one)
    assert intersect(other, one) == both


@given(sets, sets, sets)
def test_de_morgan(whole: Pairs, one: Pairs, other: Pairs) -> None:
    assert subtract(whole, union([*one, *other])) == intersect(subtract(whole, one), subtract(whole, other))


@given(sets)
def test_instants_follow_the_same_arithmetic(pairs: Pairs) -> None:
    start = datetime(2026, 3, 29, tzinfo=UTC)
    as_instants = [(start + timedelta(seconds=a), start + timedelta(seconds=b)) for a, b in pairs]
    assert union(as_instants) == as_instants
    assert total_time(as_instants).total_seconds() == total(pairs)
