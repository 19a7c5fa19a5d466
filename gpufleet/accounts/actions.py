"""Writes to accounts, each with its audit entry."""

from __future__ import annotations

from datetime import datetime

from django.contrib.auth.password_validation import validate_password
from django.db import transaction

from gpufleet.accounts import audit
from gpufleet.accounts.models import Role, User


@transaction.atomic
def create_user(
    username: str, role: str, password: str, *, now: datetime, actor: str = "command", email: str = ""
) -> User:
    """Makes a user of one role. Raises ValidationError for a weak password and IntegrityError for a taken name."""
    user = User(username=username, role=Role(role), email=email, date_joined=now)
    validate_password(password, user)
    user.set_password(password)
    user.save(force_insert=True)
    audit.record(
        at=now, actor=actor, source="command", verb="user.create", subject=f"user:{username}", detail={"role": role}
    )
    return user
