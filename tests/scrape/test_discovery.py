"""file_sd lists: what is understood, and where a bad one is bad."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.fleet.specs import TargetSpec
from gpufleet.scrape import discovery
from gpufleet.scrape.discovery import DiscoveryError, parse_file_sd, read_file_sd

LABELS = {
    "node": "gpu-n01",
    "rack": "r1",
    "switch": "s1",
    "cluster": "east",
    "job": "dcgm",
    "zone": "z",
    "__metrics_path__": "/nodes/gpu-n01/dcgm/metrics",
    "__scheme__": "https",
    "__param_module": "a b",
    "__param_collect": "x",
    "__address__": "ignored",
}


def one(labels: dict[str, str], address: str = "10.0.0.1:9400") -> TargetSpec:
    (found,) = parse_file_sd(json.dumps([{"targets": [address], "labels": labels}]), is_json=True)
    return found


def test_every_label_that_is_understood() -> None:
    assert one(LABELS) == TargetSpec(
        url="https://10.0.0.1:9400/nodes/gpu-n01/dcgm/metrics?collect=x&module=a+b",
        node="gpu-n01",
        cluster="east",
        rack="r1",
        switch="s1",
        job="dcgm",
        labels={key: value for key, value in LABELS.items() if not key.startswith("__")},
    )


def test_defaults() -> None:
    assert one({}) == TargetSpec("http://10.0.0.1:9400/metrics", "10.0.0.1", "default")


@pytest.mark.parametrize(
    ("address", "node"),
    [
        ("gpu-n01", "gpu-n01"),
        ("gpu-n01.example.com:9100", "gpu-n01.example.com"),
        ("[2001:db8::1]:9100", "2001:db8::1"),
    ],
)
def test_the_node_is_the_host_where_no_label_says_so(address: str, node: str) -> None:
    found = one({}, address)
    assert (found.node, found.url) == (node, f"http://{address}/metrics")


def test_yaml_and_json_say_the_same(tmp_path: Path) -> None:
    groups = [{"targets": ["a:1", "b:2"], "labels": LABELS}, {"targets": ["c:3"]}]
    (tmp_path / "t.json").write_text(json.dumps(groups))
    (tmp_path / "t.yml").write_text(
        "- targets: ['a:1', 'b:2']\n  labels:\n"
        + "".join(f"    {key}: '{value}'\n" for key, value in LABELS.items())
        + "- targets: ['c:3']\n"
    )
    assert read_file_sd(tmp_path / "t.yml") == read_file_sd(tmp_path / "t.json")
    assert len(read_file_sd(tmp_path / "t.json")) == 3


@pytest.mark.parametrize(
    ("text", "is_json", "message"),
    [
        ("[\n  {,]", True, "line 2, column 4"),
        ("- targets: [a\n- b: ]", False, "line 2, column"),
        ("", False, "the list of groups is missing"),
        ("{}", True, "the list of groups is missing"),
        ("[1]", True, "group 1: not a group"),
        ('[{"targets": ["a:1"], "label": {}}]', True, "group 1: 'label' is neither"),
        ("[{}]", True, "group 1: targets is no list"),
        ('[{"targets": ["a:1"]}, {"targets": ["a:1", "http://b/"]}]', True, "group 2, target 2: 'http://b/'"),
        ('[{"targets": [7]}]', True, "group 1, target 1: 7 is no address"),
        ('[{"targets": ["a:0"]}]', True, "group 1, target 1"),
        ('[{"targets": ["a:65536"]}]', True, "group 1, target 1"),
        ('[{"targets": ["a:1@b"]}]', True, "group 1, target 1"),
        ('[{"targets": ["a:1"], "labels": {"rack": 7}}]', True, "the label rack is no text"),
        ('[{"targets": ["a:1"], "labels": {"a b": "7"}}]', True, "'a b' is no name"),
        ('[{"targets": ["a:1"], "labels": {"__scheme__": "file"}}]', True, "http or https, not 'file'"),
        ('[{"targets": ["a:1"], "labels": {"rack": "\\u0000"}}]', True, "the label rack is too long or"),
        (json.dumps([{"targets": ["a:1"], "labels": {"rack": "r" * 64}}]), True, "the label rack is too long"),
        (json.dumps([{"targets": ["a" * 256]}]), True, "the name of the node is too long"),
        (json.dumps([{"targets": ["a:1"], "labels": {f"l{n}": "" for n in range(65)}}]), True, "at most 64"),
        (
            json.dumps([{"targets": ["a"], "labels": {f"__param_{n}": "v" * 1000 for n in range(3)}}]),
            True,
            "longer than",
        ),
        ("!!python/object/apply:os.system ['true']", False, "could not determine a constructor"),
        ("[" * 100_000, True, "nested too deep"),
    ],
)
def test_a_bad_list_says_where(text: str, is_json: bool, message: str) -> None:
    with pytest.raises(DiscoveryError, match=message.replace("(", r"\(").replace("[", r"\[")):
        parse_file_sd(text, is_json=is_json)


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DiscoveryError, match="No such file"):
        read_file_sd(tmp_path / "none.json")
    (tmp_path / "latin.yml").write_bytes(b"- targets: ['\xe4']")
    with pytest.raises(DiscoveryError, match=r"latin.yml: byte 13 is no UTF-8"):
        read_file_sd(tmp_path / "latin.yml")
    monkeypatch.setattr(discovery, "MAX_FILE_BYTES", 10)
    (tmp_path / "large.json").write_text("[" + " " * 10)
    with pytest.raises(DiscoveryError, match="larger than 10 bytes"):
        read_file_sd(tmp_path / "large.json")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["targets", "labels", "x"]), inner),
)


@given(json_values)
def test_any_json_is_read_or_refused(value: object) -> None:
    try:
        found = parse_file_sd(json.dumps(value), is_json=True)
    except DiscoveryError:
        return
    assert all(isinstance(spec, TargetSpec) for spec in found)
