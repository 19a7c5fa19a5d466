"""Content-Security-Policy and its companions on every answer, static files included (a worker obeys its own answer).

`settings.SECURE_CSP` has the shape that Django 6 reads, so that this module can go when we move there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from django.conf import settings
from django.http import HttpRequest
from django.http.response import HttpResponseBase

from dashboards.live_address import live_origin

NO_DEVICES = "camera=(), geolocation=(), microphone=(), payment=(), usb=()"


def policy_text(policy: Mapping[str, Sequence[str]], more_connections: Sequence[str] = ()) -> str:
    """The header's value; `more_connections` are origins added to `connect-src`."""
    parts = []
    for directive, sources in policy.items():
        added = tuple(more_connections) if directive == "connect-src" else ()
        parts.append(" ".join((directive, *sources, *added)))
    return "; ".join(parts)


class ContentSecurityPolicyMiddleware:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        origin = live_origin(request)
        text = policy_text(settings.SECURE_CSP, [origin] if origin else [])
        response.headers.setdefault("Content-Security-Policy", text)
        response.headers.setdefault("Cross-Origin-Resource-Policy", "same-origin")
        response.headers.setdefault("Permissions-Policy", NO_DEVICES)
        return response
