"""The rules as data."""

from __future__ import annotations

import pytest

from gpufleet.catalogue.metrics import METRICS
from gpufleet.detect.rules import Rule, RuleError, load_rules, read_rules
from gpufleet.detect.windows import GPU_METRICS

HEAD = ",".join(Rule.__slots__)
GOOD = (
    "a,thermal,1,warning,gpu,gpu_temperature_celsius,85,H100=87;H100 PCIe=80,120,2,80,60,2,Cool,check_cooling,"
    "degraded,true,false,why,whence"
)


def test_a_rule_reads_with_its_limits_by_model() -> None:
    (rule,) = read_rules([HEAD, GOOD])
    assert [rule.limit(model) for model in ("NVIDIA B200", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe")] == [85, 87, 80]
    assert (rule.pages, rule.needs_person, rule.clear_threshold) == (True, False, 80.0)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (GOOD.replace("warning", "loud"), "severity is 'loud'"),
        (GOOD.replace(",85,", ",hot,"), "hot"),
        (GOOD.replace("degraded", "sad"), "state is 'sad'"),
        (GOOD.replace("true", "maybe"), "pages is 'maybe'"),
        (GOOD.replace("H100=87", "H100"), "rule 'a'"),
        ("a,thermal", "rule 'a'"),
    ],
)
def test_a_broken_rule_is_named(broken: str, says: str) -> None:
    with pytest.raises(RuleError, match=says):
        read_rules([HEAD, broken])


def test_an_id_is_there_once() -> None:
    with pytest.raises(RuleError, match="'a' is there twice"):
        read_rules([HEAD, GOOD, GOOD])


def test_every_rule_of_the_product_says_why_whence_and_what_clears_it() -> None:
    rules = load_rules()
    assert {rule.kind for rule in rules} == {
        *("node_down", "exporter_down", "telemetry_degraded", "gpu_missing", "telemetry_frozen", "thermal", "xid"),
        "field_missing",
    }
    for rule in rules:
        assert rule.reason, rule.id
        assert rule.source, rule.id
        assert rule.clears_when, rule.id


def test_every_metric_of_a_window_is_in_the_catalogue() -> None:
    assert set(GPU_METRICS) <= set(METRICS)
