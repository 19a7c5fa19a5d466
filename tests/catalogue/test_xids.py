"""The XID catalogue: every code has an entry with the words of the product."""

from __future__ import annotations

import pytest

from gpufleet.catalogue.xids import APPLICATION_CODES, XIDS, xid

ACTIONS = {
    *("none", "restart_app", "reset_gpu", "reboot_node", "drain", "replace"),
    *("check_cooling", "check_power", "check_network", "check_storage", "check_exporter", "contact_support"),
}


def test_codes_0_to_185_without_a_gap() -> None:
    assert list(XIDS) == list(range(186))


def test_every_entry_speaks_the_words_of_the_product() -> None:
    for entry in XIDS.values():
        assert entry.severity in {"info", "warning", "critical"}
        assert entry.action in ACTIONS
        assert entry.scope in {"gpu", "app", "nvlink", "node"}
        assert entry.hardware_fault in {"yes", "maybe", "no"}
        assert entry.summary
        assert entry.runbook


def test_application_codes_are_these_four() -> None:
    assert {code for code, entry in XIDS.items() if entry.application} == {13, 31, 43, 45} == APPLICATION_CODES


@pytest.mark.parametrize(
    ("code", "severity", "action"),
    [
        (31, "warning", "restart_app"),
        (43, "info", "restart_app"),
        (48, "critical", "reset_gpu"),
        (63, "warning", "none"),
        (64, "critical", "reset_gpu"),
        (74, "critical", "reset_gpu"),
        (79, "critical", "reboot_node"),
        (94, "warning", "restart_app"),
        (95, "critical", "reset_gpu"),
        (119, "critical", "reset_gpu"),
        (145, "critical", "reset_gpu"),
        (149, "critical", "reset_gpu"),
    ],
)
def test_severity_and_action(code: int, severity: str, action: str) -> None:
    assert (XIDS[code].severity, XIDS[code].action) == (severity, action)


def test_a_code_nobody_knows_still_gets_an_answer() -> None:
    entry = xid(9999)
    assert (entry.severity, entry.action, entry.application) == ("warning", "contact_support", False)
    assert xid(79) is XIDS[79]
