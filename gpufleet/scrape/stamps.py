"""Bodies whose samples all carry one time, as another server's memory of one scrape does: it is taken off at once."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LAST = re.compile(rb"[^\n]* ([0-9][0-9.]*)\n?(?:# EOF\n?)?\Z")
_MILLISECONDS = re.compile(rb"[0-9]{12,14}")
_SECONDS = re.compile(rb"[0-9]{9,11}(?:\.[0-9]{1,9})?")
_LONGEST_LINE = 65_536


@dataclass(frozen=True, slots=True)
class SharedStamp:
    """The time (Unix seconds), the body without it, and from how many lines it was taken."""

    at: float
    rest: bytes
    count: int


def shared_stamp(body: bytes, openmetrics: bool) -> SharedStamp | None:
    """The stamp of the last line, taken off every line that ends with it; None when the last line has none.

    Whether all samples had it is for the caller to see, from `count`.
    """
    end = len(body) - 1
    if openmetrics:
        end = body.rfind(b"\n", 0, body.rfind(b"# EOF"))
    last = _LAST.fullmatch(body, max(body.rfind(b"\n", 0, end) + 1, len(body) - _LONGEST_LINE))
    if last is None or not (_SECONDS if openmetrics else _MILLISECONDS).fullmatch(last[1]):
        return None
    tail = b" " + last[1]
    rest = body.replace(tail + b"\n", b"\n").removesuffix(tail)
    if b" \n" in rest or b"\r" in rest or b"\t" in rest or b" # " in rest or rest.endswith(b" "):
        return None  # with other blanks or an exemplar about, what is left of a line need not end with its value
    at = float(last[1]) if openmetrics else int(last[1]) / 1000
    return SharedStamp(at, rest, (len(body) - len(rest)) // len(tail))
