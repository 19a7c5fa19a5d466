"""The event stream at /live/, for the ASGI process: `cycle` events with the picture of a metric, `incident` events.

A stream ends by itself after a quarter of an hour, so that a person who was signed out is asked again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from dashboards.live_address import host_name
from dashboards.live_hub import LiveHub, Reader
from gpufleet.fleet.models import Cluster
from gpufleet.pipeline.health import live_clusters
from gpufleet.pipeline.live import LIVE_METRICS

COMMENT_SECONDS = 20.0
LONGEST_SECONDS = 900.0
MOST_READERS = 2000
RETRY_MILLISECONDS = 3000

_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, LiveHub] = WeakKeyDictionary()


def hub() -> LiveHub:
    """The hub of the running event loop."""
    return _hubs.setdefault(asyncio.get_running_loop(), LiveHub(settings.BROKER_URL))


@login_not_required
async def stream(request: HttpRequest) -> HttpResponseBase:
    """`?metric=a,b&cluster=name`. Strangers get 401, other origins no permission to read, too many readers 503."""
    response = await _answer(request)
    await sync_to_async(connections.close_all)()  # a stream lasts a quarter of an hour and needs no database any more
    origin = request.headers.get("Origin", "")
    if origin and is_own_origin(request, origin):
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Allow-Credentials"] = "true"
    response.headers["Vary"] = "Origin, Cookie"
    response.headers["Cache-Control"] = "no-store"
    return response


async def _answer(request: HttpRequest) -> HttpResponseBase:
    if request.method != "GET":
        return HttpResponse(status=405, headers={"Allow": "GET"})
    origin = request.headers.get("Origin", "")
    if origin and not is_own_origin(request, origin):
        return _problem(403, "This stream is for our own pages.")
    if not (await request.auser()).is_authenticated:
        return _problem(401, "Sign in first.")
    if not isinstance(request, ASGIRequest):
        return _problem(503, "The stream is served by the live process; poll /fleet/snapshot.json instead.")
    metrics = frozenset(request.GET.get("metric", LIVE_METRICS[0]).split(",")) & frozenset(LIVE_METRICS)
    if not metrics:
        return _problem(400, "No such metric on the live bus.")
    cluster = await _cluster(request.GET.get("cluster", ""))
    if cluster is None:
        return _problem(404, "No such cluster.")
    if len(hub().readers) >= MOST_READERS:
        response = _problem(503, "Too many open streams.")
        response.headers["Retry-After"] = "60"
        return response
    reader = Reader(cluster.name, metrics)
    frames = read_frames(reader)
    headers = {"X-Accel-Buffering": "no", "Content-Encoding": "identity"}
    return StreamingHttpResponse(frames, content_type="text/event-stream; charset=utf-8", headers=headers)


async def read_frames(reader: Reader) -> AsyncIterator[bytes]:
    """Frames as they come; a comment line in silence, so that every proxy keeps the line open."""
    found = hub()
    found.join(reader)
    ends_at = time.monotonic() + LONGEST_SECONDS
    try:
        yield b"retry: %d\n\n" % RETRY_MILLISECONDS
        while time.monotonic() < ends_at:
            yield await reader.next_frames(COMMENT_SECONDS) or b": still here\n\n"
    finally:
        found.leave(reader)


async def _cluster(name: str) -> Cluster | None:
    if name:
        return await Cluster.objects.filter(name=name, is_replay=False).afirst()
    clusters = await sync_to_async(live_clusters)()
    return clusters[0] if clusters else None


def is_own_origin(request: HttpRequest, origin: str) -> bool:
    """The page's own origin: the host that the browser named, at the port of the pages; or one that is configured."""
    base = urlsplit(str(settings.ENV["GPUFLEET_BASE_URL"]))
    if origin in (f"{base.scheme}://{base.netloc}", *settings.CSRF_TRUSTED_ORIGINS):
        return True
    try:
        parts = urlsplit(origin)
        same_place = (parts.scheme, parts.port) == (base.scheme, base.port)
    except ValueError:
        return False
    return same_place and parts.netloc.rpartition(":")[0] == host_name(request)


def _problem(status: int, detail: str) -> HttpResponse:
    return JsonResponse({"status": status, "detail": detail}, status=status)
