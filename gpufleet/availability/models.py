"""The state ledger: gap-free half-open intervals of each GPU and node, and the outages that were imported."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from gpufleet.fleet.models import Cluster, Gpu, Node


class State(models.TextChoices):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    MAINTENANCE = "maintenance"
    OUT_OF_SERVICE = "out_of_service"


class StateInterval(models.Model):
    """A GPU (or a node, when `gpu` is null) in one state during `[starts_at, ends_at)`; open: `ends_at` null."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, null=True, related_name="state_intervals")
    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE, null=True, related_name="state_intervals")
    state = models.CharField(max_length=16, choices=State)
    reasons = models.JSONField(default=list)
    incident_id = models.BigIntegerField(null=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("gpu",), condition=Q(ends_at=None, gpu__isnull=False), name="gpu_in_one_state"
            ),
            models.UniqueConstraint(fields=("node",), condition=Q(ends_at=None, gpu=None), name="node_in_one_state"),
            models.CheckConstraint(
                condition=Q(ends_at=None) | Q(ends_at__gt=F("starts_at")), name="interval_ends_later"
            ),
        )
        indexes = (
            models.Index(fields=("gpu", "starts_at"), name="ledger_by_gpu"),
            models.Index(fields=("node", "starts_at"), name="ledger_by_node"),
        )

    def __str__(self) -> str:
        return f"{self.state} from {self.starts_at:%Y-%m-%d %H:%M:%S}"


class LedgerHead(models.Model):
    """Up to when the ledger of a node has been told by a scrape. After a pause the time between is unknown."""

    node = models.OneToOneField(Node, on_delete=models.CASCADE, primary_key=True, related_name="ledger_head")
    told_until = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.node_id} until {self.told_until}"
