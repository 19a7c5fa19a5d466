"""Series, layouts and frames. The store keeps numbers and knows no meaning: a series carries what reading needs."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db import models

from gpufleet.fleet.models import Gpu, Target


class Series(models.Model):
    """One stream of samples of a target.

    `name` is the exporter's spelling, `metric` the canonical one (or `name` where the catalogue has none). Samples are
    kept as sent; `canonical = raw * scale`, and a raw value outside `[low, high]` or one of the no-value numbers of
    `sentinels` reads as missing.
    """

    target = models.ForeignKey(Target, on_delete=models.CASCADE, related_name="series")
    gpu = models.ForeignKey(Gpu, on_delete=models.SET_NULL, null=True, related_name="series")
    name = models.CharField(max_length=255)
    metric = models.CharField(max_length=255)
    labels = models.JSONField(default=dict)
    fingerprint = models.BinaryField(max_length=16)
    kind = models.CharField(max_length=8, default="gauge")
    unit = models.CharField(max_length=31, blank=True)
    scale = models.FloatField(default=1.0)
    low = models.FloatField(null=True)
    high = models.FloatField(null=True)
    sentinels = models.CharField(max_length=15, blank=True)
    created_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("target", "fingerprint"), name="series_once_a_target"),)
        indexes = (
            models.Index(fields=("metric", "gpu"), name="series_by_metric"),
            models.Index(fields=("gpu", "metric"), name="series_by_gpu"),
            models.Index(fields=("name",), name="series_by_name"),
        )

    def __str__(self) -> str:
        return f"{self.name}{self.labels}"


class Layout(models.Model):
    """The ordered list of series that a target's frames hold values for."""

    target = models.ForeignKey(Target, on_delete=models.CASCADE, related_name="layouts")
    fingerprint = models.BinaryField(max_length=16)
    series_ids = ArrayField(models.BigIntegerField())
    created_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("target", "fingerprint"), name="layout_once_a_target"),)

    def __str__(self) -> str:
        return f"{len(self.series_ids)} series of {self.target_id}"


class Head(models.Model):
    """The newest good frame of a target: where the latest values are."""

    target = models.OneToOneField(Target, on_delete=models.CASCADE, primary_key=True, related_name="head")
    scraped_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.target_id} at {self.scraped_at}"
