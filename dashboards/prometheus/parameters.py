"""Parameters of a request: of its address, or of its form, which goes first."""

from __future__ import annotations

import math
import re

import promql_parser
from django.http import HttpRequest, QueryDict

from gpufleet.core.times import parse_rfc3339
from gpufleet.promql.errors import BadQuery
from gpufleet.promql.matchers import LabelMatcher
from gpufleet.promql.parsing import millis, selector_matchers

LATEST_SECONDS = 253_402_300_000.0  # the year 9999
MAX_STEP_SECONDS = 366 * 86_400
MAX_SELECTORS = 50
_NUMBER = re.compile(r"[-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?")


class Parameters:
    """Reads one request's parameters. Every method raises BadQuery with the parameter's name."""

    def __init__(self, request: HttpRequest) -> None:
        self._sources: tuple[QueryDict, ...] = (request.POST, request.GET)
        for source in self._sources:
            for name, values in source.lists():
                if any("\x00" in str(text) for text in (name, *values)):
                    raise BadQuery("a NUL character is no part of any name or value here")

    def text(self, name: str) -> str:
        return next((str(source[name]) for source in self._sources if source.get(name)), "")

    def instant(self, name: str, otherwise: int | None = None) -> int:
        """Unix milliseconds, from seconds or an RFC 3339 time."""
        text = self.text(name)
        if not text and otherwise is not None:
            return otherwise
        try:
            # A plus that was not escaped arrives as a space.
            seconds = float(text) if _NUMBER.fullmatch(text) else parse_rfc3339(text.replace(" ", "+")).timestamp()
        except (ValueError, OverflowError) as error:
            raise _bad(name, f'cannot parse "{text[:64]}" to a valid timestamp') from error
        if not 0 <= seconds <= LATEST_SECONDS:
            raise _bad(name, f'"{text[:64]}" lies outside the years 1970 to 9999')
        return round(seconds * 1000)

    def duration(self, name: str, otherwise: float | None = None) -> float:
        """Seconds, from a number or a duration such as 1h30m."""
        text = self.text(name)
        if not text and otherwise is not None:
            return otherwise
        try:
            seconds = float(text) if _NUMBER.fullmatch(text) else millis(promql_parser.parse_duration(text)) / 1000
        except (ValueError, OverflowError) as error:
            raise _bad(name, f'cannot parse "{text[:64]}" to a valid duration') from error
        if not math.isfinite(seconds) or abs(seconds) > MAX_STEP_SECONDS:
            raise _bad(name, f'"{text[:64]}" is longer than {MAX_STEP_SECONDS // 86_400} days')
        return seconds

    def limit(self) -> int | None:
        text = self.text("limit")
        if not text or text == "0":
            return None
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise _bad("limit", "a whole number, 0 or more")
        return int(text)

    def selectors(self) -> list[list[LabelMatcher]]:
        """The matchers of each `match[]`."""
        texts = [text for source in self._sources for text in source.getlist("match[]")]
        if len(texts) > MAX_SELECTORS:
            raise _bad("match[]", f"more than {MAX_SELECTORS} selectors")
        return [selector_matchers(text) for text in texts]


def _bad(name: str, why: str) -> BadQuery:
    return BadQuery(f'invalid parameter "{name}": {why}')
