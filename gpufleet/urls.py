"""Addresses of pages, API and health."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path, re_path

from dashboards.api import router
from dashboards.prometheus import views as prometheus

urlpatterns: list[URLPattern | URLResolver] = [
    path("", include("dashboards.urls")),
    path("", include("dashboards.detail_urls")),
    path("api/v1/", include((router.urls(), "api-v1"))),
    path("prometheus/api/v1/", include((prometheus.urlpatterns, "prometheus"))),
    re_path(r"^api/(?P<rest>.*)$", router.no_such_route),
]
