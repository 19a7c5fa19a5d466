"""Our own figures as Prometheus families, read from the database and the broker when asked.

One scrape is a handful of queries. Nothing is kept in the processes, so it does not matter which of them answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.conf import settings
from django.db.models import Count, F, Max, Min, Sum
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dashboards.live_hub import CLIENTS_KEY
from gpufleet.availability.models import LedgerHead
from gpufleet.core.bus import BROKER_ERRORS, broker
from gpufleet.fleet.models import Cluster, Target
from gpufleet.incidents.models import Incident
from gpufleet.pipeline.health import collection_health, live_clusters
from gpufleet.pipeline.scraping import budgets
from gpufleet.pipeline.sources import statuses
from gpufleet.scrape.models import Cycle

QUEUES = ("scrape", "detect", "notify", "maintain")
CYCLES_LOOKED_AT = timedelta(minutes=10)


class OwnMetrics(Collector):
    """Yields nothing about the broker when it cannot be reached, but for `gpufleet_broker_up 0`."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def collect(self) -> Iterator[Metric]:
        clusters = live_clusters()
        yield from self._cycles(clusters)
        yield from self._targets(clusters)
        yield from self._sources()
        yield from self._incidents(clusters)
        yield from self._ledger(clusters)
        yield from self._broker(clusters)

    def _cycles(self, clusters: list[Cluster]) -> Iterator[Metric]:
        total = CounterMetricFamily("gpufleet_cycles", "Scrape cycles that were begun.", labels=["cluster"])
        missed = CounterMetricFamily("gpufleet_cycles_missed", "Cycles that never ran.", labels=["cluster"])
        age = GaugeMetricFamily(
            "gpufleet_last_good_cycle_age_seconds", "Since the newest complete cycle began.", labels=["cluster"]
        )
        duration = GaugeMetricFamily(
            "gpufleet_cycle_duration_seconds", "Slowest cycle of the last ten minutes.", labels=["cluster"]
        )
        for cluster in clusters:
            labels = [cluster.name]
            sums = Cycle.objects.filter(cluster=cluster).aggregate(n=Count("id"), missed=Sum("missed_before"))
            total.add_metric(labels, sums["n"])
            missed.add_metric(labels, sums["missed"] or 0)
            seconds = collection_health(cluster, self.now).age_seconds
            age.add_metric(labels, float("nan") if seconds is None else seconds)
            ended = Cycle.objects.filter(cluster=cluster, started_at__gt=self.now - CYCLES_LOOKED_AT)
            slowest = ended.exclude(finished_at=None).aggregate(most=Max(F("finished_at") - F("started_at")))["most"]
            if slowest is not None:
                duration.add_metric(labels, slowest.total_seconds())
        yield from (total, missed, age, duration)

    def _targets(self, clusters: list[Cluster]) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "gpufleet_targets_up", "Targets that answered at their newest scrape.", labels=["cluster"]
        )
        down = GaugeMetricFamily(
            "gpufleet_targets_down", "Targets whose newest scrape failed.", labels=["cluster", "reason"]
        )
        accepted = GaugeMetricFamily(
            "gpufleet_scrape_samples_accepted", "Samples of the newest scrape of all targets.", labels=["cluster"]
        )
        rejected = GaugeMetricFamily(
            "gpufleet_scrape_samples_rejected",
            "Lines of the newest scrapes that could not be used.",
            labels=["cluster"],
        )
        slowest = GaugeMetricFamily(
            "gpufleet_scrape_duration_seconds_max", "Slowest of the newest scrapes.", labels=["cluster"]
        )
        for cluster in clusters:
            rows = Target.objects.filter(cluster=cluster, removed_at=None).values("status__reason")
            ups = 0
            sums = {"accepted": 0, "rejected": 0, "slowest": 0.0}
            for row in rows.annotate(
                n=Count("id"),
                accepted=Sum("status__samples_accepted"),
                rejected=Sum("status__samples_rejected"),
                slowest=Max("status__duration_seconds"),
            ):
                reason = row["status__reason"]
                if reason == "":
                    ups = row["n"]
                else:
                    down.add_metric([cluster.name, reason or "never scraped"], row["n"])
                sums["accepted"] += row["accepted"] or 0
                sums["rejected"] += row["rejected"] or 0
                sums["slowest"] = max(sums["slowest"], row["slowest"] or 0.0)
            up.add_metric([cluster.name], ups)
            accepted.add_metric([cluster.name], sums["accepted"])
            rejected.add_metric([cluster.name], sums["rejected"])
            slowest.add_metric([cluster.name], sums["slowest"])
        yield from (up, down, accepted, rejected, slowest)

    def _sources(self) -> Iterator[Metric]:
        up = GaugeMetricFamily(
            "gpufleet_source_up", "1 when the source of targets could be read the last time.", labels=["source"]
        )
        for status in statuses():
            up.add_metric([status.name], not status.problem)
        yield up

    def _incidents(self, clusters: list[Cluster]) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "gpufleet_incidents_open",
            "Incidents that are not resolved, without the members of others.",
            labels=["cluster", "severity", "kind"],
        )
        rows = Incident.objects.filter(cluster__in=clusters, resolved_at=None, parent=None)
        for row in rows.values("cluster__name", "severity", "kind").annotate(n=Count("id")).order_by():
            family.add_metric([row["cluster__name"], row["severity"], row["kind"]], row["n"])
        yield family

    def _ledger(self, clusters: list[Cluster]) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "gpufleet_ledger_age_seconds", "How far the state of the least told node lies back.", labels=["cluster"]
        )
        heads = LedgerHead.objects.filter(node__cluster__in=clusters, node__retired_at=None)
        for row in heads.values("node__cluster__name").annotate(oldest=Min("told_until")).order_by():
            age = (self.now - row["oldest"]).total_seconds()
            family.add_metric([row["node__cluster__name"]], max(0.0, age))
        yield family

    def _broker(self, clusters: list[Cluster]) -> Iterator[Metric]:
        budget = GaugeMetricFamily(
            "gpufleet_cycle_budget_ratio",
            "Share of its interval that a part of a shard's newest cycle took; near 1 cycles begin to be missed.",
            labels=["cluster", "shard", "part"],
        )
        up = GaugeMetricFamily("gpufleet_broker_up", "1 when the broker answers.")
        clients = GaugeMetricFamily("gpufleet_live_clients", "Open event streams.")
        queued = GaugeMetricFamily("gpufleet_queue_length", "Tasks that wait.", labels=["queue"])
        try:
            found = broker(settings.BROKER_URL)
            for queue in queue_names():
                queued.add_metric([queue], int(found.llen(queue)))
            for cluster in clusters:
                for (shard, part), share in sorted(budgets(cluster.pk).items()):
                    budget.add_metric([cluster.name, str(shard), part], share)
            keys = list(found.scan_iter(match=f"{CLIENTS_KEY}*", count=1000))
            clients.add_metric([], sum(int(value) for value in found.mget(keys) if value) if keys else 0)
        except BROKER_ERRORS:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield from (up, clients, queued, budget)


def queue_names() -> list[str]:
    """All queues of this installation, by its settings."""
    more = {"scrape": "GPUFLEET_SCRAPE_QUEUES", "detect": "GPUFLEET_DETECT_QUEUES"}
    names = []
    for queue in QUEUES:
        count = int(settings.ENV[more[queue]]) if queue in more else 1
        names += [queue if number == 0 else f"{queue}-{number}" for number in range(count)]
    return names
