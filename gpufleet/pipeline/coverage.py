"""Which node sends which field: out of the newest scrapes, two earlier ones, and the layouts that targets have had.

Nothing is kept for this while scraping; it is worked out when somebody asks. A handful of queries for any fleet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from django.conf import settings
from django.db import connection

from gpufleet.catalogue.metrics import METRICS
from gpufleet.core.times import from_unix
from gpufleet.detect.fields import COMES_AND_GOES, IDLE_SILENT, blind_rules, needed_fields
from gpufleet.detect.rules import load_rules
from gpufleet.fleet.models import Cluster, Node, Target
from gpufleet.incidents.models import Incident
from gpufleet.pipeline.coverage_fields import Sent, SentFields, settle_frozen
from gpufleet.store.layouts import LayoutTable, layout_tables
from gpufleet.store.queries import Latest, read_at, read_latest

EARLIER_SECONDS = (300.0, 600.0)
WITHIN_SECONDS = 150.0
LAYOUTS_A_TARGET = 8
# From what hides the others to what is hidden by them, when several targets of a node tell of one field.
STATES = ("wrong_unit", "frozen", "partial", "present", "missing", "quiet", "unknown", "never")
BLIND = frozenset({"wrong_unit", "frozen", "missing", "never"})

_LAYOUTS = """
SELECT target_id, id, created_at FROM (
    SELECT target_id, id, created_at,
           row_number() OVER (PARTITION BY target_id ORDER BY created_at DESC, id DESC) AS place
    FROM store_layout WHERE target_id = ANY(%s)
) AS newest WHERE place <= %s
"""


@dataclass(frozen=True, slots=True)
class Cell:
    """One field of one node. `since`: from when on it is so, None when that is not known."""

    state: str
    since: datetime | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class NodeCoverage:
    """A node's fields, by canonical name; a field that is not there was `never` sent. `blind`: ids of rules."""

    node: str
    rack: str
    exporters: tuple[str, ...]
    last_scrape_at: datetime | None
    cells: Mapping[str, Cell]
    blind: tuple[str, ...]

    def cell(self, name: str) -> Cell:
        return self.cells.get(name, NEVER)


NEVER = Cell("never")
QUIET = Cell("quiet")


@dataclass(frozen=True, slots=True)
class Coverage:
    """`fields`: canonical names, those that rules need first. Nodes by name."""

    as_of: datetime
    fields: tuple[str, ...] = ()
    nodes: tuple[NodeCoverage, ...] = ()


@dataclass(slots=True)
class _Past:
    """The layouts of a target: when each was first seen, and what it held."""

    layouts: dict[int, tuple[datetime, LayoutTable]] = field(default_factory=dict)

    def had(self) -> set[str]:
        return {name for _, table in self.layouts.values() for name in table.places if name in METRICS}

    def gone_since(self, name: str, layout_id: int) -> datetime | None:
        """When the field left: the first scrape in the layout of now, unless one that holds the field came later."""
        now_from = self.layouts[layout_id][0] if layout_id in self.layouts else None
        with_it = [at for at, table in self.layouts.values() if name in table.places]
        return now_from if now_from is not None and with_it and max(with_it) < now_from else None


def coverage(cluster: Cluster | None, now: datetime) -> Coverage:
    """The fields of every node of the cluster as they stand at `now`."""
    if cluster is None:
        return Coverage(now)
    nodes = list(
        Node.objects.filter(cluster=cluster, retired_at=None, targets__removed_at=None)
        .distinct()
        .order_by("name")
        .values_list("id", "name", "rack__name")
    )
    node_of = dict(Target.objects.filter(cluster=cluster, removed_at=None).values_list("id", "node_id"))
    ids = sorted(node_of)
    newest = read_latest(ids)
    sent = _sent(newest, [_at(ids, now.timestamp() - back) for back in EARLIER_SECONDS])
    past, open_ = _past(ids), _open_incidents(cluster)
    stale = now.timestamp() - max(150.0, 4.0 * settings.ENV["GPUFLEET_INTERVAL_SECONDS"])
    by_node: dict[int, list[Latest]] = {}
    for one in newest:
        by_node.setdefault(node_of[one.target_id], []).append(one)
    told = [
        _node(name, rack or "", by_node.get(node_id, []), sent, past, open_.get(node_id, {}), stale)
        for node_id, name, rack in nodes
    ]
    needed = needed_fields(load_rules())
    seen = {name for one in told for name in one.cells}
    fields = (
        *needed,
        *(name for name, metric in METRICS.items() if name in seen and name not in needed and metric.subject == "gpu"),
    )
    return Coverage(now, fields, tuple(told))


