"""Growth of counters: jitter is not a reset, a reset counts from zero, nothing is ever negative."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shared import case

from gpufleet.store.counters import increase, rate
from gpufleet.store.frames import FloatArray

NAN = math.nan


def readings_of_case(number: str, name: str) -> FloatArray:
    folder, _ = case(number)
    found = []
    for path in sorted(folder.glob("t*.prom")):
        found += [
            float(line.rsplit(" ", 1)[1])
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.startswith(name + "{")
        ]
    return np.array(found)


def test_case_021_a_true_counter_begins_again() -> None:
    _, facts = case("021")
    growth = increase(readings_of_case("021", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"))
    assert growth.increase[1:].tolist() == [0, 6, 0, 2]
    assert growth.total == facts["numbers"]["replay_increase"]
    assert growth.resets == facts["numbers"]["replay_resets"]


@pytest.mark.parametrize("scale", [1.0, 0.001], ids=["mJ", "J"])
def test_case_022_jitter_and_reset_of_an_energy_counter(scale: float) -> None:
    _, facts = case("022")
    joules = readings_of_case("022", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION") * scale
    growth = increase(joules)
    to_joules = 0.001 / scale
    assert growth.total * to_joules == pytest.approx(facts["numbers"]["energy_j"], abs=1e-6)
    assert growth.resets == facts["numbers"]["resets"]
    assert growth.reset.tolist() == [False, False, False, False, True, False]
    watts = rate(np.arange(0.0, 90.0, 15.0), joules)[1:] * to_joules
    assert watts.tolist() == pytest.approx(facts["numbers"]["power_w"], abs=1e-6)


@pytest.mark.parametrize(
    ("readings", "grown", "resets"),
    [
        ([], [], 0),
        ([5], [NAN], 0),
        ([NAN, 5, NAN, 8], [NAN, NAN, NAN, 3], 0),
        ([NAN, NAN], [NAN, NAN], 0),
        ([1, 2, 4], [NAN, 1, 2], 0),
        ([3, 2], [NAN, 2], 1),
        ([100, 99.5, 101], [NAN, 99.5, 1.5], 1),
        ([5000, 4999, 4999, 5001], [NAN, 0, 0, 1], 0),
        ([5000, 4999, 4940, 4950], [NAN, 0, 4940, 10], 1),
        ([5000, 10, 9, 20], [NAN, 10, 9, 11], 2),
        ([5000, 0, 0], [NAN, 0, 0], 1),
        ([2.0**64, 2.0**64, 7], [NAN, 0, 7], 1),
    ],
    ids=str,
)
def test_growth(readings: list[float], grown: list[float], resets: int) -> None:
    found = increase(np.array(readings, dtype=np.float64))
    np.testing.assert_array_equal(found.increase, np.array(grown, dtype=np.float64))
    assert found.resets == resets


numbers = st.one_of(st.just(NAN), st.floats(0, 1e15), st.integers(0, 20).map(float))


@given(st.lists(numbers, max_size=60))
def test_growth_is_never_negative_and_known_between_readings(readings: list[float]) -> None:
    array = np.array(readings, dtype=np.float64)
    grown = increase(array).increase
    there = np.flatnonzero(~np.isnan(array))
    assert np.flatnonzero(~np.isnan(grown)).tolist() == there[1:].tolist()
    assert not (grown[there[1:]] < 0).any()


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=60).map(sorted))
def test_without_a_drop_the_growth_is_the_difference(readings: list[float]) -> None:
    growth = increase(np.array(readings))
    assert growth.resets == 0
    assert growth.total == pytest.approx(readings[-1] - readings[0], rel=1e-9, abs=1e-9)


@given(st.lists(st.one_of(st.floats(0, 1e9), st.integers(0, 9).map(float)), min_size=2, max_size=30), st.data())
def test_a_gap_hides_no_growth(readings: list[float], data: st.DataObject) -> None:
    gap = data.draw(st.integers(0, len(readings)))
    with_gap = [*readings[:gap], NAN, *readings[gap:]]
    assert increase(np.array(with_gap)).total == increase(np.array(readings)).total


def test_no_time_passed_is_no_rate() -> None:
    assert np.isnan(rate(np.array([5.0, 5.0]), np.array([1.0, 2.0]))).all()
