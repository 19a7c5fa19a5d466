"""Puts the routes together and turns every failure into a problem document."""

from __future__ import annotations

from django.core.exceptions import RequestDataTooBig
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, URLResolver
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI
from ninja.errors import AuthenticationError, AuthorizationError, HttpError, ValidationError

from dashboards.api import availability, fleet, incidents, series
from dashboards.api.problems import Problem, problem_response
from gpufleet import __version__

api = NinjaAPI(
    title="gpufleet", version=__version__, openapi_url="/openapi.json", docs_url=None, urls_namespace="api-v1"
)
for part in (fleet.router, series.router, incidents.router, availability.router):
    api.add_router("", part)


@api.exception_handler(Problem)
def on_problem(request: HttpRequest, error: Problem) -> HttpResponse:
    return problem_response(error.status, error.detail, error.errors, **error.extra)


@api.exception_handler(ValidationError)
def on_invalid(request: HttpRequest, error: ValidationError) -> HttpResponse:
    errors = [
        {"field": ".".join(str(step) for step in one["loc"][1:]) or "body", "message": str(one["msg"])}
        for one in error.errors
    ]
    return problem_response(422, "The request has fields that cannot be used.", errors)


@api.exception_handler(AuthenticationError)
def on_stranger(request: HttpRequest, error: AuthenticationError) -> HttpResponse:
    response = problem_response(401, "Send a valid bearer token, or sign in.")
    response["WWW-Authenticate"] = "Bearer"
    return response


@api.exception_handler(AuthorizationError)
def on_denied(request: HttpRequest, error: AuthorizationError) -> HttpResponse:
    return problem_response(403, "Your role may not do this.")


@api.exception_handler(RequestDataTooBig)
def on_too_big(request: HttpRequest, error: RequestDataTooBig) -> HttpResponse:
    return problem_response(413, "The body is larger than 1 MiB.")


@api.exception_handler(HttpError)
def on_http_error(request: HttpRequest, error: HttpError) -> HttpResponse:
    return problem_response(error.status_code, error.message)


@csrf_exempt
def no_such_route(request: HttpRequest, rest: str) -> HttpResponse:
    return problem_response(404, f"There is no /api/{rest}; /api/v1/openapi.json lists the routes.")


no_such_route.login_required = False  # type: ignore[attr-defined]


def urls() -> list[URLPattern | URLResolver]:
    """The API's addresses. Its routes say themselves who may call them: the pages' sign-in rule stays out."""
    patterns: list[URLPattern | URLResolver] = api.urls[0]
    for pattern in patterns:
        pattern.callback.login_required = False  # type: ignore[union-attr]
    return patterns
