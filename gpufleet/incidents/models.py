"""Incidents, the events they are a fold over, and silences."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

from gpufleet.fleet.models import Cluster, Gpu, Node


class Severity(models.TextChoices):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class Incident(models.Model):
    """One cause. A fold over its events; `gpufleet/incidents/lifecycle.py` holds the fold.

    `subject` is the stable text of what is broken: `gpu:<uuid>`, `node:<name>`, `cluster`. At most one unresolved
    incident per (cluster, kind, subject).
    """

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="incidents")
    kind = models.CharField(max_length=31)
    subject = models.CharField(max_length=300)
    rule = models.CharField(max_length=63)
    version = models.PositiveIntegerField(default=0, help_text="Number of its events.")
    severity = models.CharField(max_length=8, choices=Severity)
    node = models.ForeignKey(Node, on_delete=models.SET_NULL, null=True, related_name="incidents")
    gpu = models.ForeignKey(Gpu, on_delete=models.SET_NULL, null=True, related_name="incidents")
    slot = models.PositiveSmallIntegerField(null=True)
    title = models.CharField(max_length=255)
    recommended_action = models.CharField(max_length=31)
    evidence = models.JSONField(default=list)
    occurrences = models.PositiveIntegerField(default=0)
    occurrence_ids = models.JSONField(default=list)
    needs_person = models.BooleanField(default=False)
    paged = models.BooleanField(default=False)
    parent = models.ForeignKey("self", on_delete=models.SET_NULL, null=True, related_name="children")
    first_evidence_at = models.DateTimeField()
    last_event_at = models.DateTimeField(help_text="When its newest occurrence happened.")
    opened_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()
    no_data_since = models.DateTimeField(null=True)
    recovered_at = models.DateTimeField(null=True)
    acknowledged_at = models.DateTimeField(null=True)
    acknowledged_by = models.CharField(max_length=150, blank=True)
    acknowledgement_expires_at = models.DateTimeField(null=True)
    assignee = models.CharField(max_length=150, blank=True)
    snoozed_until = models.DateTimeField(null=True)
    label = models.CharField(max_length=8, blank=True)
    resolved_at = models.DateTimeField(null=True)
    resolved_by = models.CharField(max_length=150, blank=True)

    class Meta:
        ordering = ("-opened_at", "-id")
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "kind", "subject"),
                condition=Q(resolved_at=None),
                name="one_unresolved_incident_a_key",
            ),
            models.CheckConstraint(
                condition=Q(resolved_at=None) | Q(resolved_at__gte=F("opened_at")), name="resolved_after_opened"
            ),
        )
        indexes = (
            models.Index(fields=("cluster", "-opened_at", "-id"), name="incident_newest"),
            models.Index(fields=("node", "-opened_at"), name="incident_by_node"),
            models.Index(fields=("cluster", "kind", "subject", "-id"), name="incident_by_key"),
        )

    def __str__(self) -> str:
        return self.title


class IncidentEvent(models.Model):
    """One act on an incident. Never changed, never deleted."""

    incident = models.ForeignKey(Incident, on_delete=models.CASCADE, related_name="events")
    at = models.DateTimeField()
    actor = models.CharField(max_length=150, blank=True)
    source = models.CharField(max_length=8)
    verb = models.CharField(max_length=24)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ("id",)

    def __str__(self) -> str:
        return f"{self.verb} at {self.at:%Y-%m-%d %H:%M:%S}"


class Silence(models.Model):
    """Mutes notifications of a scope during `[starts_at, ends_at)`; changes nothing else."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, null=True)
    kind = models.CharField(max_length=31, blank=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.CharField(max_length=255)
    created_by = models.CharField(max_length=150)

    def __str__(self) -> str:
        return self.reason
