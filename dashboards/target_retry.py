"""One target scraped at once on a person's wish: a form's POST, then a cell that asks until it knows how it went."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods

from gpufleet.accounts.roles import can
from gpufleet.core.times import utc_now
from gpufleet.fleet.models import Target
from gpufleet.pipeline.retrying import RetryRefused, Try, ask, tries


@require_http_methods(["GET", "POST"])
def retry(request: HttpRequest, target_id: int) -> HttpResponse:
    """POST asks, GET tells how the newest try stands. A refusal is a sentence: 429 too soon, 503 no broker."""
    target = get_object_or_404(Target.objects.select_related("node"), pk=target_id, removed_at=None)
    now = utc_now()
    if request.method == "GET":
        return _cell(request, target, tries([target.pk]).get(target.pk))
    user = request.user
    if not can(user.role, "target.retry"):  # type: ignore[union-attr]
        return render(request, "403.html", {"detail": "Your role may read targets, not re-try them."}, status=403)
    try:
        asked = ask(target, actor=user.get_username(), source="page", now=now)
    except RetryRefused as error:
        return _refused(request, target, error)
    if request.headers.get("HX-Request"):
        return _cell(request, target, asked)
    messages.info(request, f"{target.node.name} is tried now; its row shows the outcome.")
    return redirect(_back(request))


def _cell(request: HttpRequest, target: Target, tried: Try | None, problem: str = "") -> HttpResponse:
    now = utc_now()
    context = {
        "target": target,
        "tried": tried,
        "problem": problem,
        "may_retry": can(request.user.role, "target.retry"),  # type: ignore[union-attr]
        "moment": now,
    }
    return render(request, "targets/_try.html", context)


def _refused(request: HttpRequest, target: Target, error: RetryRefused) -> HttpResponse:
    """htmx swaps the sentence into the row, whatever the status."""
    if request.headers.get("HX-Request"):
        answer = _cell(request, target, tries([target.pk]).get(target.pk), str(error))
    else:
        messages.error(request, str(error))
        return redirect(_back(request))
    answer.status_code = 503 if error.seconds is None else 429
    if error.seconds is not None:
        answer["Retry-After"] = str(error.seconds)
    return answer


def _back(request: HttpRequest) -> str:
    wanted = request.POST.get("next", "")
    hosts, secure = {request.get_host()}, request.is_secure()
    return wanted if wanted and url_has_allowed_host_and_scheme(wanted, hosts, require_https=secure) else "/targets/"
