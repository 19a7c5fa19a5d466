"""Rules as data: what opens an incident, how long it must hold, what clears it, and why the rule is there."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from gpufleet.catalogue.metrics import METRICS

SEVERITIES = ("info", "warning", "critical")
SCOPES = ("gpu", "node", "cluster")
STATES = ("", "degraded", "failed", "unknown")


class RuleError(ValueError):
    """A rule that cannot be used; the message names the rule and the column."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `threshold` in the metric's canonical unit, None where the rule has none; `model_thresholds` wins for
    a GPU whose model name holds the key. A condition must hold for `hold_seconds` and `hold_samples`; it is over after
    its opposite held for `clear_seconds` and `clear_samples`. `state`: what the subject is meanwhile. `inputs`: the
    canonical metrics without which the rule is blind, each as its alternatives, one of which is enough."""

    id: str
    kind: str
    version: int
    severity: str
    scope: str
    metric: str
    threshold: float | None
    model_thresholds: tuple[tuple[str, float], ...]
    hold_seconds: float
    hold_samples: int
    clear_threshold: float | None
    clear_seconds: float
    clear_samples: int
    clears_when: str
    recommended_action: str
    state: str
    pages: bool
    needs_person: bool
    reason: str
    source: str
    inputs: tuple[tuple[str, ...], ...] = ()

    def limit(self, model: str) -> float | None:
        """The threshold for a GPU model: the longest key that the model's name holds, else the common one."""
        fitting = [(len(key), value) for key, value in self.model_thresholds if key in model]
        return max(fitting)[1] if fitting else self.threshold


def load_rules() -> tuple[Rule, ...]:
    """The rules of the product, in the order of their file."""
    return _packaged()


@cache
def _packaged() -> tuple[Rule, ...]:
    text = resources.files("gpufleet.detect").joinpath("data/rules.csv").read_text(encoding="utf-8")
    return read_rules(text.splitlines())


def read_rules(lines: Iterable[str]) -> tuple[Rule, ...]:
    """Reads the CSV form. Raises RuleError for a value that a rule cannot have, and for an id that comes twice."""
    rules = tuple(_rule(row) for row in csv.DictReader(lines))
    seen: set[str] = set()
    for rule in rules:
        if rule.id in seen:
            raise RuleError(f"rule {rule.id!r} is there twice")
        seen.add(rule.id)
    return rules


def rules_of(rules: Sequence[Rule], kind: str) -> list[Rule]:
    return [rule for rule in rules if rule.kind == kind]


def find(rules: Sequence[Rule], rule_id: str) -> Rule | None:
    """The rule, or None when the set leaves it out."""
    return next((rule for rule in rules if rule.id == rule_id), None)


def _rule(row: dict[str, str]) -> Rule:
    name = row.get("id") or "?"
    try:
        return Rule(
            id=name,
            kind=row["kind"],
            version=int(row["version"]),
            severity=_one_of(row, "severity", SEVERITIES),
            scope=_one_of(row, "scope", SCOPES),
            metric=row["metric"],
            threshold=_number(row["threshold"]),
            model_thresholds=_model_thresholds(row["model_thresholds"]),
            hold_seconds=float(row["hold_seconds"]),
            hold_samples=int(row["hold_samples"]),
            clear_threshold=_number(row["clear_threshold"]),
            clear_seconds=float(row["clear_seconds"]),
            clear_samples=int(row["clear_samples"]),
            clears_when=row["clears_when"],
            recommended_action=row["recommended_action"],
            state=_one_of(row, "state", STATES),
            pages=_one_of(row, "pages", ("true", "false")) == "true",
            needs_person=_one_of(row, "needs_person", ("true", "false")) == "true",
            reason=row["reason"],
            source=row["source"],
            inputs=_inputs(row["metric"], row.get("inputs") or ""),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise RuleError(f"rule {name!r}: {error}") from error


def _inputs(metric: str, text: str) -> tuple[tuple[str, ...], ...]:
    """`a b|c` needs a, and b or c. Without a text the rule's own metric, unless that is a signal of scraping."""
    found = tuple(tuple(part.split("|")) for part in text.split()) or (((metric,),) if metric in METRICS else ())
    unknown = [name for part in found for name in part if name not in METRICS]
    if unknown:
        raise ValueError(f"inputs names {', '.join(unknown)}, which the catalogue does not have")
    return found


def _one_of(row: dict[str, str], column: str, allowed: tuple[str, ...]) -> str:
    if row[column] not in allowed:
        raise ValueError(f"{column} is {row[column]!r}, not one of {', '.join(allowed)}")
    return row[column]


def _number(text: str) -> float | None:
    return float(text) if text else None


def _model_thresholds(text: str) -> tuple[tuple[str, float], ...]:
    pairs = (part.split("=") for part in text.split(";") if part)
    return tuple((key, float(value)) for key, value in pairs)
