"""Arithmetic of half-open intervals `[start, end)`: sets of time, as sorted pairs that neither touch nor overlap.

Times are any one ordered type with differences: Unix seconds, or aware datetimes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TypeVar

T = TypeVar("T", float, datetime)


def union(pairs: Iterable[tuple[T, T]]) -> list[tuple[T, T]]:
    """The time that any of the pairs holds. Pairs may overlap and come in any order; empty ones hold nothing."""
    found: list[tuple[T, T]] = []
    for start, end in sorted(pair for pair in pairs if pair[0] < pair[1]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def intersect(one: Sequence[tuple[T, T]], other: Sequence[tuple[T, T]]) -> list[tuple[T, T]]:
    """The time that both sets hold. Both are sets as `union` returns them."""
    found: list[tuple[T, T]] = []
    left = right = 0
    while left < len(one) and right < len(other):
        start = max(one[left][0], other[right][0])
        end = min(one[left][1], other[right][1])
        if start < end:
            found.append((start, end))
        if one[left][1] <= other[right][1]:
            left += 1
        else:
            right += 1
    return found


def subtract(one: Sequence[tuple[T, T]], other: Sequence[tuple[T, T]]) -> list[tuple[T, T]]:
    """The time of the first set that the second does not hold. Both are sets as `union` returns them."""
    found: list[tuple[T, T]] = []
    first = 0
    for start, end in one:
        while first < len(other) and other[first][1] <= start:
            first += 1
        for taken_from, taken_to in other[first:]:
            if taken_from >= end:
                break
            if start < taken_from:
                found.append((start, taken_from))
            start = taken_to
        if start < end:
            found.append((start, end))
    return found


def total(pairs: Iterable[tuple[float, float]]) -> float:
    """Seconds of a set of Unix seconds."""
    return float(sum(end - start for start, end in pairs))


def total_time(pairs: Iterable[tuple[datetime, datetime]]) -> timedelta:
    """Length of a set of datetimes, in elapsed time whatever their zones."""
    return sum(((end - start) for start, end in pairs), timedelta(0))
