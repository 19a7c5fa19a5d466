"""Addresses of the pages."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.urls import URLPattern, URLResolver, path

from dashboards import find, fleet_map, health, live
from dashboards.sign_in import SignInView, SignOutView

urlpatterns: list[URLPattern | URLResolver] = [
    path("sign-in/", SignInView.as_view(), name="sign-in"),
    path("sign-out/", login_not_required(SignOutView.as_view()), name="sign-out"),
    path("", fleet_map.fleet, name="fleet"),
    path("fleet/snapshot.json", fleet_map.snapshot, name="fleet-snapshot"),
    path("fleet/incidents/", fleet_map.incidents, name="fleet-incidents"),
    path("fleet/gpu-card/<str:node>/<int:slot>/", fleet_map.gpu_card, name="fleet-gpu-card"),
    path("find/", find.find, name="find"),
    path("live/", live.stream, name="live"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", health.metrics, name="metrics"),
]
