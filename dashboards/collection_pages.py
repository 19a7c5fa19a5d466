"""Rules as a page: what opens an incident and why."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from gpufleet.detect.rules import load_rules


@require_safe
def rules(request: HttpRequest) -> HttpResponse:
    """Every rule with its reason, its source, how long it must hold and what clears it."""
    return render(request, "rules.html", {"section": "rules", "rules": load_rules()})
