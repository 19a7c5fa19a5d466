"""Reads one scraped body: Prometheus text or OpenMetrics to refs and values.

Three ways through, one result. A body laid out like the last one is cut at the places known from it. Any other body
goes line by line: the text before the value is looked up in the cache, and what the cache does not know takes the
careful path. A bad line costs one line; a body that is no exposition costs the scrape.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpufleet.catalogue import meaning
from gpufleet.scrape import careful
from gpufleet.scrape.body_layout import PLAIN_NUMBER, PLAIN_TAIL, BodyLayout, Rejections, fit, lay_out
from gpufleet.scrape.careful import parse_series
from gpufleet.scrape.series_cache import SeriesCache
from gpufleet.scrape.stamps import SharedStamp, shared_stamp

__all__ = ["ExpositionError", "Parsed", "SeriesCache", "Stamped", "parse_series", "read"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

ACCEPT_OLDER_SECONDS = 300.0
ACCEPT_AHEAD_SECONDS = 60.0
SHOWN_CHARACTERS = 200
JUDGED_EVERY = 1_000
NOT_AN_EXPOSITION = "not an exposition"
TOO_MANY_SAMPLES = "too many samples"
CUT_OFF = "cut off"

_READABLE = frozenset({careful.TOO_OLD, careful.TOO_FAR_AHEAD, careful.DUPLICATE})
_HASH, _BRACE = ord("#"), ord("}")
_INFINITE = (float("inf"), float("-inf"))
_TYPE = re.compile(rb"^[ \t]*#[ \t]+TYPE[ \t]+([^ \t\r\n]+)[ \t]+([a-z]+)[ \t\r]*$", re.MULTILINE)
_START = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_BARE = re.compile(rb"[^ \t]+")


class ExpositionError(Exception):
    """The whole body is refused. `reason` is the typed reason of the scrape, `detail` says more."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Stamped:
    """A sample that came with its own time, in Unix seconds."""

    ref: int
    value: float
    at: float


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a body holds.

    `refs` and `values` are one entry per series: its newest sample, raw, NaN and infinities kept. They are read-only,
    and `refs` is the very same array while the body's layout stays the same. `stamped` holds every sample that came
    with a time of its own; where all share one, `at` is that time (Unix seconds) and `stamped` is empty.

    `accepted` and `rejected` count lines; `reasons` counts the rejected ones by word, `duplicates` is one of them.
    `first_bad_line` is (number from 1, text cut to 200 characters, reason). `new_refs` are refs whose series
    is new to the cache (or a ref with a new meaning), `gone_refs` those that the cache let go; when a body is refused
    what it brought is forgotten.
    """

    refs: IntArray
    values: FloatArray
    accepted: int
    rejected: int
    reasons: dict[str, int]
    first_bad_line: tuple[int, str, str] | None
    duplicates: int
    stamped: list[Stamped]
    new_refs: list[int]
    gone_refs: list[int]
    at: float | None = None

    def newest_at(self) -> float | None:
        """The newest time that a sample came with."""
        return self.at if self.at is not None else max((sample.at for sample in self.stamped), default=None)


def read(
    body: bytes,
    cache: SeriesCache,
    *,
    scraped_at: float,
    max_samples: int,
    content_type: str = "",
    newest_only: bool = False,
) -> Parsed:
    """Every sample of `body`, scraped at `scraped_at` (Unix seconds). `content_type` is the header as sent.

    `newest_only` leaves series out whose stamp is older than the newest one: the memory of another server holds on to
    what its last scrape no longer listed.

    Raises ExpositionError: "not an exposition", "too many samples", or "cut off" for OpenMetrics without its end mark.
    """
    openmetrics = _is_openmetrics(body, content_type)
    shared = shared_stamp(body, openmetrics)
    if shared is not None and -ACCEPT_AHEAD_SECONDS <= scraped_at - shared.at <= ACCEPT_OLDER_SECONDS:
        parsed = _read_without_stamps(shared, cache, max_samples)
        if parsed is not None:
            return parsed
    lines = body.split(b"\n")
    layout = cache.layout
    if isinstance(layout, BodyLayout) and not layout.is_stamped and len(layout.refs) <= max_samples:
        values = fit(body, lines, layout)
        if values is not None:
            return _parsed_again(layout, values, None)
    reading = _Reading(cache, scraped_at, max_samples, openmetrics, newest_only)
    return reading.read(body, lines)


def _read_without_stamps(shared: SharedStamp, cache: SeriesCache, max_samples: int) -> Parsed | None:
    """A body whose samples share one stamp, read as if it had none; None when a line of it needs a closer look."""
    lines = shared.rest.split(b"\n")
    layout = cache.layout
    if isinstance(layout, BodyLayout) and layout.is_stamped and len(layout.refs) == shared.count <= max_samples:
        values = fit(shared.rest, lines, layout)
        if values is not None:
            return _parsed_again(layout, values, shared.at)
    if sum(1 for line in lines if (text := line.strip(careful.BLANKS)) and text[0] != _HASH) != shared.count:
        return None
    try:
        return _Reading(cache, shared.at, max_samples, False, shared_at=shared.at).read(shared.rest, lines)
    except ExpositionError:
        return None


def _parsed_again(layout: BodyLayout, values: FloatArray, at: float | None) -> Parsed:
    return Parsed(
        refs=layout.refs,
        values=values,
        accepted=len(values),
        rejected=layout.rejections.count,
        reasons=dict(layout.rejections.reasons),
        first_bad_line=layout.rejections.first_bad_line,
        duplicates=0,
        stamped=[],
        new_refs=[],
        gone_refs=[],
        at=at,
    )


def _is_openmetrics(body: bytes, content_type: str) -> bool:
    """Whether stamps are seconds. A header that names no version leaves it to the mark that OpenMetrics ends with."""
    is_marked = body[-64:].rstrip(b" \t\r\n").endswith(b"# EOF")
    content_type = content_type.lower()
    if "openmetrics" in content_type:
        if not is_marked:
            raise ExpositionError(CUT_OFF, "OpenMetrics without # EOF at its end")
        return True
    return is_marked and "version=0.0.4" not in content_type


@dataclass(slots=True)
class _Reading:
    """One body, line by line."""

    cache: SeriesCache
    scraped_at: float
    max_samples: int
    openmetrics: bool
    newest_only: bool = False
    shared_at: float | None = None
    accepted: int = 0
    latest: dict[int, tuple[float, float]] = field(default_factory=dict)
    plain: set[int] = field(default_factory=set)
    stamped: dict[tuple[int, float], float] = field(default_factory=dict)
    new_names: dict[int, str] = field(default_factory=dict)
    rejected: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    first_bad_line: tuple[int, str, str] | None = None
    known_names: bool = False
    prefixes: list[bytes] = field(default_factory=list)
    is_sample: list[bool] = field(default_factory=list)

    def read(self, body: bytes, lines: list[bytes]) -> Parsed:
        if isinstance(self.cache.layout, BodyLayout):
            self.cache.touch(self.cache.layout.refs.tolist())
            self.cache.layout = None
        self.cache.begin()
        try:
            self._take_all(lines)
        except ExpositionError:
            self.cache.abandon(self.new_names)
            raise
        return self._finish(body, lines)

    def _take_all(self, lines: list[bytes]) -> None:
        for index, line in enumerate(lines):
            if not line:
                self.is_sample.append(False)
                continue
            if self._take_known(line):
                self.is_sample.append(True)
                continue
            text = line.strip(careful.BLANKS)
            if not text or text[0] == _HASH:
                self.is_sample.append(False)
                continue
            self.is_sample.append(self._take(index, line, text))
        self._judge()

    def _take_known(self, line: bytes) -> bool:
        """Take a line as most are: a known text, one blank, a plain number. False leaves it to the longer way."""
        head, _, tail = line.rpartition(b" ")
        ref = self.cache.lookup(head)
        if ref is None or ref in self.latest or tail.translate(None, PLAIN_NUMBER):
            return False
        if len(line) > careful.MAX_LINE_BYTES or self.accepted >= self.max_samples:
            return False
        try:
            value = float(tail)
        except ValueError:
            return False
        if value in _INFINITE:
            return False
        self.latest[ref] = (self.scraped_at, value)
        self.plain.add(ref)
        self.accepted += 1
        raw = self.cache.raw(ref)
        self.prefixes.append(raw if raw == head and head[-1] == _BRACE else line[: len(head) + 1])
        return True

    def _take(self, index: int, line: bytes, text: bytes) -> bool:
        """Take one line; True when the next body may be cut at the same place."""
        try:
            ref, value, at, tail_at = self._sample(text)
            self._keep(ref, value, at)
        except careful.BadLine as error:
            self._reject(index, line, text, error.reason)
            return False
        if at is not None or tail_at == 0:
            return False
        self.prefixes.append(self._prefix(ref, line, line.index(text) + tail_at))
        return True

    def _prefix(self, ref: int, line: bytes, value_at: int) -> bytes:
        """What the next body's line must begin with. Where it can be, the cached text itself: it is kept only once."""
        raw = self.cache.raw(ref)
        if raw.endswith(b"}") and line.startswith(raw) and not line[len(raw) : value_at].strip(b" "):
            return raw
        return line[:value_at]

    def _sample(self, text: bytes) -> tuple[int, float, float | None, int]:
        """Ref, value, stamp, and where the value begins in `text` (0: not at a place to remember)."""
        head = _head(text)
        ref = self.cache.lookup(head)
        if ref is not None and len(text) <= careful.MAX_LINE_BYTES:
            value, at = careful.parse_tail(text[len(head) :], self.openmetrics)
        else:
            sample = careful.parse_line(text, self.openmetrics)
            head, value, at = sample.raw, sample.value, sample.at
            ref = self._ref(sample)
        rest = text[len(head) :].lstrip(careful.BLANKS)
        return ref, value, at, 0 if rest.translate(None, PLAIN_TAIL) else len(text) - len(rest)

    def _ref(self, sample: careful.Sample) -> int:
        ref = self.cache.lookup(sample.raw)
        if ref is None:
            ref, is_new = self.cache.learn(sample.raw, sample.name, sample.labels)
            if is_new:
                self.new_names[ref] = sample.name
        return ref

    def _keep(self, ref: int, value: float, at: float | None) -> None:
        if at is None:
            if ref in self.plain:
                raise careful.BadLine(careful.DUPLICATE)
            self.plain.add(ref)
        else:
            if self.shared_at is not None:
                raise ExpositionError(careful.SYNTAX, "to be read again with its stamps")
            self._check_stamp(ref, at)
            self.stamped[ref, at] = value
        moment = self.scraped_at if at is None else at
        newest = self.latest.get(ref)
        if newest is None or moment > newest[0]:
            self.latest[ref] = (moment, value)
        self.accepted += 1
        if self.accepted > self.max_samples:
            raise ExpositionError(TOO_MANY_SAMPLES, f"more than {self.max_samples}")

    def _check_stamp(self, ref: int, at: float) -> None:
        if at < self.scraped_at - ACCEPT_OLDER_SECONDS:
            raise careful.BadLine(careful.TOO_OLD)
        # Written so that a stamp that is no number is refused too.
        if not at <= self.scraped_at + ACCEPT_AHEAD_SECONDS:
            raise careful.BadLine(careful.TOO_FAR_AHEAD)
        if (ref, at) in self.stamped:
            raise careful.BadLine(careful.DUPLICATE)

    def _reject(self, index: int, line: bytes, text: bytes, reason: str) -> None:
        if self.shared_at is not None:
            raise ExpositionError(reason, "to be read again with its stamps")
        self.rejected += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
        if self.first_bad_line is None:
            shown = text[: 4 * SHOWN_CHARACTERS].decode(errors="replace")[:SHOWN_CHARACTERS].replace("\0", "\ufffd")
            self.first_bad_line = (index + 1, shown, reason)
        if not self.known_names and reason not in _READABLE:
            start = _START.match(text)
            self.known_names = start is not None and meaning.is_known(start[0].decode())
        if self.rejected % JUDGED_EVERY == 0:
            self._judge()

    def _judge(self) -> None:
        """A page of something else may hold lines that parse: refuse it unless it speaks of something known."""
        unreadable = sum(count for reason, count in self.reasons.items() if reason not in _READABLE)
        if unreadable <= self.accepted or self.known_names:
            return
        if any(meaning.is_known(self.cache.series(ref)[0]) for ref in self.latest):
            return
        raise ExpositionError(NOT_AN_EXPOSITION, f"{unreadable} of {unreadable + self.accepted} lines do not parse")

    def _keep_newest(self) -> None:
        """Lets go of the series that came with an older stamp than the newest one."""
        newest = max((at for _, at in self.stamped), default=None)
        if newest is None:
            return
        for ref in [ref for ref, (moment, _) in self.latest.items() if ref not in self.plain and moment < newest]:
            del self.latest[ref]

    def _finish(self, body: bytes, lines: list[bytes]) -> Parsed:
        if self.newest_only:
            self._keep_newest()
        if self.new_names:
            self.cache.declare(self.new_names, _types(body))
        self.cache.touch(self.latest)
        gone = self.cache.end()
        refs = np.fromiter(self.latest, dtype=np.int64, count=len(self.latest))
        values = np.fromiter((value for _, value in self.latest.values()), dtype=np.float64, count=len(self.latest))
        refs.flags.writeable = values.flags.writeable = False
        duplicates = self.reasons.get(careful.DUPLICATE, 0)
        if len(self.prefixes) == self.accepted and not duplicates:
            refused = Rejections(self.rejected, dict(self.reasons), self.first_bad_line)
            is_stamped = self.shared_at is not None
            self.cache.layout = lay_out(lines, self.is_sample, self.prefixes, refs, refused, is_stamped)
        return Parsed(
            refs=refs,
            values=values,
            accepted=self.accepted,
            rejected=self.rejected,
            reasons=self.reasons,
            first_bad_line=self.first_bad_line,
            duplicates=duplicates,
            stamped=[Stamped(ref, value, at) for (ref, at), value in self.stamped.items()],
            new_refs=list(self.new_names),
            gone_refs=gone,
            at=self.shared_at,
        )


def _head(text: bytes) -> bytes:
    """What may be the text of the series. If the cache has it then it is: a series ends where its text ends."""
    brace = text.rfind(b"}")
    if brace >= 0:
        return text[: brace + 1]
    bare = None if b"{" in text else _BARE.match(text)
    return b"" if bare is None else bare[0]


def _types(body: bytes) -> dict[str, str]:
    """Names and kinds of the TYPE lines; of repeated ones the first."""
    types: dict[str, str] = {}
    for name, kind in _TYPE.findall(body):
        types.setdefault(name.decode(errors="replace"), kind.decode())
    return types
