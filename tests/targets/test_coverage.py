"""Field coverage: the state of each field from real scrapes, on the page, in the API and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import numpy as np
import pytest
from api_callers import assert_problem, body_of, by_token, stranger
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from factories import make_fleet, make_user
from hypothesis import given
from hypothesis import strategies as st
from scenario import Answer, Scenario

from dashboards.coverage_page import gaps, rows_of
from gpufleet.catalogue.metrics import METRICS
from gpufleet.catalogue.units import contradiction, energy_contradiction
from gpufleet.core.times import from_unix, utc_now
from gpufleet.detect.fields import needed_fields
from gpufleet.detect.rules import load_rules
from gpufleet.fleet.models import Cluster
from gpufleet.pipeline.coverage import BLIND, STATES, Coverage, NodeCoverage, coverage

pytestmark = pytest.mark.django_db
PAGE = "/targets/coverage/"
Value = Callable[[int, int], float]
NODES = tuple((f"n{number}", "dcgm") for number in range(1, 6))
FIELDS: dict[str, Value] = {
    "DCGM_FI_DEV_GPU_TEMP": lambda step, gpu: 60 + (step + gpu) % 7,
    "DCGM_FI_DEV_POWER_USAGE": lambda step, gpu: 700 + (step * 13 + gpu) % 37,
    "DCGM_FI_DEV_GPU_UTIL": lambda step, gpu: 90 + (step + gpu) % 9,
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": lambda step, gpu: 1e9 + 710e3 * 30 * step,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": lambda step, gpu: 0.5 + (step + gpu) % 11 / 100,
    "DCGM_FI_DEV_SM_CLOCK": lambda step, gpu: 1965,
}
STEP = 30.0


def body(node: str, step: int, changed: dict[str, Value | None] | None = None, gpus: int = 4) -> bytes:
    told = {**FIELDS, **(changed or {})}
    return "".join(
        f'{name}{{gpu="{gpu}",UUID="GPU-{node}-{gpu}",modelName="NVIDIA B200"}} {value(step, gpu)}\n'
        for name, value in told.items()
        if value is not None
        for gpu in range(gpus)
    ).encode()


def seen(change: Callable[[int], dict[str, dict[str, Value | None]]], steps: int = 24) -> Coverage:
    """The coverage after `steps` scrapes, 30 s apart; `change(step)` by node says what is not as in FIELDS."""
    fleet = Scenario(*NODES, interval=STEP)
    for step in range(steps):
        answers: dict[tuple[str, str], Answer] = {
            (node, job): body(node, step, change(step).get(node)) for node, job in NODES
        }
        fleet.step(step * STEP, answers)
    return coverage(fleet.cluster, fleet.at((steps - 1) * STEP + 2))


def of(found: Coverage, node: str) -> NodeCoverage:
    return next(one for one in found.nodes if one.node == node)


def test_a_whole_fleet_is_present_and_what_never_came_makes_rules_blind() -> None:
    found = seen(lambda step: {})
    one = of(found, "n1")
    assert {one.cell(name).state for name in ("gpu_temperature_celsius", "gpu_power_watts")} == {"present"}
    assert one.cell("gpu_sm_clock_hertz").state == "present", "a clock may stand still: it does so everywhere"
    assert one.cell("gpu_clock_event_reasons").state == "never"
    assert one.cell("gpu_xid_code").state == "quiet"
    assert one.exporters == ("dcgm-exporter",)
    assert one.blind == ("thermal.hw_slowdown", "thermal.hbm_high", "thermal.margin")
    assert found.fields[: len(needed_fields(load_rules()))] == needed_fields(load_rules())


def test_missing_says_since_when_and_which_rules_are_blind() -> None:
    gone: dict[str, Value | None] = {"DCGM_FI_DEV_GPU_TEMP": None, "DCGM_FI_DEV_SM_CLOCK": None}
    found = seen(lambda step: {"n2": gone} if step >= 14 else {})
    one = of(found, "n2")
    assert one.cell("gpu_temperature_celsius").state == "missing"
    assert one.cell("gpu_temperature_celsius").since == from_unix(found.as_of.timestamp() - 2 - 10 * STEP), "incident"
    assert one.cell("gpu_sm_clock_hertz").since == from_unix(found.as_of.timestamp() - 2 - 9 * STEP), "layout"
    assert "thermal.core_slowdown" in one.blind
    assert "thermal.core_slowdown" not in of(found, "n1").blind


def test_a_field_that_left_twice_has_no_wrong_since() -> None:
    gone: dict[str, Value | None] = {"DCGM_FI_DEV_SM_CLOCK": None}
    other: dict[str, Value | None] = {"DCGM_FI_DEV_MEM_CLOCK": lambda step, gpu: 2000}
    found = seen(lambda step: {"n2": gone if step in (5, 6) or step > 15 else other if step > 6 else {}})
    cell = of(found, "n2").cell("gpu_sm_clock_hertz")
    assert (cell.state, cell.since) == ("missing", None)


def test_a_value_that_says_no_value_is_missing_and_some_gpus_are_partial() -> None:
    blank: Value = lambda step, gpu: 2147483632 if gpu == 0 else 65.0 + step % 3  # noqa: E731
    none: Value = lambda step, gpu: 2147483634  # noqa: E731
    found = seen(lambda step: {"n3": {"DCGM_FI_DEV_GPU_TEMP": blank, "DCGM_FI_DEV_POWER_USAGE": none}})
    one = of(found, "n3")
    assert (one.cell("gpu_temperature_celsius").state, one.cell("gpu_temperature_celsius").detail) == (
        "partial", "3 of 4 GPUs",
    )  # fmt: skip
    assert (one.cell("gpu_power_watts").state, one.cell("gpu_power_watts").detail) == (
        "missing", "sent, but without a value",
    )  # fmt: skip


def test_frozen_is_what_stands_still_and_moves_elsewhere() -> None:
    still: dict[str, Value | None] = {"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": lambda step, gpu: 0.5 + gpu / 100}
    found = seen(lambda step: {"n4": still})
    assert of(found, "n4").cell("gpu_tensor_active_ratio").state == "frozen"
    assert of(found, "n5").cell("gpu_tensor_active_ratio").state == "present"
    idle: dict[str, Value | None] = {**still, "DCGM_FI_DEV_GPU_UTIL": lambda step, gpu: 0}
    found = seen_again(idle)
    assert of(found, "n4").cell("gpu_tensor_active_ratio").state == "present", "an idle board may stand still"


def test_a_field_in_whole_numbers_may_stand_still() -> None:
    still: dict[str, Value | None] = {"DCGM_FI_DEV_GPU_TEMP": lambda step, gpu: 61}
    assert of(seen(lambda step: {"n4": still}), "n4").cell("gpu_temperature_celsius").state == "present"


def test_an_energy_counter_that_stands_still_is_frozen_even_alone() -> None:
    still: dict[str, Value | None] = {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": lambda step, gpu: 1e9}
    found = seen(lambda step: {node: still for node, _ in NODES})
    assert {one.cell("gpu_energy_joules_total").state for one in found.nodes} == {"frozen"}


def seen_again(change: dict[str, Value | None]) -> Coverage:
    Cluster.objects.filter(name="scenario").update(name="before")
    return seen(lambda step: {"n4": change})


@pytest.mark.parametrize(
    ("name", "value", "metric", "words"),
    [
        ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", lambda step, gpu: 55.0 + step % 9, "gpu_tensor_active_ratio", "per cent"),
        ("DCGM_FI_DEV_GPU_UTIL", lambda step, gpu: 0.5 + step % 9 / 100, "gpu_utilization_ratio", "0 to 1"),
        ("DCGM_FI_DEV_SM_CLOCK", lambda step, gpu: 1.965e9, "gpu_sm_clock_hertz", "Hz under a name that means MHz"),
        ("DCGM_FI_DEV_SM_CLOCK_HERTZ", lambda step, gpu: 1965.0, "gpu_sm_clock_hertz", "MHz under a name"),
        ("DCGM_FI_DEV_POWER_USAGE", lambda step, gpu: 712_000.0 + step, "gpu_power_watts", "milliwatts"),
        (
            "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", lambda step, gpu: 1e6 + 710.0 * 30 * step,
            "gpu_energy_joules_total", "joules under a name that means millijoules",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_wrong_unit_is_found_by_the_values(name: str, value: Value, metric: str, words: str) -> None:
    changed: dict[str, Value | None] = {name: value}
    if name == "DCGM_FI_DEV_SM_CLOCK_HERTZ":
        changed["DCGM_FI_DEV_SM_CLOCK"] = None
    found = seen(lambda step: {"n1": changed})
    cell = of(found, "n1").cell(metric)
    assert cell.state == "wrong_unit"
    assert words in cell.detail
    assert of(found, "n2").cell(metric).state != "wrong_unit"


@given(
    st.sampled_from(sorted(name for name, metric in METRICS.items() if metric.kind == "gauge")),
    st.lists(st.floats(0, 1), min_size=0, max_size=64),
    st.booleans(),
)
def test_values_of_the_right_unit_are_never_doubted(name: str, shares: list[float], per_cent: bool) -> None:
    metric = METRICS[name]
    least = {"hertz": 1e8, "bytes": 1e7}.get(metric.unit, metric.scale_low)
    values = least + (metric.scale_high - least) * np.array(shares)
    scale = 1.0
    if metric.unit == "ratio" and per_cent:
        scale, values = 0.01, np.round(values * 100) / 100
    assert contradiction(metric, values, scale) == ""


@given(st.lists(st.floats(50, 1200), min_size=1, max_size=8), st.floats(60, 3600), st.floats(0.5, 2))
def test_energy_that_fits_the_power_is_never_doubted(watts: list[float], seconds: float, wobble: float) -> None:
    power = np.array(watts)
    assert energy_contradiction(power * seconds * wobble, power, seconds) == ""
    if len(watts) >= 3:
        assert "millijoules" in energy_contradiction(power * seconds * 1000, power, seconds)


def test_a_node_that_is_silent_is_unknown_and_blames_no_rule() -> None:
    fleet = Scenario(*NODES, interval=STEP)
    for step in range(24):
        fleet.step(step * STEP, {(n, j): "timeout" if n == "n1" and step > 4 else body(n, step) for n, j in NODES})
    one = of(coverage(fleet.cluster, fleet.at(24 * STEP)), "n1")
    assert one.cell("gpu_temperature_celsius").state == "unknown"
    assert one.blind == ()


def test_equal_rows_are_one_and_nothing_is_lost() -> None:
    found = seen(lambda step: {"n2": {"DCGM_FI_DEV_SM_CLOCK": None}})
    rows = rows_of(found.fields, found.nodes, grouped=True)
    assert [[one.node for one in row.nodes] for row in rows] == [["n1", "n3", "n4", "n5"], ["n2"]]
    assert [row.first.node for row in rows_of(found.fields, found.nodes, grouped=False)] == [
        "n1",
        "n2",
        "n3",
        "n4",
        "n5",
    ]
    told = {(gap.name, gap.state) for gap in gaps(found.nodes, found.fields)}
    assert ("gpu_clock_event_reasons", "never") in told


def signed_in(role: str = "viewer") -> Client:
    client = Client()
    client.force_login(make_user(role))
    return client


@pytest.mark.parametrize("role", ["viewer", "responder", "manager", "admin"])
def test_every_role_may_read(role: str) -> None:
    make_fleet(utc_now(), nodes=2)
    text = signed_in(role).get(PAGE).content.decode()
    assert "thermal.margin" in text
    assert "gpu-002" in text


def test_a_stranger_may_not() -> None:
    assert Client().get(PAGE)["Location"] == f"/sign-in/?next={PAGE}"
    assert_problem(stranger().get("coverage"), 401)


def test_without_targets_it_says_what_to_do() -> None:
    assert "No targets yet" in signed_in().get(PAGE).content.decode()
    assert body_of(by_token("viewer").get("coverage"))["nodes"] == []


def test_filters_of_page_and_api() -> None:
    make_fleet(utc_now(), nodes=4, racks=2)
    client, api = signed_in(), by_token("manager")
    assert [one.node for one in client.get(PAGE + "?rack=R01").context["nodes"]] == ["gpu-001", "gpu-002"]
    assert "No node fits" in client.get(PAGE + "?exporter=none-such").content.decode()
    assert client.get(PAGE + "?state=frozen").context["nodes"] == []
    assert [one["node"] for one in body_of(api.get("coverage", rack="R02"))["nodes"]] == ["gpu-003", "gpu-004"]
    assert_problem(api.get("coverage", state="nonsense"), 422, "state")
    assert_problem(api.get("coverage", cluster="nonsense"), 404)


def test_the_api_tells_fields_cells_and_blind_rules() -> None:
    make_fleet(utc_now(), nodes=1)
    told = body_of(by_token("viewer").get("coverage"))
    (node,) = told["nodes"]
    assert node["fields"]["gpu_temperature_celsius"] == {"state": "present", "since": None, "detail": None}
    assert set(node["fields"]) == {field["name"] for field in told["fields"]}
    assert {cell["state"] for cell in node["fields"].values()} <= set(STATES)
    assert "thermal.margin" in node["blind_rules"]
    margin = next(field for field in told["fields"] if field["name"] == "gpu_temperature_margin_celsius")
    assert margin["rules"] == ["thermal.margin"]


def test_csv_is_safe_and_whole() -> None:
    made = make_fleet(utc_now(), nodes=3)
    node = made.nodes[0]
    node.name = "=HYPERLINK(1)"
    node.save()
    answer = signed_in().get(PAGE + "?csv=1")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    lines = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert sorted(line["node"] for line in lines) == ["'=HYPERLINK(1)", "gpu-002", "gpu-003"]
    assert {line["gpu_temperature_celsius"] for line in lines} == {"present"}


@pytest.mark.parametrize("nodes", [2, 6])
@pytest.mark.parametrize(("path", "pinned"), [(PAGE, 20), (PAGE + "?csv=1", 17)])
def test_queries_do_not_grow_with_the_nodes(path: str, pinned: int, nodes: int) -> None:
    make_fleet(utc_now(), nodes=nodes)
    client = signed_in()
    client.get(path)
    with CaptureQueriesContext(connection) as queries:
        assert client.get(path).status_code == 200
    assert len(queries) == pinned, "\n".join(query["sql"][:160] for query in queries)


def test_blind_states_are_states() -> None:
    assert set(STATES) >= BLIND
