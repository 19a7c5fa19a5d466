"""Titles and evidence as a row shows them beside the subject: nothing is said twice."""

from __future__ import annotations

from typing import Any

import pytest

from dashboards.incident_panel import evidence_line, short_title


@pytest.mark.parametrize(
    ("title", "subject", "shown"),
    [
        ("XID 79 on gpu-027 GPU 5 (0000:c3:00.0): Driver lost the GPU", "gpu-027 g5", "XID 79: Driver lost the GPU"),
        ("gpu-012 GPU 2 (0000:52:00.0) is missing", "gpu-012 g2", "is missing"),
        ("Node gpu-045 unreachable (timeout)", "gpu-045", "unreachable (timeout)"),
        ("GPU exporter of gpu-053 fails: http status", "gpu-053", "GPU exporter fails: http status"),
        ("Telemetry of gpu-053 is frozen", "gpu-053", "Telemetry is frozen"),
        ("gpu-0531 is something else", "gpu-053", "gpu-0531 is something else"),
        ("gpu-053", "gpu-053", "gpu-053"),
    ],
)
def test_title_without_its_subject(title: str, subject: str, shown: str) -> None:
    assert short_title(title, subject, subject.split()[0]) == shown


@pytest.mark.parametrize(
    ("piece", "shown"),
    [
        (
            {"signal": "gpu_listed", "value": "no longer listed", "expected": "listed"},
            "no longer listed by its exporter",
        ),
        ({"signal": "scrape_failed", "value": "timeout", "expected": "a good scrape"}, "scrapes fail: timeout"),
        ({"signal": "gpu_xid", "value": 79.0, "expected": "no XID"}, "XID 79"),
        ({"signal": "gpu_temperature_celsius", "value": 96.0, "expected": 93.0}, "Temperature 96 °C, expected 93 °C"),
        ({"signal": "gpu_power_watts", "value": None, "expected": None}, "Power"),
    ],
)
def test_evidence_in_one_line(piece: dict[str, Any], shown: str) -> None:
    assert evidence_line([piece]) == shown
    assert evidence_line([]) == ""
