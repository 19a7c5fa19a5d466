"""What a scraped series means: exporter's name and labels to a canonical metric, unit, kind, scale and range.

The catalogue decides, not the exporter's TYPE line, which is wrong for several widespread exporters. TYPE is asked only
for a name that the catalogue does not know.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from gpufleet.catalogue.metrics import METRICS, rows
from gpufleet.catalogue.values import SENTINEL_CODES


@dataclass(frozen=True, slots=True)
class Meaning:
    """`canonical = raw * scale`. `low` and `high` bound the raw value, None where nothing is impossible.

    `sentinels` is a key of values.SENTINEL_CODES. `subject` is gpu, node or empty. `known`: the catalogue has it.
    `per_instance`: a MIG instance has a value of its own. `folded` names labels that make no series of their own: of
    their lines the highest value counts. `exporter` is the family that the name belongs to, empty when unknown.
    """

    metric: str
    unit: str
    kind: str
    scale: float
    low: float | None
    high: float | None
    sentinels: str
    subject: str
    known: bool = True
    per_instance: bool = False
    folded: tuple[str, ...] = ()
    exporter: str = ""


@dataclass(frozen=True, slots=True)
class _Term:
    """A condition on labels: one of `keys` has one of `values`; without values, one of `keys` is there (or none)."""

    keys: tuple[str, ...]
    values: frozenset[str]
    wanted: bool

    def holds(self, labels: Mapping[str, str]) -> bool:
        if self.values:
            return labels.get(self.keys[0], "") in self.values
        return any(labels.get(key) for key in self.keys) is self.wanted


@dataclass(frozen=True, slots=True)
class _Alias:
    terms: tuple[_Term, ...]
    meaning: Meaning


def _term(text: str) -> _Term:
    """`key=v1|v2`, `key1|key2` (one of them is there) or `!key` (absent or empty)."""
    key, equals, values = text.partition("=")
    if equals:
        return _Term((key,), frozenset(values.split("|")), True)
    return _Term(tuple(key.lstrip("!").split("|")), frozenset(), not key.startswith("!"))


def _alias(row: Mapping[str, str]) -> _Alias:
    metric = METRICS[row["metric"]]
    scale = float(row["scale"])
    if row["sentinels"] not in SENTINEL_CODES or scale <= 0:
        raise ValueError(f"{row['name']}: bad sentinels or scale")
    meaning = Meaning(
        metric=metric.name,
        unit=metric.unit,
        kind=metric.kind,
        scale=scale,
        low=float(row["low"]) if row["low"] else metric.low / scale,
        high=float(row["high"]) if row["high"] else metric.high / scale,
        sentinels=row["sentinels"],
        subject=metric.subject,
        per_instance=metric.per_instance,
        folded=tuple(row["folded"].split()),
        exporter=row["exporter"],
    )
    return _Alias(tuple(_term(text) for text in row["filter"].split(";") if text), meaning)


def _aliases() -> dict[str, list[_Alias]]:
    aliases: dict[str, list[_Alias]] = {}
    for row in rows("aliases.csv"):
        aliases.setdefault(row["name"], []).append(_alias(row))
    return aliases


# Units of DCGM's table whose numbers can legally fall into the int32 band of no-value numbers.
_WIDE_UNITS = frozenset(
    {"bytes", "bytes/s", "mJ", "J", "ns", "us", "s", "cycles", "packets", "blocks", "ticks", "bitmask"}
)
_DCGM_KINDS = {"enum": "enum", "bool": "enum", "bitmask": "mask", "xid code": "code", "code": "code"}


def _dcgm_field(row: Mapping[str, str], metric: str) -> Meaning:
    """A DCGM field without a canonical metric keeps its name and unit; kind and blanks come from the field table."""
    return Meaning(
        metric=metric,
        unit=row["unit"],
        kind="counter" if row["prom_type"] == "counter" else _DCGM_KINDS.get(row["unit"], "gauge"),
        scale=1.0,
        low=None,
        high=None,
        sentinels="dcgm" if row["unit"] in _WIDE_UNITS else "dcgm_int32",
        subject="gpu" if row["entity"].startswith(("gpu", "nvlink", "vgpu")) else "node",
        per_instance="gpu_i" in row["entity"],
        exporter="dcgm-exporter",
    )


def _dcgm_fields() -> dict[str, Meaning]:
    """Id and unit make a field: its spellings (DCGM 4.6 renamed 325) are one metric, named as the first of them."""
    first: dict[tuple[str, str], str] = {}
    found: dict[str, Meaning] = {}
    for row in rows("dcgm_fields.csv"):
        name = first.setdefault((row["dcgm_field_id"], row["unit"]), row["field"]) if row["dcgm_field_id"] else ""
        found[row["field"]] = _dcgm_field(row, name or row["field"])
    return found


_ALIASES: Mapping[str, list[_Alias]] = MappingProxyType(_aliases())
_DCGM: Mapping[str, Meaning] = MappingProxyType(_dcgm_fields())
_PREFIXES = {
    "DCGM_": "dcgm-exporter",
    "dcgm_": "dcgm-exporter",
    "nvidia_smi_": "nvidia_gpu_exporter",
    "accelerator_nvidia_": "gpud",
    "amd_gpu_": "amd_smi_exporter",
    "xpum_": "intel-xpum",
    "hw_gpu_": "intel-xpumd",
    "habanalabs_": "gaudi",
    "macmon_": "macmon",
    "neuron": "neuron",
    "node_": "node_exporter",
}
_PREFIX_PATTERN = re.compile("|".join(sorted(map(re.escape, _PREFIXES), key=len, reverse=True)))
_AMD_BY_SUFFIX = tuple(
    name for name, aliases in _ALIASES.items() if aliases[0].meaning.exporter == "amd-device-metrics-exporter"
)
# node_exporter passes these kernel counters on without a type and without `_total`.
_UNTYPED_COUNTERS = re.compile(r"node_(netstat_(?!Tcp_CurrEstab$|Ip_Forwarding$|Ip6_.*Forwarding$)|vmstat_(?!nr_))")
_COUNTER_ENDS = ("_total", "_bucket", "_count", "_sum")
_UNIT_ENDS = (
    "bytes",
    "seconds",
    "celsius",
    "hertz",
    "ratio",
    "watts",
    "volts",
    "amps",
    "joules",
    "rpm",
    "percent",
    "info",
)


def resolve(name: str, labels: Mapping[str, str], declared: str = "") -> Meaning:
    """The meaning of a series. `declared` is the exporter's TYPE, used only for a name that is not in the catalogue."""
    for alias in _ALIASES.get(name, ()):
        if all(term.holds(labels) for term in alias.terms):
            return alias.meaning
    field = _DCGM.get(name)
    if field is not None:
        return field
    return _prefixed_amd(name, labels) or _by_name(name, declared)


