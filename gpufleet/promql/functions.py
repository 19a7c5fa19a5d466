"""Functions of instant vectors and scalars: arithmetic, dates, labels."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from gpufleet.promql.errors import BadQuery, ExecutionFailed
from gpufleet.promql.matchers import LabelMatcher, compiled
from gpufleet.promql.vectors import NAME, BoolArray, FloatArray, IntArray, Labels, Vector, merged

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_REFERENCE = re.compile(r"\$(?:\$|(\w+)|\{(\w+)\})", re.ASCII)

# value (s, t) to value; the name goes.
MATHS: Mapping[str, Callable[[FloatArray], FloatArray]] = MappingProxyType(
    {
        **{"abs": np.abs, "ceil": np.ceil, "floor": np.floor, "sqrt": np.sqrt, "exp": np.exp, "ln": np.log},
        **{"log2": np.log2, "log10": np.log10, "deg": np.degrees, "rad": np.radians},
        **{"sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan},
        **{"sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh},
        **{"asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh},
        "sgn": lambda values: np.where(np.isnan(values) | (values == 0), values, np.sign(values)),
    }
)


def rounded(values: FloatArray, to: FloatArray) -> FloatArray:
    """To the nearest multiple of `to` (t); halves go up."""
    inverse = 1.0 / to
    found: FloatArray = np.floor(values * inverse + 0.5) / inverse
    return found


def clamped(vector: Vector, low: FloatArray, high: FloatArray) -> Vector:
    """Into `[low, high]` (t each). Steps at which that is empty have no value."""
    values = np.maximum(low, np.minimum(high, vector.values))
    return vector.with_values(values, vector.present & ~(high < low)).nameless()


def _days(seconds: FloatArray, unit: str) -> IntArray:
    found: IntArray = _instants(seconds).astype(f"datetime64[{unit}]").astype(np.int64)
    return found


def _instants(seconds: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.datetime64]]:
    # Years of four digits: what lies outside is no date that anybody means.
    whole = np.clip(np.nan_to_num(np.trunc(seconds)), -62_135_596_800, 253_402_300_799)
    found: np.ndarray[tuple[int, ...], np.dtype[np.datetime64]] = whole.astype(np.int64).astype("datetime64[s]")
    return found


def _day_of_month(seconds: FloatArray) -> IntArray:
    at = _instants(seconds)
    found: IntArray = (at.astype("datetime64[D]") - at.astype("datetime64[M]").astype("datetime64[D]")).astype(np.int64)
    return found + 1


def _day_of_year(seconds: FloatArray) -> IntArray:
    at = _instants(seconds)
    found: IntArray = (at.astype("datetime64[D]") - at.astype("datetime64[Y]").astype("datetime64[D]")).astype(np.int64)
    return found + 1


def _days_in_month(seconds: FloatArray) -> IntArray:
    month = _instants(seconds).astype("datetime64[M]")
    found: IntArray = ((month + 1).astype("datetime64[D]") - month.astype("datetime64[D]")).astype(np.int64)
    return found


DATES: Mapping[str, Callable[[FloatArray], IntArray]] = MappingProxyType(
    {
        "minute": lambda seconds: _days(seconds, "m") % 60,
        "hour": lambda seconds: _days(seconds, "h") % 24,
        "day_of_week": lambda seconds: (_days(seconds, "D") + 4) % 7,
        "day_of_month": _day_of_month,
        "day_of_year": _day_of_year,
        "days_in_month": _days_in_month,
        "month": lambda seconds: _days(seconds, "M") % 12 + 1,
        "year": lambda seconds: _days(seconds, "Y") + 1970,
    }
)


def dated(name: str, seconds: FloatArray) -> FloatArray:
    """A part of the date of Unix times, in UTC; NaN stays NaN."""
    found: FloatArray = np.where(np.isnan(seconds), np.nan, DATES[name](seconds).astype(np.float64))
    return found


def to_scalar(vector: Vector) -> FloatArray:
    """The value of the only series at each step; NaN when there are none or several."""
    found: FloatArray = np.where(
        vector.present.sum(axis=0) == 1, np.where(vector.present, vector.values, 0.0).sum(axis=0), np.nan
    )
    return found


def absent(vector: Vector, matchers: Sequence[LabelMatcher]) -> Vector:
    """1 at the steps at which no series has a value, with the labels that the selector asks for by `=`."""
    gone: BoolArray = ~np.asarray(vector.present.any(axis=0))[None, :]
    labels: dict[str, str] = {}
    several: set[str] = set()
    for matcher in matchers:
        if matcher.name == NAME:
            continue
        if matcher.op == "=" and matcher.name not in labels and matcher.name not in several:
            labels[matcher.name] = matcher.value
        else:
            labels.pop(matcher.name, None)
            several.add(matcher.name)
    found = {name: value for name, value in labels.items() if value}
    return Vector([found], np.ones(gone.shape), gone)


def label_replace(vector: Vector, target: str, template: str, source: str, pattern: str) -> Vector:
    """Where `source` matches `pattern` as a whole, `target` becomes `template`, with $1 or ${name} for its groups."""
    _check_label("label_replace", "destination", target)
    try:
        expression = compiled(pattern)
    except BadQuery as error:
        raise ExecutionFailed(f"invalid regular expression in label_replace(): {pattern[:80]}") from error
    labels = []
    for mine in vector.labels:
        match = expression.fullmatch(mine.get(source, ""))
        labels.append(mine if match is None else _with(mine, target, _expanded(template, match)))
    return merged(Vector(labels, vector.values, vector.present))


def label_join(vector: Vector, target: str, separator: str, sources: Sequence[str]) -> Vector:
    """`target` becomes the values of `sources`, joined."""
    _check_label("label_join", "destination", target)
    for source in sources:
        _check_label("label_join", "source", source)
    labels = [_with(mine, target, separator.join(mine.get(one, "") for one in sources)) for mine in vector.labels]
    return merged(Vector(labels, vector.values, vector.present))


def _check_label(function: str, which: str, name: str) -> None:
    if not _LABEL.fullmatch(name):
        raise ExecutionFailed(f"invalid {which} label name in {function}(): {name[:80]}")


def _with(labels: Labels, name: str, value: str) -> Labels:
    found = {**labels, name: value}
    if not value:
        del found[name]
    return found


def _expanded(template: str, match: re.Match[str]) -> str:
    """Go's Expand: `$name` takes the longest run of letters, digits and _; a group that is not there is empty."""
    named = match.groupdict()

    def group(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name is None:
            return "$"
        if name.isdigit():
            return (match.group(int(name)) or "") if int(name) <= len(match.groups()) else ""
        return named.get(name) or ""

    return _REFERENCE.sub(group, template)
