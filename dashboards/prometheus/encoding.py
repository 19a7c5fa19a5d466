"""Answers as Prometheus writes them: `{"status": .., "data": ..}`, numbers as text."""

from __future__ import annotations

from collections.abc import Iterable
from operator import add
from typing import Any

import numpy as np
import orjson
from django.http import HttpResponse

from gpufleet.promql.engine import Answer, Row
from gpufleet.promql.numbers import spelling
from gpufleet.promql.vectors import FloatArray

JSON = "application/json"


def success(data: Any) -> HttpResponse:
    return _whole(orjson.dumps(data))


def failure(status: int, kind: str, message: str) -> HttpResponse:
    body = {"status": "error", "errorType": kind, "error": message}
    return HttpResponse(orjson.dumps(body), status=status, content_type=JSON)


def result(answer: Answer) -> HttpResponse:
    """A query's answer."""
    if answer.kind == "matrix":
        body = b"[" + b",".join(_series(answer.rows)) + b"]"
    elif answer.kind == "vector":
        body = b"[" + b",".join(_members(answer.rows)) + b"]"
    else:
        row = answer.rows[0]
        text = orjson.dumps(answer.text if answer.kind == "string" else spelling(float(row.values[0])))
        body = b"[" + _seconds(int(row.times[0])) + b"," + text + b"]"
    return _whole(b'{"resultType":"' + answer.kind.encode() + b'","result":' + body + b"}")


def _whole(data: bytes) -> HttpResponse:
    return HttpResponse(b'{"status":"success","data":' + data + b"}", content_type=JSON)


def _members(rows: Iterable[Row]) -> Iterable[bytes]:
    for row in rows:
        at, value = _seconds(int(row.times[0])), number(float(row.values[0]))
        yield b'{"metric":' + orjson.dumps(row.labels) + b',"value":[' + at + b',"' + value + b'"]}'


def _series(rows: Iterable[Row]) -> Iterable[bytes]:
    openings: dict[bytes, list[bytes]] = {}  # most series of an answer have the same times
    for row in rows:
        key = row.times.tobytes()
        if key not in openings:
            openings = {key: [b"[" + _seconds(at) + b',"' for at in row.times.tolist()]}
        points = b'"],'.join(map(add, openings[key], _numbers(row.values)))
        yield b'{"metric":' + orjson.dumps(row.labels) + b',"values":[' + points + b'"]]}'


def _numbers(values: FloatArray) -> list[bytes]:
    text: bytes = orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY)
    if b"e" in text or not np.isfinite(values).all():
        return [number(value) for value in values.tolist()]
    return text[1:-1].replace(b".0,", b",").removesuffix(b".0").split(b",")


def number(value: float) -> bytes:
    """As Prometheus spells a sample: with an exponent only below 1e-6 and from 1e21 on."""
    if value and np.isfinite(value) and not 1e-6 <= abs(value) < 1e21:
        return repr(value).encode()
    return spelling(value).encode()


def _seconds(millis: int) -> bytes:
    whole, rest = divmod(millis, 1000)
    return b"%d.%03d" % (whole, rest) if rest else b"%d" % whole
