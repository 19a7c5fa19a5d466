"""The careful path of the exposition reader: one line at a time, every label looked at.

Grammar: Prometheus text and OpenMetrics together, with quoted UTF-8 names. It is as tolerant as real exporters need
(blanks, unknown escapes kept as they are, a comma before the closing brace) and refuses whatever would need a guess.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

MAX_LINE_BYTES = 16_384
MAX_NAME_BYTES = 255
MAX_LABELS = 64

SYNTAX, VALUE = "syntax", "value"
TOO_LONG, TOO_MANY_LABELS = "too_long", "too_many_labels"
TOO_OLD, TOO_FAR_AHEAD, DUPLICATE = "too_old", "too_far_ahead", "duplicate"

BLANKS = b" \t\r"
_QUOTED = rb'"([^"\\]*(?:\\.[^"\\]*)*)"'
_NAME = re.compile(rb"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(rb"[ \t]*(?:([a-zA-Z_][a-zA-Z0-9_]*)|" + _QUOTED + rb")[ \t]*=[ \t]*" + _QUOTED + rb"[ \t]*([,}])")
_PLAIN_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="([^"\\]*)"(?:,|$)', re.ASCII)
_QUOTED_NAME = re.compile(rb"[ \t]*" + _QUOTED + rb"[ \t]*([,}])")
_END = re.compile(rb"[ \t]*\}")
_CLOSED = re.compile(rb"\}")
_OPEN = re.compile(rb"[ \t]*\{")
_ESCAPE = re.compile(r'\\([\\"n])')
_ESCAPES = {"\\": "\\", '"': '"', "n": "\n"}
_NUMBER = re.compile(rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NOT_FINITE = re.compile(rb"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_MILLISECONDS = re.compile(rb"-?[0-9]{1,18}")
_TAIL = re.compile(rb"[ \t]*([^ \t#]+)(?:[ \t]+([^ \t#]+))?(?:[ \t]+#[ \t]+(.*))?")
_EXEMPLAR_END = re.compile(rb"[ \t]+([^ \t]+)(?:[ \t]+([^ \t]+))?")


class BadLine(ValueError):
    """A line that cannot be taken. `reason` is one of the words above."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Sample:
    """One good line. `raw` is the text of the series as sent, `at` the explicit stamp in Unix seconds, if any."""

    raw: bytes
    name: str
    labels: dict[str, str]
    value: float
    at: float | None


def parse_series(raw: bytes) -> tuple[str, dict[str, str]]:
    """Name and labels of `raw`, the text before the value. An empty label value is the same as no label.

    Raises BadLine when the text is no series or goes on after it.
    """
    name, labels, end = _series(raw)
    if end != len(raw):
        raise BadLine(SYNTAX)
    return name, labels


def parse_line(line: bytes, openmetrics: bool) -> Sample:
    """The sample of `line` (no comment, blanks around it already gone). Raises BadLine."""
    if len(line) > MAX_LINE_BYTES:
        raise BadLine(TOO_LONG)
    name, labels, end = _series(line)
    if line[end - 1 : end] != b"}" and line[end : end + 1] not in (b" ", b"\t", b""):
        raise BadLine(SYNTAX)
    value, at = parse_tail(line[end:], openmetrics)
    return Sample(line[:end], name, labels, value, at)


def parse_tail(tail: bytes, openmetrics: bool) -> tuple[float, float | None]:
    """Value and stamp (Unix seconds or None) of the text after the series. Raises BadLine."""
    match = _TAIL.fullmatch(tail)
    if match is None:
        raise BadLine(VALUE)
    value = parse_number(match[1])
    if match[3] is not None:
        _check_exemplar(match[3])
    return value, None if match[2] is None else _stamp(match[2], openmetrics)


def parse_number(text: bytes) -> float:
    """Decimal numbers, NaN and the infinities. No digit separators, no hexadecimal, nothing that overflows."""
    if _NUMBER.fullmatch(text):
        value = float(text)
        if math.isinf(value):
            raise BadLine(VALUE)
        return value
    if _NOT_FINITE.fullmatch(text):
        return float(text)
    raise BadLine(VALUE)