def is_known(name: str) -> bool:
    """Whether the catalogue knows the name, or at least the exporter family that it belongs to."""
    return name in _ALIASES or name in _DCGM or bool(family(name))


def family(name: str) -> str:
    """The exporter that sends names like this one; empty when that cannot be told from the name."""
    aliases = _ALIASES.get(name)
    if aliases is not None:
        return aliases[0].meaning.exporter
    prefix = _PREFIX_PATTERN.match(name)
    return "" if prefix is None else _PREFIXES[prefix[0]]


def _prefixed_amd(name: str, labels: Mapping[str, str]) -> Meaning | None:
    """AMD's exporter can be told to put a prefix before its names."""
    if not (labels.get("card_model") or labels.get("serial_number")):
        return None
    for known in _AMD_BY_SUFFIX:
        if name.endswith(f"_{known}"):
            return resolve(known, labels)
    return None


def _by_name(name: str, declared: str) -> Meaning:
    """No entry: kept raw under its own name, with what the name and the TYPE line tell."""
    counts = name.endswith(_COUNTER_ENDS) or _UNTYPED_COUNTERS.match(name) is not None
    if not counts and declared in {"counter", "histogram"}:
        counts = True
    stem = name.removesuffix("_total")
    return Meaning(
        metric=name,
        unit=next((unit for unit in _UNIT_ENDS if stem.endswith(f"_{unit}")), ""),
        kind="counter" if counts else "gauge",
        scale=1.0,
        low=None,
        high=None,
        sentinels="dcgm" if name.startswith(("DCGM_", "dcgm_")) else "",
        subject="node" if name.startswith("node_") else "",
        known=name.startswith("node_"),
        exporter=family(name),
    )
