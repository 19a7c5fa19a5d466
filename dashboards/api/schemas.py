"""Shapes of requests and answers, as openapi.json shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from ninja import Field, Schema
from pydantic import AfterValidator

State = Literal["healthy", "degraded", "failed", "unknown", "maintenance", "out_of_service"]
Instant = str
MAX_TEXT = 4000
MAX_NODES = 1000


def _without_nul(text: str) -> str:
    if "\x00" in text:
        raise ValueError("the text holds a NUL character")
    return text


Text = Annotated[str, AfterValidator(_without_nul)]


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
    job: str | None
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
    metric: str
    labels: dict[str, str]
    values: list[float | None]


class SeriesOut(Schema):
    metric: str
    unit: str
    times: list[float]
    series: list[SeriesRow]


class ValueRow(Schema):
    node: str
    gpu_uuid: str | None
    slot: int | None
    labels: dict[str, str]
    at: float
    value: float


class ValuesOut(Schema):
    metric: str
    unit: str
    values: list[ValueRow]


class BandRow(Schema):
    metric: str
    unit: str
    p5: list[float | None]
    p50: list[float | None]
    p95: list[float | None]
    present: list[int]


class BandsOut(Schema):
    times: list[float]
    bands: list[BandRow]


class EvidenceOut(Schema):
    signal: str
    node: str | None
    gpu_uuid: str | None
    at: Instant
    value: float | str | None
    expected: float | str | None


class MemberOut(Schema):
    id: int
    kind: str
    severity: Literal["info", "warning", "critical"]
    node: str | None
    gpu_uuid: str | None
    slot: int | None
    title: str
    first_evidence_at: Instant | None
    evidence: list[EvidenceOut]


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
    last_seen_at: Instant | None
    no_data_since: Instant | None
    recovered_at: Instant | None
    acknowledged_at: Instant | None
    acknowledged_by: str | None
    acknowledgement_expires_at: Instant | None
    assignee: str | None
    snoozed_until: Instant | None
    label: Literal["real", "false", "known"] | None
    resolved_at: Instant | None
    resolved_by: str | None
    status: Literal["open", "acknowledged", "resolved"]
    title: str
    rule: str
    recommended_action: str
    occurrences: int
    paged: bool
    parent_id: int | None
    members: list[MemberOut]
    evidence: list[EvidenceOut]
    url: str


class ConflictOut(ProblemOut):
    """Carries the incident as it is, so that the caller can look and decide again."""

    incident: IncidentOut


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
    note: Text = Field("", max_length=MAX_TEXT)


class AcknowledgeIn(NoteIn):
    expires_at: Instant | None = None


class AssignIn(Versioned):
    user: Text | None = Field(..., max_length=150)


class SnoozeIn(Versioned):
    until: Instant | None = None
    seconds: int | None = Field(None, ge=1, le=90 * 86400)


class CommentIn(Versioned):
    text: Text = Field(..., min_length=1, max_length=MAX_TEXT)


class LabelIn(NoteIn):
    label: Literal["real", "false", "known"]


class ResolveIn(NoteIn):
    force: bool = False


# What a verb without a body says.
NO_NOTE = NoteIn.model_validate({})
NO_ACKNOWLEDGEMENT = AcknowledgeIn.model_validate({})
NO_RESOLUTION = ResolveIn.model_validate({})


class TargetOut(Schema):
    url: str
    labels: dict[str, str]
    node: str | None
    job: str | None
    up: bool | None
    reason: str | None
    detail: str | None
    last_scrape_at: Instant | None
    duration_seconds: float | None
    bytes: int | None
    samples_accepted: int | None
    samples_rejected: int | None
    samples_missing: int | None
    samples_impossible: int | None
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


class SilenceIn(Schema):
    nodes: list[Text] = Field(default_factory=list, max_length=MAX_NODES)
    rack: Text | None = Field(None, max_length=63)
    kind: Text | None = Field(None, max_length=31)
    cluster: Text | None = Field(None, max_length=63)
    starts_at: Instant | None = Field(None, description="Now, when it is left out.")
    ends_at: Instant
    reason: Text = Field(..., min_length=1, max_length=255)


class WindowIn(SilenceIn):
    kind: Text | None = Field(None, max_length=31, description="Not for planned time: refused when given.")


class SilenceOut(Schema):
    id: int
    cluster: str
    node: str | None
    kind: str | None
    starts_at: Instant
    ends_at: Instant
    reason: str
    created_by: str


class SilencesMade(Schema):
    silences: list[SilenceOut]


class SilencesOut(SilencesMade):
    next: str | None


class WindowOut(Schema):
    id: int
    cluster: str
    node: str
    starts_at: Instant
    ends_at: Instant
    reason: str
    created_by: str
    created_at: Instant


class WindowsMade(Schema):
    maintenance: list[WindowOut]


class WindowsOut(WindowsMade):
    next: str | None


class ExpectedGpusIn(Schema):
    count: int | None
    cluster: Text | None = Field(None, max_length=63)


class ExpectedGpusOut(Schema):
    node: str
    expected_gpus: int | None
    expected_gpus_by: str | None


class TrendRow(Schema):
    key: str
    failures: int
    node_days: float
    rate_per_1000_node_days: float | None
    rate_low: float | None
    rate_high: float | None


class TrendBucket(Schema):
    starts_at: Instant
    ends_at: Instant
    rows: list[TrendRow]


class TrendsOut(Schema):
    bucket: Literal["day", "week", "month"]
    by: Literal["kind", "node", "rack", "model"]
    buckets: list[TrendBucket]


def answers(schema: type[Schema], *refusals: int, good: int = 200) -> dict[int, type[Schema]]:
    """What a route can answer with: `schema`, these refusals, and those that every route has."""
    problems: dict[int, type[Schema]] = dict.fromkeys(sorted({401, 403, 405, *refusals}), ProblemOut)
    return {good: schema, **problems, **({409: ConflictOut} if 409 in refusals else {})}
