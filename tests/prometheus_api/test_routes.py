"""The routes: what they answer, and every way to ask wrongly."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import BoundedSemaphore

import numpy as np
import orjson
import pytest
from factories import MadeFleet, raw_values
from prometheus_api.conftest import NOW, Asking, assert_error

from dashboards.prometheus import views
from dashboards.prometheus.encoding import number, result
from gpufleet.fleet.models import Cluster, Node, Target
from gpufleet.promql.engine import Answer, Row
from gpufleet.promql.limits import Limits

AT = NOW.timestamp() - 30


def test_an_exporters_name_is_in_the_exporters_unit_and_a_canonical_one_in_ours(
    fleet: MadeFleet, viewer: Asking
) -> None:
    uuid = fleet.gpu(1, 0).uuid
    raw = raw_values(1, 2)
    for name, value in (
        ("DCGM_FI_DEV_GPU_UTIL", raw[0]),
        ("gpu_utilization_ratio", raw[0] / 100),
        ("DCGM_FI_DEV_FB_USED", raw[8]),
        ("gpu_memory_used_bytes", raw[8] * 2**20),
    ):
        found = viewer.data("query", query=f'{name}{{UUID="{uuid}"}}', time=AT)
        assert found["resultType"] == "vector"
        assert len(found["result"]) == 1
        assert float(found["result"][0]["value"][1]) == pytest.approx(value, rel=1e-12)


def test_labels_are_those_that_dashboards_ask_for(fleet: MadeFleet, viewer: Asking) -> None:
    found = viewer.data("query", query='DCGM_FI_DEV_GPU_TEMP{gpu="1",node="gpu-002"}', time=AT)
    assert found["result"][0]["metric"] == {
        "__name__": "DCGM_FI_DEV_GPU_TEMP",
        "gpu": "1",
        "UUID": fleet.gpu(1, 1).uuid,
        "modelName": "NVIDIA B200",
        "device": "nvidia1",
        "Hostname": "gpu-002",
        "instance": "gpu-002:9400",
        "node": "gpu-002",
        "cluster": "default",
        "rack": "R02",
    }


def test_a_dashboard_finds_its_variables(fleet: MadeFleet, viewer: Asking) -> None:
    for label, values in (("instance", ["gpu-001:9400", "gpu-002:9400"]), ("gpu", ["0", "1"])):
        asked = {"match[]": "DCGM_FI_DEV_GPU_TEMP", "start": NOW.timestamp() - 3600, "end": NOW.timestamp()}
        assert viewer.data(f"label/{label}/values", **asked) == values
    panel = 'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"gpu-001:9400|gpu-002:9400", gpu=~"0|1"})'
    assert len(viewer.data("query", query=panel, time=AT)["result"]) == 1


def test_lists(fleet: MadeFleet, viewer: Asking) -> None:
    names = viewer.data("label/__name__/values")
    assert {"up", "DCGM_FI_DEV_GPU_UTIL", "gpu_utilization_ratio"} <= set(names)
    assert names == sorted(names)
    labels = viewer.data("labels")
    assert {"__name__", "gpu", "UUID", "instance", "node", "cluster", "rack", "modelName"} <= set(labels)
    assert viewer.data("labels", limit=1) == ["Hostname"] or viewer.data("labels", limit=1) == ["UUID"]
    found = viewer.data("series", **{"match[]": ['up{node="gpu-001"}', "gpu_power_watts"]})
    assert len(found) == 1 + 4
    assert viewer.data("label/node/values", **{"match[]": 'up{node!="gpu-001"}'}) == ["gpu-002"]
    assert viewer.data("label/no_such_label/values") == []


def test_metadata(fleet: MadeFleet, viewer: Asking) -> None:
    found = viewer.data("metadata")
    assert found["gpu_temperature_celsius"][0]["unit"] == "celsius"
    assert found["DCGM_FI_DEV_GPU_TEMP"][0]["help"]
    assert found["up"][0]["type"] == "gauge"
    assert list(viewer.data("metadata", metric="up")) == ["up"]
    assert viewer.data("metadata", metric="no_such_metric") == {}
    assert viewer.data("status/buildinfo")["version"] == "2.42.0"


def test_a_series_ends_with_its_target(fleet: MadeFleet, viewer: Asking) -> None:
    last = NOW.timestamp() - 2
    assert len(viewer.data("query", query="gpu_power_watts", time=last + 299)["result"]) == 4
    assert viewer.data("query", query="gpu_power_watts", time=last + 301)["result"] == []
    assert len(viewer.data("query", query="up == 1", time=last)["result"]) == 2


def test_a_range_by_get_and_by_form(fleet: MadeFleet, viewer: Asking) -> None:
    asked = {"query": "sum(up)", "start": NOW.timestamp() - 600, "end": NOW.isoformat(), "step": "1m"}
    got = viewer.get("query_range", **asked)
    assert orjson.loads(got.content)["data"]["result"] == [
        {"metric": {}, "values": [[int(NOW.timestamp()) - 600 + 60 * n, "2"] for n in range(11)]}
    ]
    assert viewer.post("query_range", **asked).content == got.content
    mixed = viewer.client.post("/prometheus/api/v1/query?query=1", {"query": "2", "time": "0"}, headers=viewer.headers)
    assert orjson.loads(mixed.content)["data"] == {"resultType": "scalar", "result": [0, "2"]}


def test_other_kinds_of_answers(fleet: MadeFleet, viewer: Asking) -> None:
    assert viewer.data("query", query='"text"', time=1.5) == {"resultType": "string", "result": [1.5, "text"]}
    raw = viewer.data("query", query='up{node="gpu-001"}[2m]', time=NOW.timestamp())
    assert raw["resultType"] == "matrix"
    assert [point[1] for point in raw["result"][0]["values"]] == ["1", "1", "1"]
    now = viewer.data("query", query="time()")
    assert abs(float(now["result"][1]) - datetime.now(tz=UTC).timestamp()) < 60


@pytest.mark.parametrize(
    ("path", "status", "kind", "names"),
    [
        ("query", 400, "bad_data", "query"),
        ("query?query=sum(", 400, "bad_data", "query"),
        ("query?query=limitk(1,up)", 400, "bad_data", "limitk"),
        ("query?query=up&time=yesterday", 400, "bad_data", "time"),
        ("query?query=up&time=1e300", 400, "bad_data", "time"),
        ("query?query=up&time=-1", 400, "bad_data", "time"),
        ("query?query=up&timeout=0s", 400, "bad_data", "timeout"),
        ("query?query=up%00", 400, "bad_data", "NUL"),
        (f"query?query=up%2Bon()up&time={AT}", 422, "execution", "many-to-many"),
        ("query_range?query=up", 400, "bad_data", "start"),
        ("query_range?query=up&start=0&end=1", 400, "bad_data", "step"),
        ("query_range?query=up&start=0&end=1&step=0", 400, "bad_data", "step"),
        ("query_range?query=up&start=0&end=1&step=-5", 400, "bad_data", "step"),
        ("query_range?query=up&start=0&end=1&step=x", 400, "bad_data", "step"),
        ("query_range?query=up&start=0&end=1&step=9999y", 400, "bad_data", "step"),
        ("query_range?query=up&start=5&end=1&step=5", 400, "bad_data", "end"),
        ("query_range?query=up&start=0&end=99999&step=1", 400, "bad_data", "11,000 points"),
        ("query_range?query=up[5m]&start=0&end=1&step=1", 400, "bad_data", "range vector"),
        ("series", 400, "bad_data", "match[]"),
        ("series?match[]=up[5m]", 400, "bad_data", "match[]"),
        ("series?match[]={", 400, "bad_data", "query"),
        ("series?" + "&".join(["match[]=up"] * 51), 400, "bad_data", "50"),
        ("labels?limit=x", 400, "bad_data", "limit"),
        ("label/a-b/values", 400, "bad_data", "a-b"),
        ("rules", 404, "not_found", "rules"),
        ("label/%00/values", 400, "bad_data", "label"),
    ],
)
def test_every_wrong_question_is_told_what_is_wrong(
    fleet: MadeFleet, viewer: Asking, path: str, status: int, kind: str, names: str
) -> None:
    assert_error(viewer.get(path), status, kind, names)


def test_limits_are_typed(fleet: MadeFleet, viewer: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    assert_error(viewer.get("query?query=up&timeout=0.0000001"), 422, "timeout", "longer")
    monkeypatch.setattr(views, "LIMITS", Limits())
    monkeypatch.setattr(views, "LISTING", Limits(max_series=3))
    assert_error(viewer.get("labels"), 422, "execution", "more than 3 series")
    big = viewer.client.post(
        "/prometheus/api/v1/query", {"query": "x" * 1_100_000}, headers=viewer.headers,
        content_type="application/x-www-form-urlencoded",
    )  # fmt: skip
    assert_error(big, 413, "bad_data")


def test_more_queries_than_slots_are_told_to_come_again(
    fleet: MadeFleet, viewer: Asking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "SLOTS", BoundedSemaphore(1))
    monkeypatch.setattr(views, "WAIT_SECONDS", 0.01)
    for path in ("query?query=up", "query?query=sum(", "labels"):  # a slot is given back whatever the answer is
        assert viewer.get(path).status_code in (200, 400)
    with views.SLOTS:
        answer = viewer.get("query?query=up")
    assert_error(answer, 429, "execution", "Too many")
    assert answer["Retry-After"] == "1"
    assert viewer.get("query?query=up").status_code == 200


def test_replayed_clusters_are_seen_only_when_asked_for(fleet: MadeFleet, viewer: Asking) -> None:
    replay = Cluster.objects.create(name="replay", is_replay=True)
    node = Node.objects.create(cluster=replay, name="old-1")
    Target.objects.create(cluster=replay, node=node, url="http://old-1/metrics", created_at=NOW - timedelta(days=1))
    assert "old-1" not in viewer.data("label/node/values")
    assert viewer.data("label/node/values", **{"match[]": 'up{cluster="replay"}'}) == ["old-1"]


def test_numbers_are_spelt_as_prometheus_spells_them() -> None:
    spelt = {0.1: b"0.1", 3.0: b"3", 1e20: b"1" + b"0" * 20, 1e21: b"1e+21", 1e-6: b"0.000001", 1e-7: b"1e-07"}
    assert {value: number(value) for value in spelt} == spelt
    assert [number(value) for value in (float("nan"), float("inf"), -float("inf"), -0.0)] == [
        b"NaN", b"+Inf", b"-Inf", b"-0",
    ]  # fmt: skip


def test_rows_of_numbers_are_written_as_each_alone() -> None:
    for values in ([1.0, 2.5, 10.05, -3.0], [float("nan"), 1.0], [1e17, 1.0], [0.0]):
        times = np.arange(len(values), dtype=np.int64) * 500
        answer = result(Answer("matrix", [Row({"a": 'q"'}, times, np.array(values))]))
        points = orjson.loads(answer.content)["data"]["result"][0]["values"]
        assert points == [[at / 1000, number(value).decode()] for at, value in zip(times, values, strict=True)]
