"""Who may do what: the one table. Every page, route and command asks `can`."""

from __future__ import annotations

from collections.abc import Mapping

from gpufleet.accounts.models import Role

_READERS = frozenset({Role.VIEWER, Role.RESPONDER, Role.MANAGER, Role.ADMIN})
_RESPONDERS = frozenset({Role.RESPONDER, Role.ADMIN})

ACTS: Mapping[str, frozenset[Role]] = {
    "read": _READERS,
    "incident.act": _RESPONDERS,
    "silence.change": _RESPONDERS,
    "maintenance.change": _RESPONDERS,
    "ledger.correct": frozenset({Role.MANAGER, Role.ADMIN}),
    "report.publish": frozenset({Role.MANAGER, Role.ADMIN}),
    "target.change": frozenset({Role.ADMIN}),
    "target.retry": _RESPONDERS,
    "rule.change": frozenset({Role.ADMIN}),
    "channel.change": frozenset({Role.ADMIN}),
    "user.change": frozenset({Role.ADMIN}),
    "event.post": frozenset({Role.INGEST, Role.RESPONDER, Role.ADMIN}),
}

_REACH: Mapping[Role, frozenset[str]] = {
    role: frozenset(act for act, roles in ACTS.items() if role in roles) for role in Role
}


def can(role: str, act: str) -> bool:
    """Whether the role may do the act. An unknown act is a mistake in the program: KeyError."""
    return role in ACTS[act]


def may_stand_in(holder: str, granted: str) -> bool:
    """Whether somebody of role `holder` may hold a token of role `granted`: it must not reach further than they do."""
    return _REACH[Role(granted)] <= _REACH[Role(holder)]
