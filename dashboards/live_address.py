"""Where the event stream is: the page's own origin, another port of its host, or an address of its own."""

from __future__ import annotations

from urllib.parse import urlsplit

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.http import HttpRequest
from django.http.request import split_domain_port

LIVE_PATH = "/live/"


def live_url(request: HttpRequest) -> str:
    """The address a page opens for its stream."""
    if settings.ENV["GPUFLEET_LIVE_URL"]:
        return str(settings.ENV["GPUFLEET_LIVE_URL"])
    return live_origin(request) + LIVE_PATH


def live_origin(request: HttpRequest) -> str:
    """`scheme://host:port` of the stream; empty when it is the page's own origin or the host is not ours."""
    url = str(settings.ENV["GPUFLEET_LIVE_URL"])
    if url:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc}"
    port = int(settings.ENV["GPUFLEET_LIVE_PORT"])
    return f"{request.scheme}://{host_name(request)}:{port}" if port and host_name(request) else ""


def host_name(request: HttpRequest) -> str:
    """The host that the browser named, without its port; empty when it is none that we answer to."""
    try:
        return split_domain_port(request.get_host())[0]
    except DisallowedHost:
        return ""
