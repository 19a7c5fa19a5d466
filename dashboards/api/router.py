"""Puts the routes together and turns every failure into a problem document."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import orjson
from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.urls import URLPattern, URLResolver
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, HttpError, ValidationError
from ninja.openapi.schema import OpenAPISchema
from ninja.parser import Parser

from dashboards.api import (
    availability,
    coverage,
    fleet,
    history,
    incidents,
    maintenance,
    nodes,
    series,
    silences,
    target_changes,  # noqa: F401 - puts its routes on that of `fleet`, which has the same address
    trends,
)
from dashboards.api.problems import Problem, problem_response
from gpufleet import __version__

PROBLEM_TYPE = "application/problem+json"


class StrictParser(Parser):
    """JSON as RFC 8259 has it: no NaN, no half of a surrogate pair, no bottomless nesting."""

    def parse_body(self, request: HttpRequest) -> dict[str, Any]:
        body = orjson.loads(request.body)
        if not isinstance(body, dict):
            raise ValueError("the body is no JSON object")
        return body


class Api(NinjaAPI):
    def get_openapi_schema(self, *, path_prefix: str | None = None, path_params: Any = None) -> OpenAPISchema:
        """Errors are shown with the media type that they are sent as."""
        document = super().get_openapi_schema(path_prefix=path_prefix, path_params=path_params)
        for operations in document["paths"].values():
            for operation in operations.values():
                for status, answer in operation["responses"].items():
                    if int(status) >= 400 and "application/json" in answer.get("content", {}):
                        answer["content"] = {PROBLEM_TYPE: answer["content"]["application/json"]}
        return document


api = Api(
    title="gpufleet",
    version=__version__,
    openapi_url="/openapi.json",
    docs_url=None,
    urls_namespace="api-v1",
    parser=StrictParser(),
)
for part in (fleet, coverage, nodes, series, history, incidents, silences, maintenance, availability, trends):
    api.add_router("", part.router)


@api.exception_handler(Problem)
def on_problem(request: HttpRequest, error: Problem) -> HttpResponse:
    return problem_response(error.status, error.detail, error.errors, **error.extra)


@api.exception_handler(ValidationError)
def on_invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    errors = [{"field": _field(one["loc"]), "message": str(one["msg"])} for one in error.errors]
    return problem_response(422, "The request has fields that cannot be used.", errors)


def _field(place: tuple[str | int, ...]) -> str:
    """`(query, limit)` is `limit`, `(body, body, nodes, 0)` is `nodes.0`; the body as a whole is `body`."""
    steps = [str(step) for step in place]
    return ".".join(steps[2:] if steps[0] == "body" else steps[1:]) or steps[0]


@api.exception_handler(AuthenticationError)
def on_stranger(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    response = problem_response(401, "Send a valid bearer token, or sign in.")
    response["WWW-Authenticate"] = 'Bearer realm="gpufleet"'
    return response


@api.exception_handler(RequestDataTooBig)
def on_too_big(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    return problem_response(413, "The body is larger than 1 MiB.")


@api.exception_handler(HttpError)
def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    """Ninja says 400 for a body that its parser refused; one that is too large is refused by the same reading."""
    if isinstance(error.__context__, RequestDataTooBig):
        return on_too_big(request, error.__context__)
    if error.status_code == 400:
        return problem_response(400, "The body is no JSON object in UTF-8.")
    return problem_response(error.status_code, error.message)


@csrf_exempt
def no_such_route(request: HttpRequest, rest: str) -> HttpResponse:
    return problem_response(404, f"There is no /api/{rest[:200]}; /api/v1/openapi.json lists the routes.")


no_such_route.login_required = False  # type: ignore[attr-defined]


def _guarded(view: Callable[..., HttpResponseBase]) -> Callable[..., HttpResponseBase]:
    """A method that a route does not have is a problem document too; text that no column can hold gets no further."""

    @functools.wraps(view)
    def guarded(request: HttpRequest, *args: Any, **values: Any) -> HttpResponseBase:
        for name, value in [*values.items(), *((n, v) for n in request.GET for v in request.GET.getlist(n))]:
            if "\x00" in str(value):
                message = "a NUL character is no part of any name or value here"
                return problem_response(422, message, [{"field": name.replace("\x00", ""), "message": message}])
        response = view(request, *args, **values)
        if response.status_code == 405:
            allowed = response["Allow"]
            response = problem_response(405, f"This address answers {allowed}, not {request.method}.")
            response["Allow"] = allowed
        return response

    guarded.login_required = False  # type: ignore[attr-defined]
    return guarded


def urls() -> list[URLPattern | URLResolver]:
    """The API's addresses. Its routes say themselves who may call them: the pages' sign-in rule stays out."""
    patterns: list[URLPattern | URLResolver] = api.urls[0]
    for pattern in patterns:
        if isinstance(pattern, URLPattern):
            pattern.callback = _guarded(pattern.callback)
    return patterns
