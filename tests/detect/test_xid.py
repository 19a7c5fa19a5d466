"""XIDs: what is a happening, what is one cause, and what ends an incident."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpufleet.detect.findings import Status, key_text
from gpufleet.detect.windows import Windows, XidCounts

GPU = "gpu:GPU-0000-1"


def counts(windows: Windows, gpu: int, code: int, source: str, values: list[float]) -> None:
    columns = (np.array([gpu]), np.array([code]), [source], np.array([300.0 if source == "window" else np.inf]))
    windows.xids = XidCounts(*columns, np.array(values)[:, None])
    windows.before.xid_count = np.array([np.nan])
    windows.before.xid_count_at = np.array([np.nan])


def occurrences(kit: Any, windows: Windows) -> list[tuple[str, str, float]]:
    return [
        (each.occurrence, each.severity, each.first_evidence_at) for each in kit.judge(windows) if each.kind == "xid"
    ]


def test_an_edge_of_the_gauge_is_one_happening(kit: Any) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_xid_code"][4:, 1] = 48.0
    windows.gpus.values["gpu_xid_code"][6:, 1] = 0.0
    at = kit.START + 60.0
    assert occurrences(kit, windows) == [(f"xid:GPU-0000-1:48:{round(at * 1000)}", "critical", at)]


@pytest.mark.parametrize(("before", "seen", "happenings"), [(48.0, True, 0), (0.0, True, 1), (np.nan, False, 0)])
def test_a_code_at_the_first_row(kit: Any, before: float, seen: bool, happenings: int) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_xid_code"][:, 1] = 48.0
    windows.before.xid_code[1] = before
    windows.before.seen[1] = seen
    assert len(occurrences(kit, windows)) == happenings


def test_a_first_code_after_no_line_at_all_is_a_happening(kit: Any) -> None:
    windows = kit.healthy()
    windows.before.xid_code[1] = np.nan
    windows.gpus.values["gpu_xid_code"][:5, 1] = np.nan
    windows.gpus.values["gpu_xid_code"][5:, 1] = 79.0
    assert len(occurrences(kit, windows)) == 1


def test_the_same_code_after_a_gap_is_no_happening(kit: Any) -> None:
    windows = kit.healthy()
    windows.before.xid_code[1] = 48.0
    windows.gpus.values["gpu_xid_code"][:, 1] = 48.0
    kit.fail(windows, 0, slice(2, 5), "refused")
    assert occurrences(kit, windows) == []


def test_application_codes_open_nothing(kit: Any) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_xid_code"][4:, 0] = 13.0
    windows.gpus.values["gpu_xid_code"][4:, 1] = 31.0
    windows.gpus.values["gpu_xid_code"][4:, 2] = 43.0
    windows.gpus.values["gpu_xid_code"][4:, 3] = 45.0
    assert kit.judge(windows) == []


def test_rises_of_a_windowed_count(kit: Any) -> None:
    windows = kit.healthy()
    counts(windows, 1, 94, "window", [np.nan, 1, 1, 2, 1, 1, 2, np.nan])
    assert [round(at - kit.START) for _, _, at in occurrences(kit, windows)] == [15, 45, 90]


def test_rises_of_a_total_that_begins_anew(kit: Any) -> None:
    windows = kit.healthy()
    counts(windows, 1, 94, "total", [3, 3, 4, 4, 1, 1, 1, 1])
    windows.before.xid_count[0] = 3.0
    assert [round(at - kit.START) for _, _, at in occurrences(kit, windows)] == [30, 60]


def test_a_total_seen_for_the_first_time_tells_nothing_new(kit: Any) -> None:
    windows = kit.healthy()
    windows.before.seen[:] = False
    counts(windows, 1, 94, "total", [3] * 8)
    assert occurrences(kit, windows) == []


def test_gauge_and_count_of_one_error_are_one_happening(kit: Any) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_xid_code"][4:, 1] = 94.0
    counts(windows, 1, 94, "window", [np.nan] * 5 + [1.0, 1.0, 1.0])
    assert len(occurrences(kit, windows)) == 1


def test_a_vanished_gpu_with_an_xid_is_one_cause(kit: Any) -> None:
    windows = kit.healthy()
    windows.gpus.values["gpu_xid_code"][5, 1] = 79.0
    kit.vanish(windows, 1, slice(6, None))
    by_kind = {finding.kind: finding for finding in kit.judge(windows)}
    assert set(by_kind) == {"xid", "gpu_missing"}
    assert (by_kind["gpu_missing"].cause, by_kind["xid"].cause) == (key_text("xid", GPU), "")


def test_an_xid_that_comes_after_the_loss_joins_it(kit: Any) -> None:
    windows = kit.healthy()
    kit.opened(windows, "gpu_missing", GPU, kit.START)
    windows.gpus.values["gpu_xid_code"][7, 1] = 79.0
    (finding,) = [each for each in kit.judge(windows) if each.kind == "xid"]
    assert finding.cause == key_text("gpu_missing", GPU)


@pytest.mark.parametrize("reset", ["came back", "energy", "boot"])
def test_an_xid_clears_after_a_reset_and_two_quiet_minutes(kit: Any, reset: str) -> None:
    windows = kit.healthy(cycles=16)
    kit.opened(windows, "xid", GPU, kit.START)
    windows.gpus.values["gpu_xid_code"][:, 1] = 48.0
    windows.before.xid_code[1] = 48.0
    if reset == "came back":
        kit.vanish(windows, 1, slice(2, 5))
    elif reset == "energy":
        windows.gpus.values["gpu_energy_joules_total"][5:, 1] = np.arange(11) * 6000.0 + 1.0
    else:
        windows.boot_at[5:] = kit.START + 60.0
    assert kit.said(kit.first_rows(windows, 13)) == [("xid", GPU, "firing")]
    assert kit.said(kit.first_rows(windows, 14)) == [("xid", GPU, "clear")]


def test_an_xid_never_clears_without_a_reset(kit: Any) -> None:
    windows = kit.healthy(cycles=40)
    kit.opened(windows, "xid", GPU, kit.START)
    windows.before.xid_code[1] = 48.0
    windows.gpus.values["gpu_xid_code"][:20, 1] = 48.0
    windows.gpus.values["gpu_energy_joules_total"][20:, 1] -= 1.0
    (finding,) = kit.judge(windows)
    assert (finding.kind, finding.status, finding.occurrence, finding.state) == ("xid", Status.FIRING, "", "")
