"""PromQL text to a tree. The grammar is `promql_parser`'s; what the evaluator does not know is refused here."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import promql_parser as grammar

from gpufleet.promql.errors import BadQuery
from gpufleet.promql.matchers import LabelMatcher, compiled
from gpufleet.promql.vectors import NAME

# Parser and evaluator are recursive: without these bounds a long chain of operators would end the process.
MAX_DEPTH = 50
MAX_OPERATORS = 200
MAX_CHARACTERS = 16_384
_QUOTED = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|`[^`]*`|#[^\n]*")
_SELECTION = re.compile(r"\{[^{}]*\}")
_OPERATOR = re.compile(r"[-+*/%^]|[=!<>]+|\b(?:and|or|unless|atan2)\b", re.IGNORECASE)
# The parser's enumerations cannot be keys of a table.
_OPS = (
    (grammar.MatchOp.Equal, "="),
    (grammar.MatchOp.NotEqual, "!="),
    (grammar.MatchOp.Re, "=~"),
    (grammar.MatchOp.NotRe, "!~"),
)


def parse(query: str) -> Any:
    """The tree of a query. Raises BadQuery with what is wrong, or what is not supported."""
    _check_size(query)
    try:
        return grammar.parse(query)
    except ValueError as error:
        raise BadQuery(f'invalid parameter "query": {error}') from error
    except Exception as error:
        raise BadQuery(f'invalid parameter "query": {type(error).__name__}') from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # what the parser's own mistakes are raised as
            raise
        raise BadQuery('invalid parameter "query": the parser gave up') from error


def _check_size(query: str) -> None:
    if not query.strip():
        raise BadQuery('invalid parameter "query": no expression found in input')
    if len(query) > MAX_CHARACTERS:
        raise BadQuery(f'invalid parameter "query": longer than {MAX_CHARACTERS:,} characters')
    bare = _QUOTED.sub('""', query)
    depth = deepest = 0
    for character in bare:
        depth += (character in "([{") - (character in ")]}")
        deepest = max(deepest, depth)
    if deepest > MAX_DEPTH:
        raise BadQuery(f'invalid parameter "query": brackets are nested deeper than {MAX_DEPTH}')
    if len(_OPERATOR.findall(_SELECTION.sub("", bare))) > MAX_OPERATORS:
        raise BadQuery(f'invalid parameter "query": more than {MAX_OPERATORS} operators')


def matchers_of(selector: grammar.VectorSelector) -> list[LabelMatcher]:
    """All matchers of a selector, the metric's name as one of them. Raises BadQuery."""
    if selector.matchers.or_matchers:
        raise BadQuery("`or` between label matchers is not supported: use a regular expression or the operator `or`")
    found = [LabelMatcher(one.name, _spelt(one.op), one.value) for one in selector.matchers.matchers]
    if selector.name is not None:
        found.insert(0, LabelMatcher(NAME, "=", selector.name))
    for matcher in found:
        if matcher.op in ("=~", "!~"):
            compiled(matcher.value)
    return found


def _spelt(op: grammar.MatchOp) -> str:
    return next(text for known, text in _OPS if known == op)


def selector_matchers(text: str) -> list[LabelMatcher]:
    """The matchers of a `match[]` parameter. Raises BadQuery."""
    tree = parse(text)
    if not isinstance(tree, grammar.VectorSelector) or tree.offset or tree.at:
        raise BadQuery(f'invalid parameter "match[]": {text[:80]!r} is no series selector')
    return matchers_of(tree)


def millis(length: timedelta | None) -> int:
    return 0 if length is None else round(length / timedelta(milliseconds=1))


def fixed_millis(at: grammar.AtModifier) -> int | None:
    """The instant of an `@`; None for start() and end(). Raises BadQuery for one that no calendar has."""
    try:
        instant = at.at
    except (ValueError, OverflowError) as error:
        raise BadQuery("the time after @ is out of range") from error
    return None if instant is None else millis(instant - datetime.fromtimestamp(0, tz=instant.tzinfo))


def bare(tree: Any) -> Any:
    """The tree without brackets around it."""
    while isinstance(tree, grammar.ParenExpr):
        tree = tree.expr
    return tree
