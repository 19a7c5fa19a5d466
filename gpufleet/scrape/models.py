"""What the collector did: its cycles, and how each target stands."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from gpufleet.fleet.models import Cluster, Target


class Cycle(models.Model):
    """One round over all targets. `number` is the wall-clock slot: floor(Unix seconds / interval)."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE)
    number = models.BigIntegerField()
    interval_seconds = models.PositiveSmallIntegerField()
    started_at = models.DateTimeField()
    shards = models.PositiveSmallIntegerField()
    shards_scraped = models.PositiveSmallIntegerField(default=0)
    scraped = ArrayField(
        models.PositiveSmallIntegerField(), default=list, help_text="The shards that are stored, as they came."
    )
    shards_detected = models.PositiveSmallIntegerField(default=0)
    finished_at = models.DateTimeField(null=True)
    missed_before = models.PositiveIntegerField(
        default=0, help_text="Cycles that never ran between the one before and this one."
    )

    class Meta:
        constraints = (models.UniqueConstraint(fields=("cluster", "number", "interval_seconds"), name="cycle_once"),)

    def __str__(self) -> str:
        return f"cycle {self.number}"


class SourceStatus(models.Model):
    """How reading a source of targets went: a job of the sources file, or the file itself."""

    name = models.CharField(max_length=255, unique=True)
    targets = models.PositiveIntegerField(default=0)
    problem = models.CharField(max_length=1023, blank=True, help_text="Empty: it was read.")
    read_at = models.DateTimeField()
    good_at = models.DateTimeField(null=True)

    class Meta:
        verbose_name_plural = "source statuses"

    def __str__(self) -> str:
        return self.name


class TargetStatus(models.Model):
    """How a target stands after its newest scrape."""

    target = models.OneToOneField(Target, on_delete=models.CASCADE, primary_key=True, related_name="status")
    last_scrape_at = models.DateTimeField()
    last_good_at = models.DateTimeField(null=True)
    reason = models.CharField(max_length=31, blank=True, help_text="Empty: the scrape was good.")
    detail = models.CharField(max_length=255, blank=True)
    failures_in_a_row = models.PositiveIntegerField(default=0)
    duration_seconds = models.FloatField()
    bytes = models.PositiveIntegerField(default=0)
    samples_accepted = models.PositiveIntegerField(default=0)
    samples_rejected = models.PositiveIntegerField(default=0)
    samples_missing = models.PositiveIntegerField(default=0)
    samples_impossible = models.PositiveIntegerField(default=0)
    samples_disagreeing = models.PositiveIntegerField(
        default=0, help_text="Lines that tell another value of one series than the highest, which is the one kept."
    )
    first_bad_line = models.JSONField(null=True)

    class Meta:
        verbose_name_plural = "target statuses"

    def __str__(self) -> str:
        return self.reason or "up"
