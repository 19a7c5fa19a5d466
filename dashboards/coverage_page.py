"""The page of field coverage: which node sends which field, and which rules are blind for the lack of one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboards.shell import shell
from gpufleet.availability.tables import CELL, write_csv
from gpufleet.catalogue.metrics import METRICS
from gpufleet.core.times import rfc3339
from gpufleet.detect.fields import blind_rules, needed_fields
from gpufleet.detect.rules import load_rules
from gpufleet.pipeline.coverage import STATES, Cell, Coverage, NodeCoverage, coverage

GROUP_FROM = 100  # nodes; from here on equal rows are one, unless the reader asks otherwise
PAGE_SIZE = 100
GROUPINGS = ("auto", "yes", "no")
PROBLEMS = ("missing", "wrong_unit", "frozen", "partial", "never")
MARKS = {
    "present": ("✓", "p"),
    "partial": ("◐", "w"),
    "missing": ("✕", "m"),
    "frozen": ("=", "w"),
    "wrong_unit": ("!", "w"),
    "quiet": ("·", "q"),
    "unknown": ("?", "q"),
    "never": ("–", "q"),
}
MEANINGS = {
    "present": "sent by every GPU",
    "partial": "sent by some GPUs only",
    "missing": "was sent before, no longer",
    "frozen": "does not move while it should",
    "wrong_unit": "the values contradict the unit",
    "quiet": "sent only when there is something to tell",
    "unknown": "no good scrape lately",
    "never": "this node's exporters never sent it",
}


@dataclass(frozen=True, slots=True)
class Row:
    """Nodes whose cells are alike; one node where rows are not grouped."""

    nodes: tuple[NodeCoverage, ...]
    cells: tuple[tuple[str, str, str, str], ...]  # mark, class, words, field

    @property
    def first(self) -> NodeCoverage:
        return self.nodes[0]

    @property
    def last(self) -> NodeCoverage:
        return self.nodes[-1]


@dataclass(frozen=True, slots=True)
class Gap:
    """A field in one state that is no good on `nodes`; `blind`: the rules that lack it there."""

    name: str
    state: str
    detail: str
    nodes: tuple[str, ...]
    since: datetime | None
    blind: tuple[str, ...]

    @property
    def title(self) -> str:
        return METRICS[self.name].title

    @property
    def shown(self) -> tuple[str, ...]:
        return self.nodes[:6]

    @property
    def more(self) -> int:
        return len(self.nodes) - len(self.shown)


@require_safe
def coverage_page(request: HttpRequest) -> HttpResponse:
    """Filters are in the address; `?csv=1` gives the shown nodes as a table."""
    frame = shell(request)["shell"]
    whole = coverage(frame.cluster, frame.now)
    asked = {name: request.GET.get(name, "").replace("\x00", "")[:255] for name in ("state", "rack", "exporter", "q")}
    nodes = chosen(whole, state=asked["state"], rack=asked["rack"], exporter=asked["exporter"], words=asked["q"])
    if request.GET.get("csv"):
        return _csv(whole, nodes)
    group = request.GET.get("group") if request.GET.get("group") in GROUPINGS else "auto"
    rows = rows_of(whole.fields, nodes, group == "yes" or (group == "auto" and len(nodes) >= GROUP_FROM))
    page, pages = _page(request, len(rows))
    needed = set(needed_fields(load_rules()))
    context: dict[str, Any] = {
        "section": "targets",
        **asked,
        "whole": whole,
        "nodes": nodes,
        "gaps": gaps(nodes, whole.fields),
        "rows": rows[(page - 1) * PAGE_SIZE : page * PAGE_SIZE],
        "columns": [(name, METRICS[name], name in needed) for name in whole.fields],
        "page": page,
        "pages": pages,
        "before": page - 1 if page > 1 else None,
        "after": page + 1 if page < pages else None,
        "states": STATES,
        "racks": sorted({one.rack for one in whole.nodes if one.rack}),
        "exporters": sorted({name for one in whole.nodes for name in one.exporters}),
        "group": group,
        "groupings": GROUPINGS,
        "legend": [(*MARKS[state], state, MEANINGS[state]) for state in MARKS],
        "moment": frame.now,
    }
    return render(request, "targets/coverage.html", context)


def chosen(
    whole: Coverage, *, state: str = "", rack: str = "", exporter: str = "", words: str = ""
) -> list[NodeCoverage]:
    """The nodes that fit: of this rack, with this exporter, and with some field in this state."""
    return [
        one
        for one in whole.nodes
        if (not rack or one.rack == rack)
        and (not exporter or exporter in one.exporters)
        and (not words or words.lower() in one.node.lower())
        and (not state or any(one.cell(name).state == state for name in whole.fields))
    ]


def rows_of(fields: Sequence[str], nodes: Iterable[NodeCoverage], grouped: bool) -> list[Row]:
    """A row a node, or one for all nodes whose exporters and states are the same; most nodes first then."""
    found: dict[Any, list[NodeCoverage]] = {}
    for one in nodes:
        states = tuple(one.cell(name).state for name in fields)
        found.setdefault((one.exporters, states) if grouped else one.node, []).append(one)
    rows = [Row(tuple(alike), tuple(_mark(name, alike[0].cell(name)) for name in fields)) for alike in found.values()]
    return sorted(rows, key=lambda row: -len(row.nodes)) if grouped else rows


def gaps(nodes: Sequence[NodeCoverage], fields: Sequence[str]) -> list[Gap]:
    """What is no good, by field and state; a field that was never sent counts only where a rule needs it."""
    rules = load_rules()
    needed = set(needed_fields(rules))
    found: dict[tuple[int, str, str, str], list[tuple[NodeCoverage, Cell]]] = {}
    for one in nodes:
        for name in fields:
            cell = one.cell(name)
            if cell.state in PROBLEMS and (cell.state != "never" or name in needed):
                detail = "" if cell.state == "partial" else cell.detail
                found.setdefault((PROBLEMS.index(cell.state), name, cell.state, detail), []).append((one, cell))
    return [
        Gap(
            name,
            state,
            detail,
            tuple(one.node for one, _ in told),
            min((cell.since for _, cell in told if cell.since is not None), default=None),
            blind_rules(rules, {name}) if state != "partial" else (),
        )
        for (_, name, state, detail), told in sorted(found.items(), key=lambda item: item[0])
    ]


def _mark(name: str, cell: Cell) -> tuple[str, str, str, str]:
    mark, style = MARKS[cell.state]
    words = cell.state.replace("_", " ")
    if cell.detail:
        words += f": {cell.detail}"
    if cell.since is not None:
        words += f", since {rfc3339(cell.since)}"
    return mark, style, words, METRICS[name].title


def _page(request: HttpRequest, rows: int) -> tuple[int, int]:
    pages, text = max(1, -(-rows // PAGE_SIZE)), request.GET.get("page", "")
    asked = int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 1
    return min(max(1, asked), pages), pages


def _csv(whole: Coverage, nodes: Sequence[NodeCoverage]) -> HttpResponse:
    columns = ["node", "rack", "exporters", "last_scrape_at", "blind_rules", *whole.fields]
    lines: list[list[CELL]] = [
        [
            *(one.node, one.rack or None, " ".join(one.exporters)),
            *(None if one.last_scrape_at is None else rfc3339(one.last_scrape_at), " ".join(one.blind)),
            *(_cell_text(one.cell(name)) for name in whole.fields),
        ]
        for one in nodes
    ]
    headers = {"Content-Disposition": 'attachment; filename="field-coverage.csv"'}
    return HttpResponse(write_csv(columns, lines), content_type="text/csv; charset=utf-8", headers=headers)


def _cell_text(cell: Cell) -> str:
    return cell.state if cell.since is None else f"{cell.state} since {rfc3339(cell.since)}"
