"""Signing in and out. Every page needs it, unless its view says `login_not_required`; the API has its own check."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render, resolve_url
from django_htmx.http import HttpResponseClientRedirect

OWN_AUTHENTICATION = ("/api/", "/prometheus/")


class SignInRequiredMiddleware(LoginRequiredMiddleware):
    """Sends strangers to the sign-in page; a fragment asked for by htmx moves the whole page there."""

    def process_view(
        self, request: HttpRequest, view_func: Any, view_args: tuple[Any, ...], view_kwargs: dict[str, Any]
    ) -> HttpResponseBase | None:
        if request.path.startswith(OWN_AUTHENTICATION):
            return None
        answer = super().process_view(request, view_func, view_args, view_kwargs)
        if answer is None or not request.headers.get("HX-Request"):
            return answer
        query = urlencode({"next": getattr(request, "htmx").current_url_abs_path or "/"})  # noqa: B009
        return HttpResponseClientRedirect(f"{resolve_url(settings.LOGIN_URL)}?{query}")


class SignInView(LoginView):
    template_name = "sign_in.html"
    redirect_authenticated_user = True


class SignOutView(LogoutView):
    http_method_names = ["post", "options"]


def locked_out(request: HttpRequest, response: HttpResponse | None = None, credentials: Any = None) -> HttpResponse:
    """The answer of django-axes to too many wrong passwords."""
    seconds = int(float(settings.AXES_COOLOFF_TIME) * 3600)
    context = {"minutes": max(1, seconds // 60), "tries": settings.AXES_FAILURE_LIMIT}
    page = render(request, "locked_out.html", context, status=429)
    page.headers["Retry-After"] = str(seconds)
    return page
