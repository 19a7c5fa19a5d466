"""The kind `field_missing`: a field that critical rules need goes, and only that raises it, live and after a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest
from factories import make_user
from scenario import START, Scenario, bodies
from shared import case

from gpufleet.catalogue.metrics import rows
from gpufleet.core.times import from_unix
from gpufleet.detect.fields import COMES_AND_GOES, IDLE_SILENT, blind_rules, critical_fields, needed_fields
from gpufleet.detect.rules import load_rules
from gpufleet.fleet.actions import create_windows
from gpufleet.fleet.specs import WindowSpec
from gpufleet.incidents.actions import label
from gpufleet.pipeline.detecting import forget_windows

pytestmark = pytest.mark.django_db
NODE = ("gpu-n01", "dcgm")
TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"
REASONS = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
ALL = (TEMPERATURE, "DCGM_FI_DEV_POWER_USAGE", REASONS)


def body(step: int, names: Iterable[str] = ALL, gpus: int = 2, extra: str = "", node: str = "n01") -> bytes:
    """One scrape: every GPU with the fields `names`, which waver."""
    lines = [
        f'{name}{{gpu="{gpu}",UUID="GPU-{node}-{gpu}",modelName="NVIDIA B200"}} '
        f"{0 if name == REASONS else 60 + (step + gpu) % 5}\n"
        for name in names
        for gpu in range(gpus)
    ]
    return ("".join(lines) + extra).encode()


def without(*names: str) -> tuple[str, ...]:
    return tuple(name for name in ALL if name not in names)


def run(fleet: Scenario, first: int, last: int, make: Callable[[int], bytes | str], each: int = 1) -> None:
    """Cycles `first` to `last`; before every `each`-th the worker loses its memory (1: never)."""
    for step in range(first, last):
        if each > 1 and step % each == 0:
            forget_windows()
        fleet.step(step * 15.0, {NODE: make(step)})


@pytest.mark.parametrize("each", [1, 7])
def test_a_field_that_goes_is_one_incident_that_names_field_and_blind_rules(each: int) -> None:
    fleet = Scenario(NODE)
    run(fleet, 0, 20, body, each)
    run(fleet, 20, 24, lambda step: body(step, without(TEMPERATURE)), each)
    assert fleet.incidents() == []
    run(fleet, 24, 60, lambda step: body(step, without(TEMPERATURE)), each)
    (found,) = fleet.incidents()
    assert (found.kind, found.subject, found.severity, found.paged) == (
        "field_missing", "node:gpu-n01", "warning", False,
    )  # fmt: skip
    assert found.opened_at == fleet.at(24 * 15)
    assert found.first_evidence_at == fleet.at(19 * 15)
    (evidence,) = found.evidence
    assert (evidence["signal"], evidence["value"]) == ("gpu_temperature_celsius", "no longer sent")
    assert "thermal.core_slowdown, thermal.core_high" in evidence["expected"]
    assert "thermal.core_slowdown" in found.title
    assert found.resolved_at is None
    assert fleet.ledger(node="gpu-n01")[-1][0] == "healthy"
    run(fleet, 60, 104, body, each)
    (found,) = fleet.incidents()
    assert found.recovered_at == fleet.at(61 * 15)
    assert found.resolved_at is not None


def test_it_stays_open_when_nothing_in_the_windows_or_the_last_hour_remembers_the_field() -> None:
    fleet = Scenario(NODE)
    run(fleet, 0, 20, body)
    run(fleet, 20, 26, lambda step: body(step, without(TEMPERATURE)))
    run(fleet, 280, 300, lambda step: body(step, without(TEMPERATURE)), 5)
    (found,) = fleet.incidents()
    assert (found.recovered_at, found.resolved_at) == (None, None)


def test_gone_during_an_outage_of_the_exporter_is_found_after_it() -> None:
    fleet = Scenario(NODE)
    run(fleet, 0, 20, body)
    run(fleet, 20, 80, lambda step: "refused")
    assert [one for one in fleet.incidents() if one.kind == "field_missing"] == []
    run(fleet, 80, 86, lambda step: body(step, without(REASONS)), 3)
    (found,) = fleet.incidents("field_missing")
    assert [piece["signal"] for piece in found.evidence] == ["gpu_clock_event_reasons"]
    assert found.first_evidence_at == fleet.at(19 * 15)


def test_two_fields_of_one_node_are_one_incident() -> None:
    fleet = Scenario(NODE)
    run(fleet, 0, 20, body)
    run(fleet, 20, 30, lambda step: body(step, without(REASONS, TEMPERATURE)))
    (found,) = fleet.incidents()
    assert {piece["signal"] for piece in found.evidence} == {"gpu_clock_event_reasons", "gpu_temperature_celsius"}


def test_a_rollout_over_many_nodes_is_one_incident_with_members() -> None:
    names = [f"gpu-n{number:02d}" for number in range(1, 5)]
    fleet = Scenario(*((name, "dcgm") for name in names))
    for step in range(40):
        answers: dict[tuple[str, str], bytes | str] = {}
        for place, name in enumerate(names):
            gone = place < 3 and step >= 20 + 2 * place
            answers[name, "dcgm"] = body(step, without(TEMPERATURE) if gone else ALL, node=name)
        fleet.step(step * 15.0, answers)
    found = fleet.incidents()
    assert [one.subject for one in found] == ["node:gpu-n01", "node:gpu-n02", "node:gpu-n03"]
    assert [one.parent_id for one in found] == [None, found[0].pk, found[0].pk]


def test_marked_as_known_it_ends_and_does_not_come_back() -> None:
    fleet = Scenario(NODE)
    run(fleet, 0, 20, body)
    run(fleet, 20, 30, lambda step: body(step, without(TEMPERATURE)))
    (found,) = fleet.incidents()
    label(found.pk, make_user("responder"), now=fleet.at(30 * 15), source="page", label="known")
    run(fleet, 30, 120, lambda step: body(step, without(TEMPERATURE)), 20)
    (found,) = fleet.incidents()
    assert found.recovered_at == fleet.at(30 * 15)
    assert found.resolved_at is not None
    run(fleet, 120, 150, body)
    run(fleet, 150, 160, lambda step: body(step, without(TEMPERATURE)))
    assert len(fleet.incidents()) == 2, "what goes once more after it was back is news"


XID = 'DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-n01-0"} 0\n'
COUNTS = 'DCGM_EXP_CLOCK_EVENTS_COUNT{gpu="0",UUID="GPU-n01-0",clock_event="hw_thermal_slowdown"} 3\n'


@pytest.mark.parametrize(
    ("why", "later"),
    [
        ("a GPU vanished", lambda step: body(step, gpus=1)),
        ("the scrape fails", lambda step: "timeout"),
        ("the exporter lists no GPU", lambda step: b"up 1\n"),
        ("the XID line is absent, as there was none", lambda step: body(step)),
        ("it is there in every second scrape", lambda step: body(step, ALL if step % 2 else without(TEMPERATURE))),
        ("it is gone for three scrapes", lambda step: body(step, without(TEMPERATURE) if step < 23 else ALL)),
        ("a field that no critical rule needs is gone", lambda step: body(step, without("DCGM_FI_DEV_POWER_USAGE"))),
        ("every scrape brings other lines that come and go", lambda step: body(step, extra=COUNTS * (step % 2))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_not_raised_when(why: str, later: Callable[[int], bytes | str]) -> None:
    fleet = Scenario(NODE)
    run(fleet, 0, 20, lambda step: body(step, extra=XID + COUNTS))
    run(fleet, 20, 45, later)
    assert fleet.incidents("field_missing") == [], why


def test_not_raised_for_another_spelling_of_the_same_field() -> None:
    known = {row["name"]: row["metric"] for row in rows("aliases.csv")}
    other = [name for name, metric in known.items() if metric == "gpu_temperature_celsius" and name.startswith("DCGM")]
    assert len(other) > 1
    fleet = Scenario(NODE)
    run(fleet, 0, 20, body)
    renamed = next(name for name in other if name != TEMPERATURE)
    run(fleet, 20, 40, lambda step: body(step, (*without(TEMPERATURE), renamed)))
    assert fleet.incidents() == []


def test_not_raised_when_one_of_two_gpu_exporters_fails() -> None:
    both = (("gpu-n01", "dcgm"), ("gpu-n01", "smi"))
    fleet = Scenario(*both)
    for step in range(60):
        first: bytes | str = body(step) if step < 20 else "refused"
        fleet.step(step * 15.0, {both[0]: first, both[1]: body(step, without(TEMPERATURE))})
    assert fleet.incidents("field_missing") == []


def test_nothing_opens_in_planned_time_and_it_is_told_afterwards() -> None:
    fleet = Scenario(NODE)
    planned = WindowSpec("gpu-n01", START + 18 * 15, START + 40 * 15, "driver upgrade")
    create_windows(fleet.cluster, [planned], actor="m", source="import", now=from_unix(START))
    run(fleet, 0, 20, body)
    run(fleet, 20, 40, lambda step: body(step, without(TEMPERATURE)))
    assert fleet.incidents() == []
    run(fleet, 40, 46, lambda step: body(step, without(TEMPERATURE)))
    assert [one.kind for one in fleet.incidents()] == ["field_missing"]


def test_a_field_that_was_never_there_is_no_news() -> None:
    fleet = Scenario(NODE)
    run(fleet, 0, 30, lambda step: body(step, without(REASONS)), 9)
    assert fleet.incidents() == []


@pytest.mark.parametrize("number", ["018", "023", "024"])
def test_cases_raise_nothing(number: str) -> None:
    fleet = Scenario(NODE)
    steps = list(bodies(case(number)[0]))
    for place, (_, text) in enumerate(steps):
        for again in range(10):
            fleet.step((place * 10 + again) * 15.0, {NODE: text})
    assert fleet.incidents("field_missing") == []


def test_critical_fields_are_never_lines_that_come_and_go() -> None:
    rules = load_rules()
    critical = set(critical_fields(rules))
    assert {"gpu_temperature_celsius", "gpu_clock_event_reasons"} <= critical <= set(needed_fields(rules))
    assert not critical & COMES_AND_GOES
    assert not critical & {row["metric"] for row in rows("aliases.csv") if row["exporter"] in IDLE_SILENT}


def test_a_rule_with_alternatives_is_blind_only_without_all_of_them() -> None:
    rules = load_rules()
    assert blind_rules(rules, {"gpu_xid_code"}) == ()
    assert blind_rules(rules, {"gpu_xid_code", "gpu_xid_window_count", "gpu_xid_events_total"}) == ("xid",)
    assert "telemetry_frozen.energy" in blind_rules(rules, {"gpu_power_watts"})
