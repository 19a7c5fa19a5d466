"""The audit log: one entry an act, written in the act's own transaction. A database trigger refuses changes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from gpufleet.accounts.models import AuditEntry


def record(
    *, at: datetime, actor: str, source: str, verb: str, subject: str, detail: dict[str, Any] | None = None
) -> AuditEntry:
    """Call it inside the transaction of the act. `source`: page, api, rule, import or command."""
    return AuditEntry.objects.create(
        at=at, actor=actor[:150], source=source, verb=verb, subject=subject[:255], detail=detail or {}
    )
