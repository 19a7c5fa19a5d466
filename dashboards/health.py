"""Is this process alive, can the whole work, and what are its own figures.

`/healthz` and `/readyz` are open: they are asked by supervisors and load balancers and tell nothing about the fleet.
`/metrics` wants a signed-in person or a Bearer token of any role: names of nodes and counts of faults are nobody
else's business. A Prometheus server sends the token with `authorization.credentials_file`.
"""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from dashboards.own_metrics import OwnMetrics
from gpufleet.accounts.tokens import authenticate
from gpufleet.core.bus import BROKER_ERRORS, broker
from gpufleet.core.times import utc_now
from gpufleet.pipeline.health import collection_health, live_clusters


@login_not_required
@require_safe
def healthz(request: HttpRequest) -> HttpResponse:
    """200 as long as this process answers."""
    return JsonResponse({"status": "ok"})


@login_not_required
@require_safe
def readyz(request: HttpRequest) -> HttpResponse:
    """200 when all works, else 503; `checks` names each part with `ok` and a reason."""
    checks = {"database": _check(_database), "broker": _check(_broker)}
    if checks["database"]["ok"]:
        checks["last_good_cycle"] = _last_good_cycle()
    ready = all(check["ok"] for check in checks.values())
    body = {"status": "ready" if ready else "not ready", "checks": checks}
    return JsonResponse(body, status=200 if ready else 503)


@login_not_required
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """Our own figures as Prometheus text; 401 without a session or token."""
    if not (request.user.is_authenticated or _has_token(request)):
        return HttpResponse("A token is needed.\n", status=401, headers={"WWW-Authenticate": "Bearer"})
    registry = CollectorRegistry(auto_describe=False)
    registry.register(OwnMetrics(utc_now()))
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


def _has_token(request: HttpRequest) -> bool:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and authenticate(token.strip(), now=utc_now()) is not None


def _check(probe: Callable[[], None]) -> dict[str, object]:
    try:
        probe()
    except (DatabaseError, *BROKER_ERRORS) as error:
        return {"ok": False, "reason": type(error).__name__}
    return {"ok": True, "reason": ""}


def _database() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


def _broker() -> None:
    broker(settings.BROKER_URL).ping()


def _last_good_cycle() -> dict[str, object]:
    """Not ready when any scraped cluster stands still; a fleet without targets is ready."""
    now = utc_now()
    for cluster in live_clusters():
        health = collection_health(cluster, now)
        if health.is_stale:
            seconds = None if health.age_seconds is None else round(health.age_seconds, 1)
            return {"ok": False, "reason": f"cluster {cluster.name} stands still", "age_seconds": seconds}
    return {"ok": True, "reason": ""}
