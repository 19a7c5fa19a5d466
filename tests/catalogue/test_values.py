"""No-value numbers and impossible ones: exactly these are missing, everything else comes through times its factor."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import case

from gpufleet.catalogue.meaning import resolve
from gpufleet.catalogue.values import SENTINEL_CODES, clean, count_missing

NO_BOUND = math.nan
INT64 = [9223372036854775792.0, 9223372036854775795.0, 2.0**63, 9.2e18]
INT32 = [2147483632.0, 2147483633.0, 2147483634.0, 2147483635.0, 2147483647.0]
DOUBLE = [140737488355328.0, 140737488355331.0, 14073748835532800.0, 14073748835533100.0]
AMD = [65535.0, 4294967295.0, 2.0**64, 18446744073709551615.0]


def one(value: float, sentinels: str, low: float = NO_BOUND, high: float = NO_BOUND, scale: float = 1.0) -> float:
    return float(clean([value], [scale], [low], [high], [SENTINEL_CODES[sentinels]])[0])


@pytest.mark.parametrize(
    ("sentinels", "missing", "kept"),
    [
        ("", [], [*INT64, *INT32, *DOUBLE, *AMD]),
        ("dcgm", [*INT64, *DOUBLE], [*INT32, *AMD[:2]]),
        ("dcgm_int32", [*INT64, *INT32, *DOUBLE], AMD[:2]),
        ("amd", AMD, [*INT64, *INT32, *DOUBLE]),
    ],
)
def test_no_value_numbers_of_each_source(sentinels: str, missing: list[float], kept: list[float]) -> None:
    assert all(math.isnan(one(value, sentinels)) for value in missing)
    assert [one(value, sentinels) for value in kept] == kept


@pytest.mark.parametrize("value", [2147483631.0, 2147483648.0, 140737488355327.0, 140737488355344.0, 9.19e18])
def test_the_neighbours_of_the_no_value_numbers_are_numbers(value: float) -> None:
    assert one(value, "dcgm_int32") == value


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_missing(value: float) -> None:
    assert math.isnan(one(value, ""))
    assert count_missing([value], [0.0], [1.0], [0]) == (1, 0)


def test_the_bounds_belong_to_the_range() -> None:
    values = clean([-41, -40, 0, 150, 151], 2.0, -40, 150, 0)
    np.testing.assert_array_equal(values, [np.nan, -80, 0, 300, np.nan])


def test_none_is_no_bound() -> None:
    np.testing.assert_array_equal(clean([1e300, -1e300], [1, 1], [None, 0.0], [None, 1.0], [0, 0]), [1e300, np.nan])


def test_a_matrix_of_scrapes_takes_one_row_of_bounds() -> None:
    values = clean([[1, 50], [2, 150]], [1, 0.01], [0, 0], [10, 100], [0, 0])
    np.testing.assert_array_equal(values, [[1, 0.5], [2, np.nan]])


def test_missing_and_impossible_are_counted_apart() -> None:
    values = [41, 345, 2147483632, math.nan]
    assert count_missing(values, [-40] * 4, [150] * 4, [2] * 4) == (2, 1)


def test_case_020_impossible_spikes() -> None:
    folder, told = case("020")
    raw: list[float] = []
    meanings = []
    for path in sorted(folder.glob("t*.prom")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                raw.append(float(line.rpartition(" ")[2]))
                meanings.append(resolve(line.partition("{")[0], {}))
    codes = [SENTINEL_CODES[meaning.sentinels] for meaning in meanings]
    low, high = [meaning.low for meaning in meanings], [meaning.high for meaning in meanings]
    missing, impossible = count_missing(raw, low, high, codes)
    values = clean(raw, [meaning.scale for meaning in meanings], low, high, codes)
    assert missing + impossible == told["numbers"]["impossible"]
    assert np.count_nonzero(np.isfinite(values)) == told["numbers"]["good"]
    top = {meaning.metric: 0.0 for meaning in meanings}
    for meaning, value in zip(meanings, values, strict=True):
        top[meaning.metric] = np.nanmax([top[meaning.metric], value])
    assert top == {"gpu_temperature_celsius": 64, "gpu_utilization_ratio": 1}


@given(
    st.lists(
        st.tuples(st.floats(), st.floats(0.001, 1e9), st.sampled_from(sorted(SENTINEL_CODES.values()))), min_size=1
    )
)
def test_together_is_the_same_as_one_by_one(rows: list[tuple[float, float, int]]) -> None:
    values, scales, codes = (list(column) for column in zip(*rows, strict=True))
    together = clean(values, scales, NO_BOUND, NO_BOUND, codes)
    alone = [clean([value], [scale], [NO_BOUND], [NO_BOUND], [code])[0] for value, scale, code in rows]
    np.testing.assert_array_equal(together, alone)
    missing, impossible = count_missing(values, NO_BOUND, NO_BOUND, codes)
    assert impossible == 0
    assert missing == sum(math.isnan(value) or not math.isfinite(raw) for value, raw in zip(alone, values, strict=True))
