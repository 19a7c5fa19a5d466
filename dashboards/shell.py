"""What every page shows around its own part: navigation, who is signed in, and how well collection works."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache

from django.db.models import Count, Q
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse

from dashboards.live_address import live_url
from gpufleet.core.times import utc_now
from gpufleet.fleet.models import Cluster
from gpufleet.incidents.models import Incident
from gpufleet.pipeline.health import CollectionHealth, collection_health, live_clusters

PAGES = (
    ("fleet", "Fleet", "wall"),
    ("incidents", "Incidents", "bell"),
    ("trends", "Trends", "trend"),
    ("availability-now", "Availability", "cal"),
    ("targets", "Targets", "list"),
    ("rules", "Rules", "list"),
)
PHONE_TABS = 4
THEMES = ("light", "dark")


@dataclass(frozen=True, slots=True)
class Page:
    name: str
    title: str
    icon: str
    url: str


@lru_cache(maxsize=1)
def pages() -> tuple[Page, ...]:
    """The pages that this installation has, in the order of the bar."""
    found = []
    for name, title, icon in PAGES:
        try:
            found.append(Page(name, title, icon, reverse(name)))
        except NoReverseMatch:
            continue
    return tuple(found)


def page_address(name: str) -> str:
    """The address of a page of the bar; the fleet's when this installation has no such page."""
    return next((page.url for page in pages() if page.name == name), "/")


class Shell:
    """Read by templates as `shell`. Each part is asked of the database only when a template uses it, and once."""

    def __init__(self, request: HttpRequest, now: datetime) -> None:
        self.request = request
        self.now = now

    @property
    def pages(self) -> tuple[Page, ...]:
        return pages()

    @property
    def tabs(self) -> tuple[Page, ...]:
        return pages()[:PHONE_TABS]

    @property
    def theme(self) -> str:
        """The reader's choice; empty: as the system says."""
        theme = self.request.COOKIES.get("theme", "")
        return theme if theme in THEMES else ""

    @property
    def live_url(self) -> str:
        return live_url(self.request)

    @cached_property
    def clusters(self) -> list[Cluster]:
        return live_clusters()

    @cached_property
    def cluster(self) -> Cluster | None:
        """The cluster of the page: the one named in the address, or the first one that is scraped."""
        named = self.request.GET.get("cluster", "")
        if named:
            found = next((cluster for cluster in self.clusters if cluster.name == named), None)
            return found or Cluster.objects.filter(name=named).first()
        return self.clusters[0] if self.clusters else None

    @cached_property
    def health(self) -> CollectionHealth:
        return collection_health(self.cluster, self.now)

    @cached_property
    def open_incidents(self) -> dict[str, int]:
        """`total` and `unacknowledged` of the page's cluster; members of another incident are not counted."""
        unresolved = Incident.objects.filter(cluster=self.cluster, resolved_at=None, parent=None)
        return unresolved.aggregate(total=Count("id"), unacknowledged=Count("id", filter=Q(acknowledged_at=None)))


def shell(request: HttpRequest) -> dict[str, Shell]:
    """Context processor."""
    found = getattr(request, "shell", None)
    if found is None:
        found = Shell(request, utc_now())
        request.shell = found  # type: ignore[attr-defined]
    return {"shell": found}
