"""Which test holds which trouble case. A case without a test is named here with the reason, never left out."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from shared import shared

TESTS = Path(__file__).resolve().parents[1]
WHOLE = {"parse", "scrape", "identity", "semantics"}
_TEST = re.compile(r"^(?:async )?def test_(?:case_)?(\d{3})_\w+", re.MULTILINE)
# Kinds outside WHOLE whose case has no test under its number yet.
OPEN = {
    "030": "ports that flap or stay down: no detector of network ports yet",
    "033": "a switch that takes its nodes: correlation is not built yet",
    "036": "delivery of pages: channels are not built yet",
    "043": "addresses of webhooks: channels are not built yet",
    "046": "password guessing: tests/accounts covers limits, not under this number",
    "047": "line breaks in a mail's subject: mail is not built yet",
    "048": "who may acknowledge: tests/api/test_access.py and tests/dashboards/test_access.py, not under this number",
}


def cases_in_tests() -> dict[str, list[str]]:
    """Test files by the number of the case that a test's name begins with."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for number in _TEST.findall(path.read_text(encoding="utf-8")):
            found.setdefault(number, []).append(str(path.relative_to(TESTS)))
    return found


def kinds() -> dict[str, str]:
    folders = sorted(path.parent for path in shared("cases").glob("*/case.json"))
    return {f.name[:3]: json.loads((f / "case.json").read_text(encoding="utf-8"))["kind"] for f in folders}


def test_every_case_has_its_test_or_is_named_as_open() -> None:
    have = cases_in_tests()
    lacking = {number for number in kinds() if number not in have}
    assert lacking <= OPEN.keys()


@pytest.mark.parametrize("kind", sorted(WHOLE))
def test_no_case_of_these_kinds_is_open(kind: str) -> None:
    numbers = [number for number, one in kinds().items() if one == kind]
    assert numbers
    assert not OPEN.keys() & set(numbers)
    assert set(numbers) <= cases_in_tests().keys()
