"""The inventory follows its sources: what is added, changed and gone, and what a source that fails does not change."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection
from serving import Handler, Server, Wire

from gpufleet.accounts.models import AuditEntry
from gpufleet.fleet.models import Target
from gpufleet.pipeline.sources import Sources
from gpufleet.scrape.models import SourceStatus

pytestmark = pytest.mark.django_db(transaction=True)
NOW = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
Serve = Callable[[Handler], Server]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Server] = []

    def start(handler: Handler) -> Server:
        servers.append(Server(handler))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def groups(*addresses: str, **labels: str) -> str:
    return json.dumps([{"targets": list(addresses), "labels": labels}])


def watched() -> dict[str, tuple[str, bool, str]]:
    """URL to (node, trusted, access) of what is scraped now."""
    rows = Target.objects.filter(removed_at=None).values_list("url", "node__name", "trusted", "access")
    return {url: (node, trusted, access) for url, node, trusted, access in rows}


def problems() -> dict[str, str]:
    return dict(SourceStatus.objects.exclude(problem="").values_list("name", "problem"))


class Folder:
    """A sources file with a list beside it, and the process that follows them."""

    def __init__(self, folder: Path) -> None:
        self.list = folder / "targets.json"
        self.file = folder / "sources.yml"
        self.sources = Sources()
        self.now = NOW

    def write(self, text: str) -> None:
        self.file.write_text(f"scrape_configs: [{text}]")

    def sync(self, seconds: float = 10) -> None:
        self.now += timedelta(seconds=seconds)
        self.sources.sync(str(self.file), self.now)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_a_list_is_followed_while_it_changes(folder: Folder) -> None:
    folder.write("{job_name: dcgm, file_sd_configs: [{files: ['*.json']}]}")
    folder.list.write_text(groups("10.0.0.1:9400", "10.0.0.2:9400"))
    folder.sync()
    assert watched() == {
        "http://10.0.0.1:9400/metrics": ("10.0.0.1", True, ""),
        "http://10.0.0.2:9400/metrics": ("10.0.0.2", True, ""),
    }
    folder.list.write_text(groups("10.0.0.2:9400", "10.0.0.3:9400", rack="r9"))
    folder.sync()
    assert sorted(watched()) == ["http://10.0.0.2:9400/metrics", "http://10.0.0.3:9400/metrics"]
    assert Target.objects.get(url__contains="0.0.2", removed_at=None).node.rack.name == "r9"
    assert problems() == {}


@pytest.mark.parametrize(
    "text", ['[{"targets": ["10.0.0.1:94', "", "[{}]", '{"targets": []}', '[{"targets": ["a b"]}]']
)
def test_a_broken_list_changes_nothing_and_says_so(folder: Folder, text: str) -> None:
    folder.write("{job_name: dcgm, file_sd_configs: [{files: [targets.json]}]}")
    folder.list.write_text(groups("10.0.0.1:9400"))
    folder.sync()
    before = watched()
    folder.list.write_text(text)
    folder.sync()
    assert watched() == before
    assert list(problems()) == ["sources/dcgm"]
    assert str(folder.list) in problems()["sources/dcgm"]
    # Neither does it for a process that never saw the list whole.
    folder.sources = Sources()
    folder.sync()
    assert watched() == before
    folder.list.write_text(groups("10.0.0.5:9400"))
    folder.sync()
    assert (list(watched()), problems()) == (["http://10.0.0.5:9400/metrics"], {})


def test_a_broken_sources_file_changes_nothing(folder: Folder) -> None:
    folder.write("{job_name: a, static_configs: [{targets: ['10.0.0.1:1']}]}")
    folder.sync()
    before = watched()
    for text in ("scrape_configs: [", "scrape_configs: [{job_name: a, scrape_interval: 5s}]"):
        folder.file.write_text(text)
        folder.sync()
        assert watched() == before
        assert list(problems()) == [str(folder.file)]
    folder.file.unlink()
    folder.sync()
    assert (watched(), list(problems())) == (before, [str(folder.file)])


def test_a_job_that_is_taken_out_takes_its_targets_along(folder: Folder) -> None:
    folder.write("{job_name: a, static_configs: [{targets: ['10.0.0.1:1']}]}, {job_name: b, static_configs: []}")
    folder.sync()
    folder.write("{job_name: b, static_configs: [{targets: ['10.0.0.2:1']}]}")
    folder.sync()
    assert list(watched()) == ["http://10.0.0.2:1/metrics"]
    assert sorted(SourceStatus.objects.values_list("name", flat=True)) == [str(folder.file), "sources/b"]


def test_other_targets_are_left_alone(folder: Folder) -> None:
    from gpufleet.fleet.actions import import_targets
    from gpufleet.scrape.discovery import parse_file_sd

    specs = parse_file_sd(groups("10.0.0.9:9400"), is_json=True)
    import_targets(specs, source="by-hand.json", actor="ops", now=NOW, trusted=True)
    folder.write("{job_name: a, static_configs: []}")
    folder.sync()
    assert list(watched()) == ["http://10.0.0.9:9400/metrics"]


def test_nothing_new_writes_nothing(folder: Folder) -> None:
    folder.write("{job_name: a, authorization: {credentials_file: t}, static_configs: [{targets: ['10.0.0.1:1']}]}")
    folder.sync()
    assert watched() == {"http://10.0.0.1:1/metrics": ("10.0.0.1", True, "a")}
    entries = AuditEntry.objects.count()
    folder.sync()
    folder.sources = Sources()
    folder.sync()
    assert AuditEntry.objects.count() == entries


def test_an_address_that_two_jobs_list_is_scraped_once(folder: Folder) -> None:
    job = "{{job_name: {0}, static_configs: [{{targets: ['10.0.0.1:1']}}]}}"
    folder.write(f"{job.format('a')}, {job.format('b')}")
    for _ in range(2):
        folder.sync()
        assert Target.objects.get(removed_at=None).job == "a"
        assert problems() == {"sources/b": "http://10.0.0.1:1/metrics is listed twice; the first place counts"}


def test_http_sd_is_asked_when_it_is_due_and_is_not_trusted(folder: Folder, serve: Serve) -> None:
    answers = [groups("10.0.0.1:9400"), "<html>", groups("10.0.0.2:9400")]

    async def listing(wire: Wire) -> None:
        await wire.answer(answers[len(server.requests) - 1].encode())

    server = serve(listing)
    folder.write(f"{{job_name: a, http_sd_configs: [{{url: '{server.url('/t')}', refresh_interval: 30s}}]}}")
    folder.sync()
    folder.sync()
    assert watched() == {"http://10.0.0.1:9400/metrics": ("10.0.0.1", False, "")}
    assert len(server.requests) == 1
    folder.sync(30)
    assert list(watched()) == ["http://10.0.0.1:9400/metrics"]
    assert list(problems()) == ["sources/a/http_sd"]
    folder.sync()
    assert (list(watched()), problems()) == (["http://10.0.0.2:9400/metrics"], {})


@pytest.mark.parametrize("status", ["500 Oops", "302 Found", "401 Unauthorized"])
def test_http_sd_that_fails_from_the_start(folder: Folder, serve: Serve, status: str) -> None:
    async def failing(wire: Wire) -> None:
        await wire.answer(b"[]", status)

    folder.write(f"{{job_name: a, http_sd_configs: [{{url: '{serve(failing).url('/t')}'}}]}}")
    folder.sync()
    assert watched() == {}
    assert list(problems()) == ["sources/a/http_sd"]


UP = b"""# TYPE up untyped
up{job="dcgm",instance="gpu-n01:9400",rack="r1"} 1 1700000000000
up{job="dcgm",instance="gpu-n02:9400"} 0 1700000000000
up{job="dcgm"} 1
broken{ 1
"""


def test_federation(folder: Folder, serve: Serve) -> None:
    answers = [UP, b"", UP[: UP.index(b'up{job="dcgm",instance="gpu-n02')]]

    async def listing(wire: Wire) -> None:
        await wire.answer(answers[len(server.requests) - 1])

    server = serve(listing)
    config = f"{{url: '{server.url('')}/', match: '{{job=\"dcgm\"}}', refresh_interval: 5s}}"
    folder.write(f"{{job_name: prometheus, federate_configs: [{config}]}}")
    folder.sync()
    assert server.requests == ["/federate?match%5B%5D=up%7Bjob%3D%22dcgm%22%7D"]
    found = {node: url for url, (node, _, _) in watched().items()}
    assert sorted(found) == ["gpu-n01", "gpu-n02"]
    assert found["gpu-n01"].startswith(server.url("/federate?match%5B%5D=%7Bjob%3D%22dcgm%22%2Cjob%3D%22dcgm%22"))
    assert "instance%3D%22gpu-n01%3A9400%22" in found["gpu-n01"]
    target = Target.objects.get(node__name="gpu-n01")
    assert (target.job, target.labels, target.node.rack.name) == ("dcgm", {"instance": "gpu-n01:9400"}, "r1")
    folder.sync()  # a server that has just started knows nothing yet: that is no reason to forget the fleet
    assert len(watched()) == 2
    assert list(problems()) == ["sources/prometheus"]
    folder.sync()
    assert (len(watched()), problems()) == (1, {})


MANY = b"""DCGM_FI_DEV_GPU_TEMP{job="dc",instance="prom:9",exported_instance="gpu-n01:9400",Hostname="gpu-n01"} 40 1
DCGM_FI_DEV_GPU_TEMP{job="dc",instance="prom:9",exported_instance="gpu-n01:9400",Hostname="gpu-n01",gpu="1"} 41 1
DCGM_FI_DEV_GPU_TEMP{job="dc",instance="prom:9",exported_instance="gpu-n02:9400",Hostname="localhost"} 42 1
DCGM_FI_DEV_GPU_TEMP{job="dc",instance="prom:9"} 43 1
"""


@pytest.mark.parametrize(
    ("label", "nodes"), [("exported_instance", ["gpu-n01", "gpu-n02"]), ("Hostname", ["gpu-n01", "prom"])]
)
def test_one_target_of_another_server_that_tells_of_many_nodes(
    folder: Folder, serve: Serve, label: str, nodes: list[str]
) -> None:
    answers = [MANY, MANY[: MANY.index(b"\n") + 1]]

    async def listing(wire: Wire) -> None:
        await wire.answer(answers[len(server.requests) - 1])

    server = serve(listing)
    config = f"{{url: '{server.url('')}', node_label: {label}, series: DCGM_FI_DEV_GPU_TEMP, refresh_interval: 5s}}"
    folder.write(f"{{job_name: p, federate_configs: [{config}]}}")
    folder.sync()
    assert server.requests == ["/federate?match%5B%5D=DCGM_FI_DEV_GPU_TEMP%7B%7D"]
    before = watched()
    assert sorted(node for node, _, _ in before.values()) == nodes
    found = {node: url for url, (node, _, _) in before.items()}
    assert f"{label}%3D%22gpu-n01" in found["gpu-n01"]
    # A node that sends nothing any more is down: it is not taken out.
    folder.sync()
    assert (watched(), problems()) == (before, {})
    folder.write("{job_name: other}")
    folder.sync()
    assert watched() == {}


def test_a_problem_does_not_show_what_an_address_asks_with(folder: Folder, serve: Serve) -> None:
    async def failing(wire: Wire) -> None:
        await wire.answer(b"", "500 Oops")

    folder.write(f"{{job_name: a, http_sd_configs: [{{url: '{serve(failing).url('/t')}?key=hush'}}]}}")
    folder.sync()
    (problem,) = problems().values()
    assert "/t: http status" in problem
    assert "hush" not in problem


def test_an_http_sd_answer_cannot_take_the_encryption_off(folder: Folder, serve: Serve) -> None:
    async def listing(wire: Wire) -> None:
        await wire.answer(groups("10.0.0.1:9400", __scheme__="http").encode())

    url = serve(listing).url("/t")
    folder.write(f"{{job_name: a, scheme: https, http_sd_configs: [{{url: '{url}'}}]}}")
    folder.sync()
    assert watched() == {}
    assert "asks for http where the job says https" in problems()["sources/a/http_sd"]


def test_two_processes_at_once(folder: Folder) -> None:
    folder.write("{job_name: a, static_configs: [{targets: ['10.0.0.1:1', '10.0.0.2:1']}]}")
    failed: list[Exception] = []

    def run() -> None:
        try:
            Sources().sync(str(folder.file), NOW)
        except Exception as error:  # noqa: BLE001 - shown below
            failed.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert failed == []
    assert len(watched()) == 2
