"""Numbers as bytes, bit for bit: a version byte, then the body. See docs/adr/0003 and 0013."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from pcodec import ChunkConfig, DeltaSpec
from pcodec.standalone import simple_compress, simple_decompress

from gpufleet.store.frames import FloatArray, StoreError

RAW = 0
PCO = 1
MAX_VALUES = 1_000_000
# Neighbours in a frame are other series, so looking for differences between them costs half of the time for nothing.
_CONFIG = ChunkConfig(compression_level=4, delta_spec=DeltaSpec.no_op())
# In a column neighbours are the same series a moment later.
_COLUMN_CONFIG = ChunkConfig(compression_level=8)
_BODIES = {"f8": 2, "i8": 3, "i4": 4, "u2": 5, "f4": 6}


def encode(values: FloatArray) -> bytes:
    """Bytes of a one-dimensional float64 array. Raises StoreError when it has another shape or is too long."""
    array = np.ascontiguousarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size > MAX_VALUES:
        raise StoreError(f"a frame holds up to {MAX_VALUES} values in one dimension, not {array.shape}")
    packed: bytes = simple_compress(array, _CONFIG) if array.size else b""
    raw = array.astype("<f8", copy=False).tobytes()
    return bytes((PCO,)) + packed if packed and len(packed) < len(raw) else bytes((RAW,)) + raw


def decode(blob: bytes) -> FloatArray:
    """The array that `encode` was given. Raises StoreError for a version that this code does not know."""
    if not blob:
        raise StoreError("an empty blob is no frame")
    version, body = blob[0], bytes(blob[1:])
    if version == PCO:
        return np.asarray(simple_decompress(body), dtype=np.float64)
    if version == RAW:
        return np.frombuffer(body, dtype="<f8").astype(np.float64)
    raise StoreError(f"a frame of version {version}: written by a newer gpufleet")


def encode_column(values: npt.NDArray[Any]) -> bytes:
    """Bytes of an array of float64, float32, int64, int32 or uint16, flattened in its own order."""
    flat = np.ascontiguousarray(values).reshape(-1)
    body: bytes = simple_compress(flat, _COLUMN_CONFIG)
    return bytes((_BODIES[flat.dtype.str[1:]],)) + body


def decode_column(blob: bytes) -> npt.NDArray[Any]:
    """The flat array that `encode_column` was given. Raises StoreError for a version that this code does not know."""
    if not blob or blob[0] not in _BODIES.values():
        raise StoreError(f"a column of version {blob[0] if blob else None}: written by a newer gpufleet")
    return np.asarray(simple_decompress(bytes(blob[1:])))
