"""Label matchers, with the regular expressions of RE2: linear in time, and those of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2

from gpufleet.promql.errors import BadQuery
from gpufleet.promql.vectors import Labels

MAX_PATTERN = 10_000


@lru_cache(maxsize=512)
def compiled(pattern: str) -> Any:
    """The expression, which has to match whole. Raises BadQuery."""
    if len(pattern) > MAX_PATTERN:
        raise BadQuery(f"a regular expression is longer than {MAX_PATTERN:,} characters")
    options = re2.Options()
    options.log_errors = False
    options.dot_nl = True  # as Prometheus, which anchors with (?s)
    options.max_mem = 8 * 1024 * 1024
    try:
        return re2.compile(f"(?:{pattern})", options)
    except re2.error as error:
        why = error.args[0].decode(errors="replace") if error.args and isinstance(error.args[0], bytes) else error
        raise BadQuery(f"error parsing regexp {pattern[:80]!r}: {why}") from error


@dataclass(frozen=True, slots=True)
class LabelMatcher:
    """`name op value`; `op` is one of = != =~ !~. A label that is not there is an empty one."""

    name: str
    op: str
    value: str

    def holds(self, value: str) -> bool:
        if self.op in ("=", "!="):
            return (value == self.value) == (self.op == "=")
        return (compiled(self.value).fullmatch(value) is not None) == (self.op == "=~")


def all_hold(matchers: Iterable[LabelMatcher], labels: Labels) -> bool:
    return all(matcher.holds(labels.get(matcher.name, "")) for matcher in matchers)
