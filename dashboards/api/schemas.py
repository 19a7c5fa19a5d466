"""Shapes of requests and answers, as openapi.json shows them."""

from __future__ import annotations

from typing import Any, Literal

from ninja import Field, Schema

State = Literal["healthy", "degraded", "failed", "unknown", "maintenance", "out_of_service"]
Instant = str
MAX_TEXT = 4000


class FieldError(Schema):
    field: str
    message: str


class ProblemOut(Schema):
    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError]


class GpuOut(Schema):
    uuid: str
    slot: int
    model: str | None
    state: State
    reasons: list[str]
    data_age_seconds: float | None
    metrics: dict[str, float | None]


class NodeOut(Schema):
    name: str
    cluster: str
    rack: str | None
    switch: str | None
    state: State
    reasons: list[str]
    data_age_seconds: float | None
    gpus: list[GpuOut]


class FleetOut(Schema):
    as_of: Instant
    counts: dict[str, dict[str, int]]
    nodes: list[NodeOut]


class SeriesRow(Schema):
    node: str
    gpu_uuid: str | None
    slot: int | None
    values: list[float | None]


class SeriesOut(Schema):
    metric: str
    unit: str
    times: list[float]
    series: list[SeriesRow]


class EvidenceOut(Schema):
    signal: str
    node: str | None
    gpu_uuid: str | None
    at: Instant
    value: float | str | None
    expected: float | str | None


class IncidentOut(Schema):
    id: int
    version: int
    kind: str
    severity: Literal["info", "warning", "critical"]
    cluster: str | None
    node: str | None
    gpu_uuid: str | None
    slot: int | None
    opened_at: Instant
    first_evidence_at: Instant | None
    acknowledged_at: Instant | None
    acknowledged_by: str | None
    assignee: str | None
    snoozed_until: Instant | None
    label: Literal["real", "false", "known"] | None
    resolved_at: Instant | None
    status: Literal["open", "acknowledged", "resolved"]
    title: str
    recommended_action: str
    paged: bool
    parent_id: int | None
    members: list[Any]
    evidence: list[EvidenceOut]
    url: str


class IncidentsOut(Schema):
    incidents: list[IncidentOut]
    next: str | None


class EventOut(Schema):
    id: int
    at: Instant
    actor: str | None
    verb: str
    source: str
    detail: dict[str, Any]


class EventsOut(Schema):
    events: list[EventOut]


class Versioned(Schema):
    version: int | None = Field(None, description="Refuse with 409 when the incident has moved on from this version.")


class NoteIn(Versioned):
    note: str = Field("", max_length=MAX_TEXT)


class AcknowledgeIn(NoteIn):
    expires_at: Instant | None = None


class AssignIn(Versioned):
    user: str | None = Field(..., max_length=150)


class SnoozeIn(Versioned):
    until: Instant | None = None
    seconds: int | None = Field(None, ge=1, le=90 * 86400)


class CommentIn(Versioned):
    text: str = Field(..., min_length=1, max_length=MAX_TEXT)


class LabelIn(NoteIn):
    label: Literal["real", "false", "known"]


class ResolveIn(NoteIn):
    force: bool = False


class TargetOut(Schema):
    url: str
    labels: dict[str, str]
    node: str | None
    job: str | None
    up: bool | None
    reason: str | None
    last_scrape_at: Instant | None
    duration_seconds: float | None
    bytes: int | None
    samples_accepted: int | None
    samples_rejected: int | None
    samples_missing: int | None
    first_bad_line: Any


class TargetsOut(Schema):
    targets: list[TargetOut]


class AvailabilityRow(Schema):
    subject: str
    gpu_count: int
    up_seconds: float
    down_seconds: float
    planned_seconds: float
    unknown_seconds: float
    out_of_service_seconds: float
    availability_ratio: float | None
    incidents: int
    mtbf_seconds: float | None
    mttr_seconds: float | None


class AvailabilityOut(Schema):
    month: str | None
    tz: str
    scope: str
    rows: list[AvailabilityRow]
