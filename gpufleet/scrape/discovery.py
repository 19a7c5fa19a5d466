"""Reads lists of targets: Prometheus' file_sd, as JSON or YAML."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import yaml

from gpufleet.fleet.models import LIVE
from gpufleet.fleet.specs import TargetSpec

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_LABELS = 64
MAX_LABEL_CHARACTERS = 1_024
MAX_URL_CHARACTERS = 2_048
_LONGEST = {"node": 255, "rack": 63, "switch": 63, "cluster": 63, "job": 127}
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")


class DiscoveryError(ValueError):
    """A list of targets that cannot be read; the message says where and why."""


def read_file_sd(path: Path, defaults: Mapping[str, str] | None = None) -> list[TargetSpec]:
    """Every target of a file. Raises DiscoveryError with the file and the place in it."""
    try:
        return parse_file_sd(read_text(path), is_json=path.suffix.lower() == ".json", defaults=defaults)
    except DiscoveryError as error:
        raise DiscoveryError(f"{path}: {error}") from error


def read_text(path: Path) -> str:
    """The text of a file. Raises DiscoveryError that says what is wrong with it."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise DiscoveryError(f"larger than {MAX_FILE_BYTES} bytes")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DiscoveryError(f"byte {error.start} is no UTF-8") from error
    except OSError as error:
        raise DiscoveryError(str(error.strerror or error)) from error


def parse_file_sd(text: str, *, is_json: bool = False, defaults: Mapping[str, str] | None = None) -> list[TargetSpec]:
    """Targets of a list `[{targets: [address], labels: {name: text}}]`. Raises DiscoveryError with line or group.

    `defaults`: labels for groups that do not say otherwise.
    """
    groups = _from_json(text) if is_json else read_yaml(text)
    if not isinstance(groups, list):
        raise DiscoveryError("the list of groups is missing: it starts with [ or -")
    return parse_groups(groups, defaults or {})


def parse_groups(groups: list[Any], defaults: Mapping[str, str], place: str = "") -> list[TargetSpec]:
    """Targets of groups that were read already. Raises DiscoveryError with the group."""
    place = f"{place}, group" if place else "group"
    return [spec for number, group in enumerate(groups, 1) for spec in _group(group, defaults, f"{place} {number}")]


def _from_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DiscoveryError(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise DiscoveryError("nested too deep") from error


SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(text: str, loader: Any = SAFE_LOADER) -> Any:
    """What a YAML text holds. Raises DiscoveryError with line and column."""
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - all loaders handed in are safe ones
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise DiscoveryError(f"{place}{error.problem}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise DiscoveryError(str(error).partition("\n")[0] or "nested too deep") from error


def _group(group: Any, defaults: Mapping[str, str], place: str) -> list[TargetSpec]:
    if not isinstance(group, Mapping):
        raise DiscoveryError(f"{place}: not a group with targets and labels")
    unknown = sorted(str(key) for key in group if key not in {"targets", "labels"})
    if unknown:
        raise DiscoveryError(f"{place}: {unknown[0]!r} is neither targets nor labels")
    targets = group.get("targets")
    if not isinstance(targets, list):
        raise DiscoveryError(f"{place}: targets is no list of addresses")
    labels = {**defaults, **_labels(group.get("labels") or {}, place)}
    return [_spec(target, labels, f"{place}, target {number}") for number, target in enumerate(targets, 1)]


def _labels(labels: Any, place: str) -> dict[str, str]:
    if not isinstance(labels, Mapping) or len(labels) > MAX_LABELS:
        raise DiscoveryError(f"{place}: labels is no table of at most {MAX_LABELS} texts")
    for name, value in labels.items():
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            raise DiscoveryError(f"{place}: {name!r} is no name of a label")
        if not isinstance(value, str):
            raise DiscoveryError(f"{place}: the label {name} is no text (put it in quotes)")
        if len(value) > _LONGEST.get(name, MAX_LABEL_CHARACTERS) or "\0" in value:
            raise DiscoveryError(f"{place}: the label {name} is too long or holds a zero byte")
    return dict(labels)


def _spec(address: Any, labels: dict[str, str], place: str) -> TargetSpec:
    match = _ADDRESS.fullmatch(address) if isinstance(address, str) else None
    if match is None or not 0 < int(match["port"] or 1) < 65_536:
        raise DiscoveryError(f"{place}: {address!r} is no address of the form host:port")
    url = _url(address, labels, place)
    node = labels.get("node") or match["host"].strip("[]")
    if len(node) > _LONGEST["node"]:
        raise DiscoveryError(f"{place}: the name of the node is too long")
    return TargetSpec(
        url=url,
        node=node,
        cluster=labels.get("cluster") or LIVE,
        rack=labels.get("rack", ""),
        switch=labels.get("switch", ""),
        job=labels.get("job", ""),
        labels={name: value for name, value in labels.items() if not name.startswith("__")},
    )


def _url(address: str, labels: Mapping[str, str], place: str) -> str:
    scheme = labels.get("__scheme__") or "http"
    if scheme not in {"http", "https"}:
        raise DiscoveryError(f"{place}: the scheme is http or https, not {scheme!r}")
    path = quote(labels.get("__metrics_path__") or "/metrics", safe="/%:@!$&'()*+,;=~-._")
    prefix = "__param_"
    parameters = sorted((name.removeprefix(prefix), value) for name, value in labels.items() if name.startswith(prefix))
    url = f"{scheme}://{address}{'' if path.startswith('/') else '/'}{path}"
    url += f"?{urlencode(parameters)}" if parameters else ""
    if len(url) > MAX_URL_CHARACTERS:
        raise DiscoveryError(f"{place}: the address is longer than {MAX_URL_CHARACTERS} characters")
    return url
