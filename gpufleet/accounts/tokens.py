"""API tokens: shown once, kept as a digest, limited by role and time."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q

from gpufleet.accounts import audit
from gpufleet.accounts.models import ApiToken, User
from gpufleet.accounts.roles import may_stand_in

PREFIX = "gpf_"
SHOWN_CHARACTERS = 12
LONGEST_TEXT = 128
LONGEST_DAYS = 3650


class TokenError(ValueError):
    """A token that may not be made; the message says why."""


@dataclass(frozen=True, slots=True)
class Bearer:
    """Who a token speaks for, and the role it may use."""

    user: User
    role: str
    token_id: int


@transaction.atomic
def create_token(user: User, *, now: datetime, role: str | None = None, days: int | None = None, actor: str) -> str:
    """Makes a token and returns its text: the only time that it can be read. Raises TokenError."""
    granted = role or user.role
    if not may_stand_in(user.role, granted):
        raise TokenError(
            f"a token of {user.username} ({user.role}) cannot have the role {granted}, which reaches further"
        )
    if days is not None and not 1 <= days <= LONGEST_DAYS:
        raise TokenError(f"a token lasts 1 to {LONGEST_DAYS} days")
    text = PREFIX + secrets.token_urlsafe(32)
    expires_at = now + timedelta(days=days) if days is not None else None
    token = ApiToken.objects.create(
        user=user,
        role=granted,
        prefix=text[:SHOWN_CHARACTERS],
        digest=_digest(text),
        created_at=now,
        expires_at=expires_at,
    )
    audit.record(
        at=now, actor=actor, source="command", verb="token.create", subject=f"token:{token.pk}",
        detail={"user": user.username, "role": granted, "prefix": token.prefix},
    )  # fmt: skip
    return text


def authenticate(text: str, *, now: datetime) -> Bearer | None:
    """Whom the token speaks for; None for one that is unknown, expired or revoked, or whose user is inactive.

    The digest is looked up by an index, so the time does not tell how much of a guess was right.
    """
    if len(text) > LONGEST_TEXT:
        return None
    token = (
        ApiToken.objects.select_related("user")
        .filter(Q(expires_at=None) | Q(expires_at__gt=now), digest=_digest(text), revoked_at=None, user__is_active=True)
        .first()
    )
    if token is None:
        return None
    reach = token.role if may_stand_in(token.user.role, token.role) else token.user.role
    return Bearer(token.user, reach, token.pk)


@transaction.atomic
def revoke_token(token_id: int, *, now: datetime, actor: str, source: str) -> None:
    """Ends a token at once. Revoking it again changes nothing."""
    if ApiToken.objects.filter(pk=token_id, revoked_at=None).update(revoked_at=now):
        audit.record(at=now, actor=actor, source=source, verb="token.revoke", subject=f"token:{token_id}")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
