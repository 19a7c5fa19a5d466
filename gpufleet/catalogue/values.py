"""Raw numbers to canonical ones: no-value numbers and impossible ones become missing. Vectorised; nothing else here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
CodeArray = npt.NDArray[np.int8]
Bounds = npt.ArrayLike | Sequence[float | None]

# Which numbers of an exporter stand for "no value". `dcgm` is for bytes, energy and times, where a number of the int32
# band is legal; `dcgm_int32` is `dcgm` and that band.
SENTINEL_CODES: Mapping[str, int] = MappingProxyType({"": 0, "dcgm": 1, "dcgm_int32": 2, "amd": 3})

_INT64_FROM = 9.2e18
_INT32_FROM, _INT32_TO = 2147483632.0, 2147483647.0
_DOUBLE_FROM, _DOUBLE_TO = 140737488355328.0, 140737488355344.0
_AMD = (65535.0, 4294967295.0, 2.0**64)


def clean(
    values: npt.ArrayLike, scale: npt.ArrayLike, low: Bounds, high: Bounds, sentinels: npt.ArrayLike
) -> FloatArray:
    """`values * scale` with NaN for what is missing: no-value numbers, numbers outside `[low, high]`, infinities.

    All are float64 of one shape (or broadcast to it); `low` and `high` are in raw units and NaN (or None) where
    there is no bound; `sentinels` holds SENTINEL_CODES.
    """
    raw = np.asarray(values, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        canonical = raw * np.asarray(scale, dtype=np.float64)
    hidden = _no_value(raw, np.asarray(sentinels, dtype=np.int8)) | _outside(raw, low, high)
    return np.where(hidden, np.nan, canonical)


def judge(values: npt.ArrayLike, low: Bounds, high: Bounds, sentinels: npt.ArrayLike) -> tuple[BoolArray, BoolArray]:
    """(missing, impossible): which say "no value", are NaN or infinite; and which are numbers that cannot be."""
    raw = np.asarray(values, dtype=np.float64)
    missing = _no_value(raw, np.asarray(sentinels, dtype=np.int8))
    return missing, _outside(raw, low, high) & ~missing


def count_missing(values: npt.ArrayLike, low: Bounds, high: Bounds, sentinels: npt.ArrayLike) -> tuple[int, int]:
    """How many are missing and how many impossible, as `judge` says."""
    missing, impossible = judge(values, low, high, sentinels)
    return int(np.count_nonzero(missing)), int(np.count_nonzero(impossible))


def _no_value(raw: FloatArray, codes: CodeArray) -> BoolArray:
    missing = ~np.isfinite(raw)
    if codes.any():
        amd = (raw == _AMD[0]) | (raw == _AMD[1]) | (raw == _AMD[2])
        missing = missing | _dcgm(raw, codes) | ((codes == SENTINEL_CODES["amd"]) & amd)
    return missing


def _dcgm(raw: FloatArray, codes: CodeArray) -> BoolArray:
    """Blank, not found, not supported, no permission; a ratio made a percentage is a hundred times the double form."""
    wide = raw >= _INT64_FROM
    wide |= (raw >= _DOUBLE_FROM) & (raw < _DOUBLE_TO)
    wide |= (raw >= 100 * _DOUBLE_FROM) & (raw < 100 * _DOUBLE_TO)
    int32 = (raw >= _INT32_FROM) & (raw <= _INT32_TO)
    either = (codes == SENTINEL_CODES["dcgm"]) | (codes == SENTINEL_CODES["dcgm_int32"])
    found: BoolArray = (either & wide) | ((codes == SENTINEL_CODES["dcgm_int32"]) & int32)
    return found


def _outside(raw: FloatArray, low: Bounds, high: Bounds) -> BoolArray:
    # A comparison with NaN is false: no bound, nothing outside.
    outside: BoolArray = (raw < np.asarray(low, dtype=np.float64)) | (raw > np.asarray(high, dtype=np.float64))
    return outside
