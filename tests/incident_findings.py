"""Findings for tests of incidents."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from gpufleet.detect.findings import Evidence, Finding, Status

START = datetime(2026, 3, 10, 12, tzinfo=UTC)
UUID = "GPU-a29179bc-9c50-5230-8afb-d43d37f8edda"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def finding(seconds: float, status: Status = Status.FIRING, **changes: object) -> Finding:
    """A thermal finding about GPU 2 of gpu-n01, `seconds` after the start; `changes` replace fields."""
    now = at(seconds).timestamp()
    evidence = Evidence("gpu_temperature_celsius", "gpu-n01", UUID, now, 96.0, 93.0)
    made = Finding(
        rule="thermal.core_slowdown", kind="thermal", subject=f"gpu:{UUID}", status=status, severity="critical",
        title="gpu-n01 g2 is too hot", recommended_action="check_cooling", first_evidence_at=now, at=now,
        node="gpu-n01", gpu_uuid=UUID, slot=2, state="degraded", evidence=(evidence,),
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]
