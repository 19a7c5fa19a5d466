"""docs/settings.md lists every setting with its default and its sentence, no more and no less."""

from __future__ import annotations

import re
from pathlib import Path

from gpufleet.environment import SETTINGS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "settings.md"
ROW = re.compile(r"^\| `(?P<name>[A-Z0-9_]+)` \| (?P<default>.*?) \| (?P<doc>.*) \|$", re.MULTILINE)


def test_every_setting_is_documented_as_the_code_has_it() -> None:
    listed = {
        match["name"]: (match["default"], match["doc"]) for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))
    }
    expected = {
        setting.name: (
            f"`{setting.default}`" if setting.default else "none",
            setting.doc + (" *Secret.*" if setting.secret else ""),
        )
        for setting in SETTINGS
    }
    assert listed == expected
