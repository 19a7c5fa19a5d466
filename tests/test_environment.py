"""The environment is a boundary: unknown names and impossible values stop the start with one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpufleet.environment import SETTINGS, SettingError, read


def test_defaults_are_all_possible() -> None:
    assert set(read({})) == {setting.name for setting in SETTINGS}
    assert read({})["GPUFLEET_INTERVAL_SECONDS"] == 15
    assert read({})["GPUFLEET_SCRAPE_ALLOW"] == ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7"]


def test_unknown_name_is_refused() -> None:
    with pytest.raises(SettingError, match="GPUFLEET_INTERVALL is not a setting of gpufleet"):
        read({"GPUFLEET_INTERVALL": "15"})


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("GPUFLEET_INTERVAL_SECONDS", "0", "a whole number from 1 to 300"),
        ("GPUFLEET_INTERVAL_SECONDS", "fast", "a whole number from 1 to 300"),
        ("GPUFLEET_DEBUG", "perhaps", "true or false"),
        ("GPUFLEET_SCRAPE_ALLOW", "10.0.0.0/33", "networks in CIDR form"),
        ("GPUFLEET_LOG_FORMAT", "xml", "one of console, json"),
        ("GPUFLEET_BASE_URL", "ftp://x", "http:// or https://"),
        ("DATABASE_URL", "mysql://x", "postgresql:// or postgres://"),
        ("GPUFLEET_SLO_PERCENT", "101", "a number from 0 to 100"),
        ("GPUFLEET_SECRET_KEY", "short", "at least 32 characters"),
    ],
)
def test_impossible_value_is_refused_with_what_is_allowed(name: str, value: str, said: str) -> None:
    with pytest.raises(SettingError, match=said.replace("/", "/")) as caught:
        read({name: value})
    assert name in str(caught.value)


def test_secret_is_never_repeated_in_the_error() -> None:
    with pytest.raises(SettingError) as caught:
        read({"DATABASE_URL": "mysql://user:hunter2@db/x"})
    assert "hunter2" not in str(caught.value)


def test_secret_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("k" * 40 + "\n")
    assert read({"GPUFLEET_SECRET_KEY_FILE": str(path)})["GPUFLEET_SECRET_KEY"] == "k" * 40


def test_missing_secret_file_is_said() -> None:
    with pytest.raises(
        SettingError, match=r"GPUFLEET_SECRET_KEY_FILE: cannot read /nowhere/key \(No such file or directory\)"
    ):
        read({"GPUFLEET_SECRET_KEY_FILE": "/nowhere/key"})
