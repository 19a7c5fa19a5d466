"""The inventory: where nodes stand, which GPU sits in which slot, what is scraped, and what is planned."""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q

LIVE = "default"


class Cluster(models.Model):
    name = models.CharField(max_length=63, unique=True)
    is_replay = models.BooleanField(default=False)

    def __str__(self) -> str:
        return self.name


class Rack(models.Model):
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="racks")
    name = models.CharField(max_length=63)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("cluster", "name"), name="rack_name_in_cluster"),)

    def __str__(self) -> str:
        return self.name


class Switch(models.Model):
    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="switches")
    name = models.CharField(max_length=63)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("cluster", "name"), name="switch_name_in_cluster"),)

    def __str__(self) -> str:
        return self.name


class Node(models.Model):
    """A machine. Its name is the one that its targets are configured with; labels never rename it."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="nodes")
    name = models.CharField(max_length=255)
    rack = models.ForeignKey(Rack, on_delete=models.SET_NULL, null=True, blank=True, related_name="nodes")
    switch = models.ForeignKey(Switch, on_delete=models.SET_NULL, null=True, blank=True, related_name="nodes")
    expected_gpus = models.PositiveSmallIntegerField(
        null=True, blank=True, help_text="Largest number seen, unless a person set it."
    )
    expected_gpus_by = models.CharField(max_length=150, blank=True)
    commissioned_at = models.DateTimeField(null=True, blank=True)
    retired_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("cluster", "name"), name="node_name_in_cluster"),)

    def __str__(self) -> str:
        return self.name


class Gpu(models.Model):
    """An accelerator, known by its UUID; without one by `<node>/<pci bus id>`."""

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="gpus")
    uuid = models.CharField(max_length=255)
    model = models.CharField(max_length=127, blank=True)
    vendor = models.CharField(max_length=31, blank=True)
    serial = models.CharField(max_length=63, blank=True)
    driver_version = models.CharField(max_length=63, blank=True)
    first_seen_at = models.DateTimeField()
    last_seen_at = models.DateTimeField()

    class Meta:
        constraints = (models.UniqueConstraint(fields=("cluster", "uuid"), name="gpu_uuid_in_cluster"),)

    def __str__(self) -> str:
        return self.uuid


class Placement(models.Model):
    """A GPU in a slot of a node during `[starts_at, ends_at)`."""

    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE, related_name="placements")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="placements")
    slot = models.PositiveSmallIntegerField()
    pci_bus_id = models.CharField(max_length=31, blank=True)
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(fields=("gpu",), condition=Q(ends_at=None), name="gpu_in_one_slot"),
            models.CheckConstraint(
                condition=Q(ends_at=None) | Q(ends_at__gt=F("starts_at")), name="placement_ends_later"
            ),
        )

    def __str__(self) -> str:
        return f"{self.gpu_id} in {self.node_id}/{self.slot}"


class Target(models.Model):
    """One URL that is scraped for one node."""

    class Kind(models.TextChoices):
        UNKNOWN = "unknown"
        GPU = "gpu"
        NODE = "node"

    cluster = models.ForeignKey(Cluster, on_delete=models.CASCADE, related_name="targets")
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="targets")
    url = models.URLField(max_length=2048)
    job = models.CharField(max_length=127, blank=True)
    kind = models.CharField(max_length=8, choices=Kind, default=Kind.UNKNOWN)
    labels = models.JSONField(default=dict)
    trusted = models.BooleanField(
        default=False, help_text="Named on the command line: may be outside GPUFLEET_SCRAPE_ALLOW."
    )
    source = models.CharField(max_length=255, blank=True, help_text="File or person that it came from.")
    access = models.CharField(
        max_length=127, blank=True, help_text="Job of the sources file that says how to ask; empty: no credentials."
    )
    created_at = models.DateTimeField()
    removed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.UniqueConstraint(
                fields=("cluster", "url"), condition=Q(removed_at=None), name="target_url_in_cluster"
            ),
        )

    def __str__(self) -> str:
        return self.url


class MaintenanceWindow(models.Model):
    """Planned time of a node during `[starts_at, ends_at)`: mutes, and is left out of availability."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="maintenance_windows")
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    reason = models.CharField(max_length=255)
    created_by = models.CharField(max_length=150)
    created_at = models.DateTimeField()

    class Meta:
        constraints = (models.CheckConstraint(condition=Q(ends_at__gte=F("starts_at")), name="window_ends_later"),)

    def __str__(self) -> str:
        return f"{self.node_id} {self.starts_at:%Y-%m-%d %H:%M} {self.reason}"


class Assignment(models.Model):
    """A pod or job on a GPU during `[starts_at, ends_at)`; `workload` holds the label values.

    `lost_at`: the first scrape without its labels. A short loss is bridged, a longer one ends the interval there.
    """

    gpu = models.ForeignKey(Gpu, on_delete=models.CASCADE, related_name="assignments")
    job = models.CharField(max_length=255)
    workload = models.JSONField(default=dict)
    starts_at = models.DateTimeField()
    lost_at = models.DateTimeField(null=True, blank=True)
    ends_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = (
            models.CheckConstraint(
                condition=Q(ends_at=None) | Q(ends_at__gt=F("starts_at")), name="assignment_ends_later"
            ),
        )
        indexes = (models.Index(fields=("gpu",), condition=Q(ends_at=None), name="assignment_open"),)

    def __str__(self) -> str:
        return f"{self.job} on {self.gpu_id}"


class NodeEvent(models.Model):
    """What happened on a node: an XID, a reboot, a driver change, a job start. Application XIDs live only here."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="events")
    gpu = models.ForeignKey(Gpu, on_delete=models.SET_NULL, null=True, blank=True, related_name="events")
    at = models.DateTimeField()
    kind = models.CharField(max_length=16)
    xid = models.PositiveIntegerField(null=True, blank=True)
    count = models.PositiveIntegerField(default=1)
    source = models.CharField(max_length=16)
    text = models.CharField(max_length=1024, blank=True)
    fingerprint = models.CharField(max_length=64, unique=True)

    class Meta:
        indexes = (models.Index(fields=("node", "-at"), name="node_event_by_time"),)

    def __str__(self) -> str:
        return f"{self.kind} {self.xid or ''} at {self.at:%H:%M:%S}"
