"""What detection says: findings, each with the evidence behind it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """FIRING: the condition holds. CLEAR: its clear condition was seen, on good data. UNKNOWN: cannot be told now."""

    FIRING = "firing"
    CLEAR = "clear"
    UNKNOWN = "unknown"


def key_text(kind: str, subject: str) -> str:
    """The key of a finding as `Finding.cause` names it."""
    return f"{kind}|{subject}"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One observation. `signal`: a canonical metric or a scrape signal such as `scrape_failed`; `at`: Unix seconds."""

    signal: str
    node: str | None
    gpu_uuid: str | None
    at: float
    value: float | str | None
    expected: float | str | None


@dataclass(frozen=True, slots=True)
class Finding:
    """One statement of one rule about one subject at one time.

    `subject` is `gpu:<uuid>`, `node:<name>` or `cluster`. `state` is what the subject is while the finding fires
    (failed, degraded or unknown; empty: no influence). `occurrence` names a new happening (an XID event at a time):
    intake counts each occurrence once, however often the finding is repeated. `cause` groups findings of one cause
    in one evaluation: the finding whose own subject key equals `cause` is the parent.
    """

    rule: str
    kind: str
    subject: str
    status: Status
    severity: str
    title: str
    recommended_action: str
    first_evidence_at: float
    at: float
    node: str | None = None
    gpu_uuid: str | None = None
    slot: int | None = None
    state: str = ""
    evidence: tuple[Evidence, ...] = ()
    occurrence: str = ""
    cause: str = ""
    pages: bool = True
    needs_person: bool = False
