"""Addresses of nodes, GPUs, incidents, targets and rules."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards import (
    availability_page,
    collection_pages,
    coverage_page,
    incident_acts,
    incident_list,
    incident_page,
    node_page,
    node_series,
    target_list,
    target_retry,
)

urlpatterns: list[URLPattern | URLResolver] = [
    path("nodes/<str:name>/", node_page.node, name="node"),
    path("nodes/<str:name>/series.json", node_series.node_series, name="node-series"),
    path("gpus/<path:uuid>/", node_page.gpu, name="gpu"),
    path("availability/", availability_page.availability_now, name="availability-now"),
    path("availability/<str:month>/", availability_page.availability_month, name="availability-month"),
    path("targets/", target_list.targets, name="targets"),
    path("targets/coverage/", coverage_page.coverage_page, name="coverage"),
    path("targets/<int:target_id>/retry/", target_retry.retry, name="target-retry"),
    path("rules/", collection_pages.rules, name="rules"),
    path("incidents/", incident_list.incident_list, name="incidents"),
    path("incidents/<int:incident_id>/", incident_page.incident, name="incident"),
    *(
        path(f"incidents/<int:incident_id>/{verb}/", incident_acts.act, {"verb": verb}, name=f"incident-{verb}")
        for verb in incident_acts.VERBS
    ),
]
