"""Where the samples of a target's last body stood: a body laid out alike is cut at the same places, unparsed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import compress
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from gpufleet.scrape import careful

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Part = TypeVar("Part", bool, bytes)

PLAIN_NUMBER = b"0123456789+-.eE"
PLAIN_TAIL = b"0123456789+-.eEnNaAiIfFtTyY"
_BLANK_OR_NUMBER = PLAIN_NUMBER + b" "
_LETTERS = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Rejections:
    """Lines that were refused: how many, by word, and the first of them (number from 1, text, word)."""

    count: int
    reasons: dict[str, int]
    first_bad_line: tuple[int, str, str] | None


@dataclass(slots=True)
class BodyLayout:
    """Where the samples of the last body stood. A body that fits it needs no look at a label."""

    lines: int
    is_sample: tuple[bool, ...]
    is_other: tuple[bool, ...]
    others: tuple[bytes, ...]
    prefixes: list[bytes]
    fixed_bytes: int
    room: int
    refs: IntArray
    rejections: Rejections
    is_stamped: bool = False


def lay_out(
    lines: list[bytes],
    sample_lines: Sequence[bool],
    prefixes: list[bytes],
    refs: IntArray,
    rejections: Rejections,
    is_stamped: bool = False,
) -> BodyLayout:
    """The layout of a body of which every sample stood alone on its line after its prefix.

    `is_stamped`: each line ended with the same stamp, which was taken off.
    """
    is_sample = _shared(tuple(sample_lines))
    is_other = _shared(tuple(not sample for sample in is_sample))
    others = _shared(tuple(compress(lines, is_other)))
    return BodyLayout(
        lines=len(lines),
        is_sample=is_sample,
        is_other=is_other,
        others=others,
        prefixes=prefixes,
        fixed_bytes=len(lines) - 1 + sum(map(len, others)) + sum(map(len, prefixes)),
        room=careful.MAX_LINE_BYTES - max(map(len, prefixes), default=0),
        refs=refs,
        rejections=rejections,
        is_stamped=is_stamped,
    )


def fit(body: bytes, lines: list[bytes], layout: BodyLayout) -> FloatArray | None:
    """The values of a body that is laid out like the last one; None when it is not."""
    if len(lines) != layout.lines or tuple(compress(lines, layout.is_other)) != layout.others:
        return None
    tails = list(map(bytes.removeprefix, compress(lines, layout.is_sample), layout.prefixes))
    # removeprefix leaves a line without the prefix whole, so the lengths tell whether all of them had it.
    tail_bytes = sum(map(len, tails))
    if tail_bytes != len(body) - layout.fixed_bytes:
        return None
    if tail_bytes > layout.room and max(map(len, tails)) > layout.room:
        return None
    values = _numbers(tails)
    if values is not None:
        values.flags.writeable = False
    return values


def _numbers(tails: list[bytes]) -> FloatArray | None:
    """The numbers of texts that hold nothing else; None when one is no number or needs a closer look."""
    letters = b"".join(tails).translate(None, _BLANK_OR_NUMBER)
    if not letters:
        try:
            # Most bodies spell numbers as JSON does, and this is five times as fast as float() on each.
            values = np.array(orjson.loads(b"[%b]" % b",".join(tails)), dtype=np.float64)
        except orjson.JSONDecodeError:
            pass
        else:
            return values if len(values) == len(tails) else None  # a lone text without a number is an empty list
    elif letters.translate(None, PLAIN_TAIL):
        return None
    try:
        values = np.fromiter(map(float, tails), dtype=np.float64, count=len(tails))
    except ValueError:
        return None
    if np.isinf(values).any() and not _infinities_are_spelt(tails, values):
        return None
    return values


def _infinities_are_spelt(tails: list[bytes], values: FloatArray) -> bool:
    """False when a number overflowed into infinity."""
    return all(_LETTERS.fullmatch(tails[index].strip(b" ")) for index in np.flatnonzero(np.isinf(values)))


@lru_cache(maxsize=1024)
def _shared(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The same object for the same parts: targets of one exporter have the same comments in the same places."""
    return parts
