"""How well collection itself works: the age of the last good cycle, and how many targets answer."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.conf import settings
from django.db.models import Count, F, Min, Q

from gpufleet.fleet.models import LIVE, Cluster, Target
from gpufleet.scrape.models import Cycle

STALE_INTERVALS = 3


@dataclass(frozen=True, slots=True)
class CollectionHealth:
    """`last_good_at`: start of the newest cycle all of whose shards were stored; None when there was none yet.

    `waiting_since`: when the first target was added; None without targets.
    """

    now: datetime
    interval_seconds: int
    last_good_at: datetime | None
    waiting_since: datetime | None
    targets: int
    targets_up: int

    @property
    def age_seconds(self) -> float | None:
        return None if self.last_good_at is None else max(0.0, (self.now - self.last_good_at).total_seconds())

    @property
    def is_stale(self) -> bool:
        """Nothing can be said about the fleet: the last good cycle is older than three intervals."""
        since = self.last_good_at or self.waiting_since
        if since is None or self.targets == 0:
            return False
        return (self.now - since).total_seconds() > STALE_INTERVALS * self.interval_seconds


def collection_health(cluster: Cluster | None, now: datetime) -> CollectionHealth:
    """As things stand at `now`; the targets are today's. Two queries."""
    interval = int(settings.ENV["GPUFLEET_INTERVAL_SECONDS"])
    if cluster is None:
        return CollectionHealth(now, interval, None, None, 0, 0)
    good = Cycle.objects.filter(cluster=cluster, started_at__lte=now, shards__gt=0, shards_scraped__gte=F("shards"))
    newest = good.order_by("-number").values_list("started_at", flat=True).first()
    counts = Target.objects.filter(cluster=cluster, removed_at=None).aggregate(
        targets=Count("id"), up=Count("id", filter=Q(status__reason="")), since=Min("created_at")
    )
    return CollectionHealth(now, interval, newest, counts["since"], counts["targets"], counts["up"])


def live_clusters() -> list[Cluster]:
    """The clusters that are scraped, the default one first. A replay is none."""
    return sorted(Cluster.objects.filter(is_replay=False), key=lambda cluster: (cluster.name != LIVE, cluster.name))
