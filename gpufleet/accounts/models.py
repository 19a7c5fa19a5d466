"""Users with one role each, API tokens, and the audit log that nothing rewrites."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from django.db import models


class Role(models.TextChoices):
    """What a person or a token may do; `accounts.roles` holds the table."""

    VIEWER = "viewer", "Viewer"
    RESPONDER = "responder", "Responder"
    MANAGER = "manager", "Manager"
    ADMIN = "admin", "Administrator"
    INGEST = "ingest", "Ingest"


class User(AbstractUser):
    role = models.CharField(max_length=16, choices=Role, default=Role.VIEWER)
    time_zone = models.CharField(max_length=64, default="UTC")


class ApiToken(models.Model):
    """A bearer token. Only its SHA-256 is kept; `prefix` lets a person recognise it."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    role = models.CharField(max_length=16, choices=Role)
    prefix = models.CharField(max_length=12)
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"{self.prefix}… of {self.user.username}"


class AuditEntry(models.Model):
    """One act of a person, a rule or an import. Written in the transaction of the act; a trigger refuses changes."""

    at = models.DateTimeField()
    actor = models.CharField(max_length=150)
    source = models.CharField(max_length=16)
    verb = models.CharField(max_length=64)
    subject = models.CharField(max_length=255)
    detail = models.JSONField(default=dict)

    class Meta:
        ordering = ("-id",)
        verbose_name_plural = "audit entries"

    def __str__(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} {self.actor} {self.verb} {self.subject}"
