"""Reads a site's own record of outages: CSV with one outage a row. A bad row names its line; no clock, no database."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gpufleet.core.times import parse_rfc3339, rfc3339

COLUMNS = ("node", "gpu_uuid", "starts_at", "ends_at", "planned", "reason")
MAX_BYTES = 64_000_000
MAX_ROWS = 500_000
MAX_NAME = 255
MAX_REASON = 255
EARLIEST_YEAR = 2000
BOOLEANS = {"true": True, "false": False}


class OutageFileError(ValueError):
    """The file cannot be taken; the text names the line and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Outage:
    """`gpu_uuid` empty: the whole node. `ends_at` None: still going on."""

    node: str
    gpu_uuid: str
    starts_at: datetime
    ends_at: datetime | None
    planned: bool
    reason: str


def read_outages(path: Path, now: datetime) -> list[Outage]:
    """All rows of the file. Raises OutageFileError for the first bad one, and for a file that cannot be read."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise OutageFileError(f"{path} is larger than {MAX_BYTES} bytes")
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(_rows(csv.reader(file, strict=True), now))
    except OSError as error:
        raise OutageFileError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OutageFileError(f"{path} is not UTF-8 text") from error


def _rows(reader: Iterator[list[str]], now: datetime) -> Iterator[Outage]:
    place: dict[str, int] | None = None
    count = 0
    while True:
        # The line on which a row begins: a quoted reason may hold line breaks.
        line = reader.line_num + 1  # type: ignore[attr-defined]
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise OutageFileError(f"line {line}: {error}") from error
        if cells is None:
            break
        if not any(cell.strip() for cell in cells):
            continue
        if place is None:
            place = _places(cells, line)
            continue
        count += 1
        if count > MAX_ROWS:
            raise OutageFileError(f"line {line}: more than {MAX_ROWS} rows")
        yield _outage(cells, place, line, now)
    if place is None:
        raise OutageFileError(f"the file is empty; its first line names the columns {', '.join(COLUMNS)}")


def _places(cells: Sequence[str], line: int) -> dict[str, int]:
    names = [cell.strip() for cell in cells]
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        raise OutageFileError(f"line {line}: the column {missing[0]} is missing")
    if len(set(names)) != len(names) or set(names) != set(COLUMNS):
        raise OutageFileError(f"line {line}: the columns must be {', '.join(COLUMNS)}, each once")
    return {name: names.index(name) for name in COLUMNS}


def _outage(cells: Sequence[str], place: dict[str, int], line: int, now: datetime) -> Outage:
    if len(cells) != len(place):
        raise OutageFileError(f"line {line}: {len(cells)} cells instead of {len(place)}")
    cell = {name: cells[at].strip() for name, at in place.items()}
    node, uuid, reason = cell["node"], normal_uuid(cell["gpu_uuid"]), cell["reason"]
    for name, text, most in (("node", node, MAX_NAME), ("gpu_uuid", uuid, MAX_NAME), ("reason", reason, MAX_REASON)):
        if len(text) > most or "\x00" in text:
            raise OutageFileError(f"line {line}: {name} is longer than {most} characters or holds a NUL")
    if not node:
        raise OutageFileError(f"line {line}: node is empty")
    planned = BOOLEANS.get(cell["planned"].lower())
    if planned is None:
        raise OutageFileError(f"line {line}: planned must be true or false, not {cell['planned'][:40]!r}")
    starts_at = _instant(cell["starts_at"], "starts_at", line)
    ends_at = _instant(cell["ends_at"], "ends_at", line) if cell["ends_at"] else None
    _require_past(starts_at, ends_at, line, now)
    return Outage(node, uuid, starts_at, ends_at, planned, reason)


def _require_past(starts_at: datetime, ends_at: datetime | None, line: int, now: datetime) -> None:
    if starts_at.year < EARLIEST_YEAR:
        raise OutageFileError(f"line {line}: starts_at lies before the year {EARLIEST_YEAR}")
    if ends_at is not None and ends_at <= starts_at:
        raise OutageFileError(f"line {line}: ends_at {rfc3339(ends_at)} does not lie after starts_at")
    for name, at in (("starts_at", starts_at), ("ends_at", ends_at)):
        if at is not None and at > now:
            raise OutageFileError(
                f"line {line}: {name} {rfc3339(at)} lies in the future; announce planned time with import_maintenance"
            )


def _instant(text: str, name: str, line: int) -> datetime:
    try:
        return parse_rfc3339(text)
    except (ValueError, OverflowError) as error:
        raise OutageFileError(f"line {line}: {name} {text[:40]!r} is no ISO time with an offset ({error})") from error


def normal_uuid(text: str) -> str:
    """As scraping writes it: NVIDIA's ids are `GPU-` and lower-case hex. What has another form stays as it is."""
    head, dash, tail = text.partition("-")
    return f"GPU-{tail.lower()}" if dash and head.lower() == "gpu" else text
