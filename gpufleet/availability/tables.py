"""CSV that is safe to open in a spreadsheet: text that could be a formula is made harmless, numbers stay numbers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

FORMULA = ("=", "+", "-", "@")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
CELL = str | float | int | None


def safe(text: str) -> str:
    """An apostrophe before text that begins like a formula, also after blanks, tabs or returns. Plain numbers stay."""
    if NUMBER.fullmatch(text):
        return text
    begins = text.lstrip("\t\r\n \u00a0")
    return f"'{text}" if begins.startswith(FORMULA) or text[:1] in ("\t", "\r") else text


def write_csv(columns: Sequence[str], rows: Iterable[Sequence[CELL]]) -> str:
    """Header and rows. Null is an empty cell; a cell of text that was made harmless is quoted."""
    lines = [columns, *rows]
    return "".join(",".join(_cell(value) for value in line) + "\r\n" for line in lines)


def _cell(value: CELL) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return repr(value)
    text = safe(value)
    if text != value or any(mark in text for mark in ',"\r\n;'):
        return '"' + text.replace('"', '""') + '"'
    return text
