"""The file of sources: the part of scrape_configs that is understood, and a clear word for the rest."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpufleet.scrape.access import Access
from gpufleet.scrape.discovery import DiscoveryError
from gpufleet.scrape.source_file import AccessFile, access_of, parse_sources, read_sources

WHOLE = """
scrape_configs:
  - job_name: dcgm
    scheme: https
    metrics_path: /gpu/metrics
    params: {module: [all]}
    honor_labels: true
    authorization: {credentials_file: token}
    tls_config:
      {ca_file: /etc/ca.pem, cert_file: c.pem, key_file: k.pem, server_name: exporter, insecure_skip_verify: true}
    static_configs:
      - targets: ["10.0.0.1:9400"]
        labels: {node: gpu-n01, rack: r1}
    file_sd_configs:
      - files: ["targets/*.json"]
    http_sd_configs:
      - {url: "https://inventory.example/targets", refresh_interval: 1m30s, basic_auth: {username: u, password_file: p}}
  - job_name: upstream
    federate_configs:
      - {url: "http://prometheus.example:9090", match: '{job="dcgm"}'}
"""


def test_everything_that_is_understood(tmp_path: Path) -> None:
    path = tmp_path / "sources.yml"
    path.write_text(WHOLE)
    dcgm, upstream = read_sources(path)
    assert dcgm.access == Access(
        scheme="Bearer",
        credentials_file=str(tmp_path / "token"),
        ca_file="/etc/ca.pem",
        cert_file=str(tmp_path / "c.pem"),
        key_file=str(tmp_path / "k.pem"),
        server_name="exporter",
        insecure_skip_verify=True,
    )
    (target,) = dcgm.targets
    assert (target.url, target.node, target.rack, target.job) == (
        "https://10.0.0.1:9400/gpu/metrics?module=all",
        "gpu-n01",
        "r1",
        "dcgm",
    )
    assert dcgm.files == (str(tmp_path / "targets/*.json"),)
    (http,) = dcgm.http
    assert (http.url, http.refresh_seconds, http.access) == (
        "https://inventory.example/targets",
        90.0,
        Access(username="u", password_file=str(tmp_path / "p")),
    )
    (federation,) = upstream.federations
    assert (federation.url, federation.match, federation.refresh_seconds) == (
        "http://prometheus.example:9090",
        '{job="dcgm"}',
        60.0,
    )
    assert access_of([dcgm, upstream]) == {"dcgm": dcgm.access}


def test_keys_that_are_merged_are_understood() -> None:
    text = "scrape_configs:\n- &a {job_name: a, scheme: https}\n- {<<: *a, job_name: b}"
    assert [job.defaults["__scheme__"] for job in parse_sources(text)] == ["https", "https"]


def one(text: str) -> str:
    return "scrape_configs: [{job_name: a, " + text + "}]"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "the file: a table with scrape_configs is missing"),
        ("[]", "the file: a table with scrape_configs is missing"),
        ("scrape_configs: {}\nglobal: {}", "the file, line 2: global is not supported"),
        ("scrape_configs: 3", "scrape_configs is no list"),
        ("scrape_configs: [3]", "job 1: a table with"),
        ("scrape_configs: [{}]", "job 1: job_name is a text"),
        ("scrape_configs: [{job_name: a}, {job_name: a}]", "the job_name 'a' stands there twice"),
        ("scrape_configs:\n - job_name: a\n  x: [", "line 3, column 3"),
        (one("scrape_interval: 5s"), "scrape_interval is not supported (every target is scraped once an interval"),
        (
            "scrape_configs:\n- job_name: a\n  tls_config:\n    ca: x",
            "job 'a', tls_config, line 4: ca is not supported",
        ),
        (
            "scrape_configs:\n- job_name: a\n  scheme: https\n  scheme: http",
            "line 4, column 3: scheme stands there twice",
        ),
        ("scrape_configs:\n- job_name: a\n  scheme: [x]", "job 'a', line 3: scheme is no text"),
        (one("federate_configs: [{url: 'http://x', node_label: Hostname}]"), "node_label and series"),
        (one("federate_configs: [{url: 'http://x', node_label: 'a-b', series: m}]"), "no name of a label"),
        (one("federate_configs: [{url: 'http://x', node_label: a, series: 'm{}'}]"), "or series none of a metric"),
        (one("relabel_configs: []"), "relabel_configs is not supported (write the labels into"),
        (one("basic_auth: {username: u, password: p}"), "password is not supported (secrets are named by file"),
        (one("authorization: {credentials: t}"), "credentials is not supported (secrets are named by file"),
        (one("authorization: {type: Bearer}"), "authorization needs a credentials_file"),
        (one("basic_auth: {username: u}, authorization: {credentials_file: t}"), "not both"),
        (one("tls_config: {insecure_skip_verify: 1}"), "insecure_skip_verify is true or false"),
        (one("tls_config: {min_version: TLS13}"), "min_version is not supported"),
        (one("scheme: gopher, static_configs: [{targets: [h]}]"), "the scheme is http or https, not 'gopher'"),
        (one("params: {a: [b, c]}"), "params.a is no list of one text"),
        (one("static_configs: [{targets: ['a b']}]"), "group 1, target 1: 'a b' is no address"),
        (one("file_sd_configs: [{files: [list.txt]}]"), "'list.txt' is no name of a .json, .yml or .yaml file"),
        (one("http_sd_configs: [{url: 'ftp://x'}]"), "url is an http or https address"),
        (one("http_sd_configs: [{url: 'http://u:p@x/'}]"), "without a user in it"),
        (one("http_sd_configs: [{url: 'http://x', refresh_interval: soon}]"), "refresh_interval is a time such as"),
        (one("federate_configs: [{url: 'http://x', match: up}]"), "match is labels in braces"),
        (one("federate_configs: [{url: 'http://x'}], static_configs: []"), "federate_configs stands alone"),
        (one('metrics_path: "a\\nb"'), "metrics_path is no text of one line"),
    ],
)
def test_what_is_refused(text: str, problem: str) -> None:
    with pytest.raises(DiscoveryError) as caught:
        parse_sources(text)
    assert problem in str(caught.value)


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(DiscoveryError):
        parse_sources("scrape_configs: " + text)


def test_credentials_follow_the_file_and_outlive_a_broken_one(tmp_path: Path) -> None:
    path = tmp_path / "sources.yml"
    path.write_text("scrape_configs: [{job_name: a, authorization: {credentials_file: /t}}]")
    accesses = AccessFile(str(path))
    first = accesses()
    assert first == {"a": Access(scheme="Bearer", credentials_file="/t")}
    path.write_text("scrape_configs: [")
    assert accesses() == first
    path.unlink()
    assert accesses() == first
    path.write_text("scrape_configs: [{job_name: b, basic_auth: {username: u, password_file: /p}}]")
    assert accesses() == {"b": Access(username="u", password_file="/p")}
    assert AccessFile("")() == {}
