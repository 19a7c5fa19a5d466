"""Errors as `application/problem+json` (RFC 9457): `{type, title, status, detail, errors: [{field, message}]}`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import orjson
from django.http import HttpResponse


class Problem(Exception):  # noqa: N818 - the media type calls it a problem
    """Raised by a route; becomes the answer."""

    def __init__(self, status: int, detail: str, *, field: str = "", **extra: Any) -> None:
        super().__init__(detail)
        self.status, self.detail, self.extra = status, detail, extra
        self.errors = [{"field": field, "message": detail}] if field else []


def invalid(field: str, message: str) -> Problem:
    """422: the request can be read, but this field cannot be."""
    return Problem(422, message, field=field)


def problem_response(
    status: int, detail: str, errors: list[dict[str, str]] | None = None, **extra: Any
) -> HttpResponse:
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "errors": errors or [],
        **extra,
    }
    return HttpResponse(orjson.dumps(body), status=status, content_type="application/problem+json")
