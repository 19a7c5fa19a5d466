"""Who asks: a bearer token, or the session of a signed-in page with its CSRF token for writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from django.conf import settings
from django.http import HttpRequest
from ninja.security import APIKeyCookie, HttpBearer
from ninja.utils import check_csrf

from dashboards.api.problems import Problem
from gpufleet.accounts.models import User
from gpufleet.accounts.roles import can
from gpufleet.accounts.tokens import authenticate
from gpufleet.core.times import utc_now


@dataclass(frozen=True, slots=True)
class Caller:
    """The user behind a request, and the role it may use: the token's own when a token asks."""

    user: User
    role: str


class Bearer(HttpBearer):
    def __init__(self, act: str) -> None:
        super().__init__()
        self.act = act

    def authenticate(self, request: HttpRequest, token: str) -> Caller | None:
        found = authenticate(token, now=utc_now())
        return _allowed(Caller(found.user, found.role), self.act) if found else None


class Session(APIKeyCookie):
    """Django's session. Unsafe methods need its CSRF token too; who has no session is a stranger, not a forger."""

    param_name = settings.SESSION_COOKIE_NAME

    def __init__(self, act: str) -> None:
        super().__init__(csrf=False)  # asked for below, once it is known that there is a session
        self.act = act

    def authenticate(self, request: HttpRequest, key: str | None) -> Caller | None:
        user = request.user
        if "Authorization" in request.headers or not isinstance(user, User) or not user.is_active:
            return None
        asking = _allowed(Caller(user, user.role), self.act)
        if check_csrf(request) is not None:
            raise Problem(403, "Send the page's CSRF token in the header X-CSRFToken.")
        return asking


def _allowed(asking: Caller, act: str) -> Caller:
    if not can(asking.role, act):
        raise Problem(403, f"The role {asking.role} may not do this.")
    return asking


def needs(act: str) -> list[Bearer | Session]:
    """Authentication of a route: only roles that may do `act` (accounts/roles.py). Asked before the body is read."""
    return [Bearer(act), Session(act)]


def caller(request: HttpRequest) -> Caller:
    return cast("Caller", request.auth)  # type: ignore[attr-defined]