def _at(ids: Sequence[int], at: float) -> dict[int, Latest]:
    return {one.target_id: one for one in read_at(ids, at, WITHIN_SECONDS)}


def _sent(newest: Sequence[Latest], earlier: Sequence[Mapping[int, Latest]]) -> dict[int, SentFields]:
    """What each target sent, with `frozen` settled by a look at the others."""
    found = {
        one.target_id: SentFields.of(one, [then[one.target_id] for then in earlier if one.target_id in then])
        for one in newest
    }
    settle_frozen(found.values())
    return found


def _past(ids: Sequence[int]) -> dict[int, _Past]:
    with connection.cursor() as cursor:
        cursor.execute(_LAYOUTS, [list(ids), LAYOUTS_A_TARGET])
        rows = cursor.fetchall()
    tables = layout_tables([layout_id for _, layout_id, _ in rows])
    found: dict[int, _Past] = {}
    for target_id, layout_id, created_at in rows:
        if layout_id in tables:
            found.setdefault(target_id, _Past()).layouts[layout_id] = created_at, tables[layout_id]
    return found


def _open_incidents(cluster: Cluster) -> dict[int, dict[str, datetime]]:
    """By node: since when a field is gone, and under `frozen` since when telemetry stands still, as incidents say."""
    rows = Incident.objects.filter(
        cluster=cluster, resolved_at=None, recovered_at=None, kind__in=("field_missing", "telemetry_frozen")
    ).values_list("node_id", "kind", "first_evidence_at", "evidence")
    found: dict[int, dict[str, datetime]] = {}
    for node_id, kind, first_at, evidence in rows:
        of_node = found.setdefault(node_id, {})
        if kind == "telemetry_frozen":
            of_node["frozen"] = first_at
        else:
            of_node |= {piece["signal"]: from_unix(float(piece["at"])) for piece in evidence}
    return found


def _node(
    name: str, rack: str, newest: Sequence[Latest], sent: Mapping[int, SentFields], past: Mapping[int, _Past],
    open_: Mapping[str, datetime], stale: float,
) -> NodeCoverage:  # fmt: skip
    cells: dict[str, Cell] = {}
    for one in newest:
        of_target = past.get(one.target_id, _Past())
        for metric in of_target.had() | set(one.layout.places) & METRICS.keys():
            cell = Cell("unknown") if one.scraped_at < stale else _cell(metric, one, sent, of_target, open_)
            known = cells.get(metric)
            if known is None or STATES.index(cell.state) < STATES.index(known.state):
                cells[metric] = cell
    for metric in COMES_AND_GOES:
        cells.setdefault(metric, QUIET)
    exporters = {family for one in newest for family in sent[one.target_id].exporters}
    is_told = any(one.scraped_at >= stale for one in newest)
    lacking = {metric for metric in needed_fields(load_rules()) if cells.get(metric, NEVER).state in BLIND}
    last = max((one.scraped_at for one in newest), default=None)
    return NodeCoverage(
        node=name,
        rack=rack,
        exporters=tuple(sorted(exporters)),
        last_scrape_at=None if last is None else from_unix(last),
        cells=cells if newest else {metric: Cell("unknown") for metric in needed_fields(load_rules())},
        blind=blind_rules(load_rules(), lacking) if is_told else (),
    )


def _cell(metric: str, one: Latest, sent: Mapping[int, SentFields], past: _Past, open_: Mapping[str, datetime]) -> Cell:
    fields = sent[one.target_id]
    told = fields.fields.get(metric, Sent())
    if told.wrong_unit:
        return Cell("wrong_unit", None, told.wrong_unit)
    if told.known and "frozen" in open_ and METRICS[metric].kind in ("gauge", "counter"):
        return Cell("frozen", open_["frozen"], "telemetry stands still")
    if told.known and told.frozen:
        return Cell("frozen", None, "no change in ten minutes, while it moves elsewhere")
    if metric in COMES_AND_GOES:
        return Cell("present") if told.known else QUIET
    if told.known:
        return (
            Cell("partial", None, f"{told.gpus} of {fields.gpus} GPUs") if told.gpus < fields.gpus else Cell("present")
        )
    if IDLE_SILENT & set(fields.exporters):
        return QUIET
    if told.sent:
        return Cell("missing", open_.get(metric), "sent, but without a value")
    layout_id = one.frame.layout_id
    gone = None if layout_id is None else past.gone_since(metric, layout_id)
    return Cell("missing", open_.get(metric, gone), "no longer sent")
