"""The routes below /prometheus/api/v1/. Each reads; GET and POST with a form are the same."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from threading import BoundedSemaphore

from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.http import HttpRequest, HttpResponse
from django.urls import URLPattern, path, re_path
from django.views.decorators.csrf import csrf_exempt

from dashboards.prometheus.access import denial
from dashboards.prometheus.encoding import failure, result, success
from dashboards.prometheus.metadata import metadata_of
from dashboards.prometheus.parameters import Parameters
from gpufleet import __version__
from gpufleet.core.times import utc_now
from gpufleet.promql.engine import query_instant, query_range
from gpufleet.promql.errors import BadQuery, PromqlError
from gpufleet.promql.inventory import metric_names
from gpufleet.promql.limits import Budget, Limits
from gpufleet.promql.scraped import ScrapedStorage
from gpufleet.promql.vectors import NAME, Labels, key_of

LIMITS = Limits()
# Lists of labels read no samples, so they may look at more series than a query.
LISTING = Limits(max_series=200_000)
# Queries at once in a process: what they hold in memory adds up, and pages want a turn too.
SLOTS = BoundedSemaphore(3)
WAIT_SECONDS = 10.0
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
View = Callable[..., HttpResponse]


def _route(view: View) -> View:
    """Who may not read gets no further, and every failure becomes Prometheus' own kind of answer."""

    @csrf_exempt  # a form from elsewhere changes nothing, and its sender cannot read the answer
    @functools.wraps(view)
    def answered(request: HttpRequest, **values: str) -> HttpResponse:
        if request.method not in ("GET", "POST", "HEAD"):
            response = failure(405, "bad_data", f"This address answers GET and POST, not {request.method}.")
            response["Allow"] = "GET, POST, HEAD"
            return response
        denied = denial(request)
        if denied is not None:
            return denied
        if not SLOTS.acquire(timeout=WAIT_SECONDS):
            response = failure(429, "execution", "Too many queries at once: ask again in a moment.")
            response["Retry-After"] = "1"
            return response
        try:
            return view(Parameters(request), **values)
        except PromqlError as error:
            return failure(error.status, error.kind, str(error))
        except RequestDataTooBig:
            return failure(413, "bad_data", "The form is larger than 1 MiB.")
        except SuspiciousOperation as error:
            return failure(400, "bad_data", str(error))
        finally:
            SLOTS.release()

    answered.login_required = False  # type: ignore[attr-defined]
    return answered


def _limits(given: Parameters) -> Limits:
    """A request may ask for less time than there is, not for more."""
    seconds = given.duration("timeout", LIMITS.timeout_seconds)
    if seconds <= 0:
        raise BadQuery('invalid parameter "timeout": a duration above 0')
    return Limits(timeout_seconds=min(seconds, LIMITS.timeout_seconds))


def query(given: Parameters) -> HttpResponse:
    at = given.instant("time", _now())
    return result(query_instant(ScrapedStorage(), given.text("query"), at, _limits(given)))


def query_over(given: Parameters) -> HttpResponse:
    start, end = given.instant("start"), given.instant("end")
    step = round(given.duration("step") * 1000)
    return result(query_range(ScrapedStorage(), given.text("query"), start, end, step, _limits(given)))


def series(given: Parameters) -> HttpResponse:
    if not given.selectors():
        raise BadQuery("no match[] parameter provided")
    found = {key_of(labels): labels for labels in _series(given)}
    return success([found[key] for key in sorted(found)][: given.limit()])


def labels(given: Parameters) -> HttpResponse:
    found = {name for one in _series(given) for name in one}
    return success(sorted(found)[: given.limit()])


def label_values(given: Parameters, name: str) -> HttpResponse:
    if not _LABEL.fullmatch(name):
        raise BadQuery(f'invalid label name: "{name[:64]}"')
    if name == NAME and not given.selectors():
        return success(metric_names()[: given.limit()])
    found = {one[name] for one in _series(given) if name in one}
    return success(sorted(found)[: given.limit()])


def metadata(given: Parameters) -> HttpResponse:
    asked = given.text("metric")
    names = [name for name in metric_names() if not asked or name == asked]
    return success(metadata_of(names[: given.limit()]))


def build_info(given: Parameters) -> HttpResponse:
    """The release of Prometheus whose answers ours are held against; its readers choose their queries by it."""
    made = {"revision": f"gpufleet {__version__}", "branch": "", "buildUser": "", "buildDate": "", "goVersion": ""}
    return success({"version": "2.42.0", **made})


def nothing_here(given: Parameters, rest: str) -> HttpResponse:
    known = "query, query_range, series, labels, label/<name>/values, metadata and status/buildinfo"
    return failure(404, "not_found", f"There is no {rest[:100]!r}: {known} are answered below /prometheus/api/v1/.")


def _series(given: Parameters) -> Iterable[Labels]:
    """Labels of the series that any of the selectors picks, of all series without one."""
    start, end = given.instant("start", 0), given.instant("end", _now())
    budget = Budget(LISTING)
    for matchers in given.selectors() or [[]]:
        yield from ScrapedStorage().series(matchers, start, end, budget)


def _now() -> int:
    return int(utc_now().timestamp() * 1000)


urlpatterns: list[URLPattern] = [
    path("query", _route(query), name="query"),
    path("query_range", _route(query_over), name="query-range"),
    path("series", _route(series), name="series"),
    path("labels", _route(labels), name="labels"),
    path("label/<str:name>/values", _route(label_values), name="label-values"),
    path("metadata", _route(metadata), name="metadata"),
    path("status/buildinfo", _route(build_info), name="build-info"),
    re_path(r"^(?P<rest>.*)$", _route(nothing_here)),
]
