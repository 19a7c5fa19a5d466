"""Reads docker-compose.yml as the engine would: variables, dependencies, commands, health checks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

VARIABLE = re.compile(r"\$(?:(\$)|\{(\w+)(?:(:-|:\?)([^}]*))?\})")


class Unset(Exception):
    """A variable that must be set is not; the message is the file's own."""


def read(path: Path, variables: Mapping[str, str]) -> dict[str, Any]:
    """The file with its variables put in. Raises Unset."""
    found = _filled(yaml.safe_load(path.read_text(encoding="utf-8")), variables)
    assert isinstance(found, dict)
    return found


def _filled(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, variables) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, variables) for inner in value]
    return VARIABLE.sub(lambda match: _value(match, variables), value) if isinstance(value, str) else value


def _value(match: re.Match[str], variables: Mapping[str, str]) -> str:
    dollar, name, rule, words = match.groups()
    if dollar:
        return "$"
    if variables.get(name):
        return variables[name]
    if rule == ":?":
        raise Unset(words)
    return words or ""


def health_command(service: Mapping[str, Any]) -> list[str]:
    """The health check as a command line."""
    kind, *words = service["healthcheck"]["test"]
    return ["sh", "-c", words[0]] if kind == "CMD-SHELL" else words


def in_order(services: Mapping[str, Any]) -> list[str]:
    """Names, each after what it depends on."""
    done: list[str] = []

    def visit(name: str) -> None:
        for needed in services[name].get("depends_on", {}):
            visit(needed)
        if name not in done:
            done.append(name)

    for name in services:
        visit(name)
    return done