def _stamp(text: bytes, openmetrics: bool) -> float:
    if openmetrics:
        if not _NUMBER.fullmatch(text):
            raise BadLine(SYNTAX)
        return float(text)
    if not _MILLISECONDS.fullmatch(text):
        raise BadLine(SYNTAX)
    return int(text) / 1000


def _series(text: bytes) -> tuple[str, dict[str, str], int]:
    """Name, labels and the offset after them. A quoted name stands among the labels."""
    match = _NAME.match(text)
    name = match[0].decode() if match else ""
    if len(name) > MAX_NAME_BYTES:
        raise BadLine(TOO_LONG)
    end = match.end() if match else 0
    opening = _OPEN.match(text, end)
    labels: dict[str, str] = {}
    if opening is not None:
        quoted, labels, end = _braces(text, opening.end())
        if name and quoted:
            raise BadLine(SYNTAX)
        name = name or quoted
    if not name:
        raise BadLine(SYNTAX)
    return name, labels, end


def _plain_labels(text: bytes, start: int) -> tuple[dict[str, str], int] | None:
    """The labels and the offset after the closing brace where nothing is quoted, escaped, blank or odd; most are so.

    One search finds all labels; that their lengths add up shows that nothing stands between them.
    """
    end = text.find(b"}", start)
    try:
        inside = text[start:end].decode()
    except UnicodeDecodeError:
        return None
    found = _PLAIN_LABEL.findall(inside)
    labels = dict(found)
    if not 0 < len(labels) == len(found) <= MAX_LABELS or "__name__" in labels or "\0" in inside:
        return None
    if sum(map(len, labels)) + sum(map(len, labels.values())) + 4 * len(found) - 1 != len(inside):
        return None
    return ({key: value for key, value in labels.items() if value} if "" in labels.values() else labels), end + 1


def _braces(text: bytes, start: int) -> tuple[str, dict[str, str], int]:
    """The quoted name, if any, the labels that are not empty, and the offset after the closing brace."""
    plain = _plain_labels(text, start)
    if plain is not None:
        return "", *plain
    name = ""
    labels: dict[str, str] = {}
    end = _END.match(text, start)
    while end is None:
        match = _LABEL.match(text, start)
        if match is not None:
            _add_label(labels, match)
        else:
            match = _QUOTED_NAME.match(text, start)
            if match is None or name:
                raise BadLine(SYNTAX)
            name = _quoted_name(match[1])
        start = match.end()
        end = _CLOSED.match(text, start - 1) or _END.match(text, start)
    return name, {key: value for key, value in labels.items() if value}, end.end()


def _add_label(labels: dict[str, str], match: re.Match[bytes]) -> None:
    key = match[1].decode() if match[1] is not None else _decode(match[2])
    if not key or key == "__name__" or key in labels:
        raise BadLine(SYNTAX)
    if len(labels) == MAX_LABELS:
        raise BadLine(TOO_MANY_LABELS)
    labels[key] = _decode(match[3])


def _quoted_name(quoted: bytes) -> str:
    name = _decode(quoted)
    if not name:
        raise BadLine(SYNTAX)
    if len(quoted) > MAX_NAME_BYTES:
        raise BadLine(TOO_LONG)
    return name


def _decode(quoted: bytes) -> str:
    """The text between two quotes. Only \\\\, \\" and \\n are escapes, others stay as they are.

    NUL, which the database has no place for, becomes the replacement character.
    """
    try:
        text = quoted.decode()
    except UnicodeDecodeError as error:
        raise BadLine(SYNTAX) from error
    if "\\" in text:
        text = _ESCAPE.sub(lambda match: _ESCAPES[match[1]], text)
    return text.replace("\0", "\ufffd") if "\0" in text else text


def _check_exemplar(text: bytes) -> None:
    """An exemplar (labels, value, stamp) is checked and left out: the store has no place for it."""
    opening = _OPEN.match(text)
    if opening is None:
        raise BadLine(SYNTAX)
    name, _, end = _braces(text, opening.end())
    if name:
        raise BadLine(SYNTAX)
    rest = _EXEMPLAR_END.fullmatch(text, end)
    if rest is None:
        raise BadLine(SYNTAX)
    parse_number(rest[1])
    if rest[2] is not None and not _NUMBER.fullmatch(rest[2]):
        raise BadLine(SYNTAX)
