"""Acts on incidents from a page: one form a verb. Each goes through the same action as the API."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from dashboards.addresses import incident_address
from gpufleet.accounts.roles import can
from gpufleet.core.times import utc_now
from gpufleet.incidents import actions
from gpufleet.incidents.intake import Change
from gpufleet.incidents.models import Incident
from gpufleet.pipeline.live import publish_incident

MAX_TEXT = 4000


class ActForm(forms.Form):
    """What every verb may bring; each verb reads its own fields."""

    version = forms.IntegerField(required=False, min_value=1)
    note = forms.CharField(required=False, max_length=MAX_TEXT)
    text = forms.CharField(required=False, max_length=MAX_TEXT)
    user = forms.CharField(required=False, max_length=150)
    seconds = forms.IntegerField(required=False, min_value=1, max_value=90 * 86400)
    label = forms.ChoiceField(required=False, choices=[("real", "real"), ("false", "false"), ("known", "known")])
    force = forms.BooleanField(required=False)


def _snooze(data: dict[str, Any], now: datetime) -> dict[str, Any]:
    return {"until": now + timedelta(seconds=data["seconds"] or 3600)}


def _note(data: dict[str, Any], now: datetime) -> dict[str, Any]:
    return {"note": data["note"]}


VERBS: dict[str, tuple[Callable[..., Incident], Callable[[dict[str, Any], datetime], dict[str, Any]]]] = {
    "acknowledge": (actions.acknowledge, _note),
    "unacknowledge": (actions.unacknowledge, _note),
    "assign": (actions.assign, lambda data, now: {"assignee": data["user"] or None}),
    "snooze": (actions.snooze, _snooze),
    "comment": (actions.comment, lambda data, now: {"text": data["text"]}),
    "label": (actions.label, lambda data, now: {"label": data["label"], "note": data["note"]}),
    "resolve": (actions.resolve, lambda data, now: {"note": data["note"], "force": data["force"]}),
    "reopen": (actions.reopen, _note),
}


@require_POST
def act(request: HttpRequest, incident_id: int, verb: str) -> HttpResponse:
    """Carries out the verb. A form gets a redirect, htmx 204 and an event; a refusal is said in a sentence."""
    if not can(request.user.role, "incident.act"):  # type: ignore[union-attr]
        return render(request, "403.html", {"detail": "Your role may read incidents, not act on them."}, status=403)
    form = ActForm(request.POST)
    if not form.is_valid():
        return _refused(
            request, incident_id, "; ".join(f"{name}: {errors[0]}" for name, errors in form.errors.items()), 422
        )
    action, arguments = VERBS[verb]
    now = utc_now()
    try:
        version = form.cleaned_data["version"]
        action(incident_id, request.user, now=now, source="page", version=version, **arguments(form.cleaned_data, now))
    except actions.NotFound:
        return _refused(request, incident_id, "This incident does not exist.", 404)
    except actions.Conflict as error:
        return _refused(request, incident_id, str(error), 409)
    except actions.Invalid as error:
        return _refused(request, incident_id, str(error), 422)
    publish_incident(Change(incident_id, verb))
    if request.headers.get("HX-Request"):
        return HttpResponse(status=204, headers={"HX-Trigger": "incidentschanged"})
    return redirect(_back(request, incident_id))


def _refused(request: HttpRequest, incident_id: int, sentence: str, status: int) -> HttpResponse:
    if request.headers.get("HX-Request") or status == 404:
        return HttpResponse(sentence, status=status, content_type="text/plain; charset=utf-8")
    messages.error(request, sentence)
    return redirect(_back(request, incident_id))


def _back(request: HttpRequest, incident_id: int) -> str:
    wanted = request.POST.get("next", "")
    if wanted and url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    ):
        return wanted
    return incident_address(incident_id)
