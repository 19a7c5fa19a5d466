"""Who asks: a token as bearer or as the password of basic authentication, or a signed-in page's session."""

from __future__ import annotations

import base64
import binascii

from django.http import HttpRequest, HttpResponse

from dashboards.prometheus.encoding import failure
from gpufleet.accounts.models import User
from gpufleet.accounts.roles import can
from gpufleet.accounts.tokens import authenticate
from gpufleet.core.times import utc_now

MAX_HEADER = 1_024


def denial(request: HttpRequest) -> HttpResponse | None:
    """The answer to somebody who may not read; None for who may. A token that is shown counts, not the session."""
    role = _role(request)
    if role is None:
        response = failure(401, "unauthorized", "Send a token as bearer or as the password, or sign in.")
        response["WWW-Authenticate"] = 'Basic realm="gpufleet", Bearer realm="gpufleet"'
        return response
    if not can(role, "read"):
        return failure(403, "forbidden", f"The role {role} may not read.")
    return None


def _role(request: HttpRequest) -> str | None:
    header = request.headers.get("Authorization")
    if header is not None:
        found = authenticate(_token(header), now=utc_now())
        return found.role if found else None
    user = request.user
    return user.role if isinstance(user, User) and user.is_active else None


def _token(header: str) -> str:
    """The token of an Authorization header; empty when there is none that can be read."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() != "basic" or len(rest) > MAX_HEADER:
        return ""
    try:
        return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
