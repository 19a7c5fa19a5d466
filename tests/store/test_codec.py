"""Frames come back bit for bit, whatever the numbers."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gpufleet.store.codec import MAX_VALUES, PCO, RAW, decode, encode
from gpufleet.store.frames import FloatArray, StoreError


def bits(values: FloatArray) -> list[int]:
    found: list[int] = values.view(np.uint64).tolist()
    return found


@given(arrays(np.uint64, st.integers(0, 300)))
def test_any_bit_pattern_round_trips(patterns: npt.NDArray[np.uint64]) -> None:
    values = patterns.view(np.float64)
    assert bits(decode(encode(values))) == bits(values)


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, 35.0, np.nan, np.inf, -np.inf, 5e-324, 2**63, 0.97]), max_size=700))
def test_real_looking_values_round_trip(numbers: list[float]) -> None:
    values = np.array(numbers, dtype=np.float64)
    assert bits(decode(encode(values))) == bits(values)


def test_a_nan_keeps_its_payload_and_sign() -> None:
    patterns = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000002], dtype=np.uint64)
    assert decode(encode(patterns.view(np.float64))).view(np.uint64).tolist() == patterns.tolist()


def test_the_first_byte_is_the_version() -> None:
    assert encode(np.arange(400.0))[0] == PCO
    assert encode(np.array([0.1]))[0] == RAW, "packing one number costs more than it saves"


def test_a_strided_view_is_the_same_as_its_copy() -> None:
    values = np.arange(100.0)[::3]
    assert encode(values) == encode(values.copy())


def test_the_decoded_array_may_be_written_to() -> None:
    for values in (np.array([0.1]), np.arange(400.0)):
        decode(encode(values))[0] = 5.0


@pytest.mark.parametrize("blob", [b"", b"\x07abc"])
def test_unknown_bytes_are_refused(blob: bytes) -> None:
    with pytest.raises(StoreError):
        decode(blob)


@pytest.mark.parametrize("values", [np.zeros((2, 2)), np.zeros(MAX_VALUES + 1)])
def test_a_wrong_shape_is_refused(values: FloatArray) -> None:
    with pytest.raises(StoreError):
        encode(values)
