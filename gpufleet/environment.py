"""Every setting that the environment can make, in one table: the code, the check at start and docs/settings.md read it.

A secret may also come from a file: `NAME_FILE` holds the path. An unknown `GPUFLEET_*` name or an impossible value
stops the program at start with one sentence.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit


class SettingError(Exception):
    """A setting that cannot be used; the message names it and says what is allowed."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `parse` turns text into the value or raises ValueError with what is allowed."""

    name: str
    default: str
    parse: Callable[[str], object]
    doc: str
    secret: bool = False


def flag(value: str) -> bool:
    allowed = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    if value.lower() not in allowed:
        raise ValueError("true or false")
    return allowed[value.lower()]


def whole(low: int, high: int) -> Callable[[str], int]:
    def parse(value: str) -> int:
        if not value.isdigit() or not low <= int(value) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(value)

    return parse


def words(value: str) -> list[str]:
    return [word.strip() for word in value.split(",") if word.strip()]


def networks(value: str) -> list[str]:
    try:
        return [str(ipaddress.ip_network(word, strict=False)) for word in words(value)]
    except ValueError as error:
        raise ValueError(f"networks in CIDR form, comma-separated ({error})") from error


def url(*schemes: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value and urlsplit(value).scheme not in schemes:
            raise ValueError("an address that starts with " + " or ".join(f"{scheme}://" for scheme in schemes))
        return value

    return parse


def percent(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 100:
        raise ValueError("a number from 0 to 100")
    return number


def key(value: str) -> str:
    if value and len(value) < 32:
        raise ValueError("at least 32 characters")
    return value


def choice(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in allowed:
            raise ValueError("one of " + ", ".join(allowed))
        return value

    return parse


PRIVATE_RANGES = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16,fc00::/7"

SETTINGS: tuple[Setting, ...] = (
    Setting("DATABASE_URL", "", url("postgresql", "postgres"), "PostgreSQL 15 or newer.", secret=True),
    Setting(
        "BROKER_URL",
        "",
        url("redis", "rediss", "redis+socket", "unix"),
        "Valkey or Redis: queues, locks, live bus.",
        secret=True,
    ),
    Setting(
        "GPUFLEET_SECRET_KEY",
        "",
        key,
        "Signs sessions. At least 32 characters; every process needs the same one.",
        secret=True,
    ),
    Setting("GPUFLEET_DEBUG", "false", flag, "Django's debug pages. Never in production."),
    Setting("GPUFLEET_ALLOWED_HOSTS", "localhost,127.0.0.1,[::1]", words, "Host names that the pages answer to."),
    Setting(
        "GPUFLEET_TRUSTED_ORIGINS", "", words, "Origins (scheme://host) allowed to post forms, behind a TLS proxy."
    ),
    Setting("GPUFLEET_SECURE_COOKIES", "false", flag, "Cookies over HTTPS only. Set it behind TLS."),
    Setting(
        "GPUFLEET_BASE_URL",
        "http://127.0.0.1:8000",
        url("http", "https"),
        "Address of the pages, used for links in messages.",
    ),
    Setting(
        "GPUFLEET_LIVE_URL",
        "",
        url("http", "https"),
        "Address of the event stream. Empty: same origin as the page, at /live/.",
    ),
    Setting(
        "GPUFLEET_LIVE_PORT",
        "0",
        whole(0, 65535),
        "Port of the event stream on the page's own host; 0: same origin or GPUFLEET_LIVE_URL.",
    ),
    Setting("GPUFLEET_INTERVAL_SECONDS", "15", whole(1, 300), "Seconds between two scrapes of a target."),
    Setting("GPUFLEET_SHARD_TARGETS", "256", whole(1, 10000), "Targets that one scrape task fetches together."),
    Setting(
        "GPUFLEET_SCRAPE_QUEUES", "1", whole(1, 256), "Scrape queues (scrape, scrape-1, ..): one per scrape worker."
    ),
    Setting(
        "GPUFLEET_DETECT_QUEUES", "1", whole(1, 256), "Detect queues (detect, detect-1, ..): one per detect worker."
    ),
    Setting(
        "GPUFLEET_SCRAPE_MAX_BYTES",
        "16777216",
        whole(1024, 1073741824),
        "Largest body of a target, counted after unpacking.",
    ),
    Setting("GPUFLEET_SCRAPE_MAX_SAMPLES", "50000", whole(1, 10000000), "Most samples that one target may send."),
    Setting(
        "GPUFLEET_SCRAPE_ALLOW",
        PRIVATE_RANGES,
        networks,
        "Networks in which a target added through page or API may be.",
    ),
    Setting(
        "GPUFLEET_SOURCES",
        "",
        str,
        "File of sources of targets, in the form of Prometheus' scrape_configs; every worker needs the same one.",
    ),
    Setting(
        "GPUFLEET_OUTBOUND_ALLOW",
        "",
        networks,
        "Networks, besides public addresses, that webhooks and imports may reach.",
    ),
    Setting(
        "GPUFLEET_WEBHOOK_URL", "", url("http", "https"), "A ready webhook channel for every severity.", secret=True
    ),
    Setting(
        "GPUFLEET_QUIET_SECONDS",
        "600",
        whole(0, 86400),
        "How long an incident stays recovered before it resolves by itself.",
    ),
    Setting("GPUFLEET_RAW_RETENTION_DAYS", "90", whole(1, 3650), "Days that samples are kept at full resolution."),
    Setting("GPUFLEET_ROLLUP_5M_RETENTION_DAYS", "396", whole(1, 3650), "Days that roll-ups of five minutes are kept."),
    Setting("GPUFLEET_ROLLUP_1H_RETENTION_DAYS", "1827", whole(1, 36500), "Days that roll-ups of one hour are kept."),
    Setting("GPUFLEET_SLO_PERCENT", "99.5", percent, "Availability objective shown beside the month."),
    Setting("GPUFLEET_LOG_FORMAT", "console", choice("console", "json"), "Shape of log lines."),
    Setting(
        "GPUFLEET_LOG_LEVEL", "INFO", choice("DEBUG", "INFO", "WARNING", "ERROR"), "Least severe level that is logged."
    ),
)


def read(environ: Mapping[str, str]) -> dict[str, object]:
    """All settings as `{name: value}`. Raises SettingError for an unknown name or an impossible value."""
    known = {setting.name for setting in SETTINGS}
    for name in environ:
        if name.startswith("GPUFLEET_") and name not in known and name.removesuffix("_FILE") not in known:
            raise SettingError(f"{name} is not a setting of gpufleet; docs/settings.md lists them all.")
    return {setting.name: _value(setting, environ) for setting in SETTINGS}


def _value(setting: Setting, environ: Mapping[str, str]) -> object:
    raw = (
        _from_file(setting, environ)
        if setting.secret and environ.get(setting.name + "_FILE")
        else environ.get(setting.name)
    )
    try:
        return setting.parse(raw if raw else setting.default)
    except ValueError as error:
        shown = "its value" if setting.secret else repr(raw)
        raise SettingError(f"{setting.name} cannot be {shown}: use {error}.") from error


def _from_file(setting: Setting, environ: Mapping[str, str]) -> str:
    path = environ[setting.name + "_FILE"]
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SettingError(f"{setting.name}_FILE: cannot read {path} ({error.strerror}).") from error
