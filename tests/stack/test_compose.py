"""docker-compose.yml cannot rot: each service's own command and environment become healthy by its own check.

No container engine is needed: the commands run here, with addresses and ports swapped for free ones on loopback.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import compose
import pytest
from processes import ROOT, clean_environment

from gpufleet.environment import SETTINGS
from gpufleet.stack import postgres, valkey
from gpufleet.stack.ports import free_port

FILE = ROOT / "docker-compose.yml"
SECRETS = {
    name: f"{name.lower().replace('_', '')}0123456789abcdef"
    for name in ("POSTGRES_PASSWORD", "VALKEY_PASSWORD", "GPUFLEET_SECRET_KEY")
}
PORTS = ("5432", "6379", "8000", "8001", "9400")
HEALTHY_SECONDS = 60.0
VALKEY_CLI = """#!{python}
import os, sys, redis
port = int(sys.argv[sys.argv.index("-p") + 1])
print("PONG" if redis.Redis(port=port, password=os.environ["REDISCLI_AUTH"]).ping() else "")
"""


@pytest.mark.parametrize("missing", SECRETS)
def test_nothing_starts_without_its_secrets(missing: str) -> None:
    with pytest.raises(compose.Unset, match=f"set {missing} in .env"):
        compose.read(FILE, {name: value for name, value in SECRETS.items() if name != missing})


def test_no_secret_is_in_the_file_or_the_example() -> None:
    for path in (FILE, ROOT / ".env.example"):
        values = re.findall(r"(?m)(?:PASSWORD|SECRET_KEY|TOKEN)\w*[:=][ ]*(\S*)", path.read_text())
        assert [value for value in values if value and not value.startswith(("$", "?set"))] == []


def test_only_known_settings_are_named() -> None:
    known = {setting.name for setting in SETTINGS} | {"CELERY_SKIP_CHECKS"}
    for name, service in compose.read(FILE, SECRETS)["services"].items():
        if service.get("image") == "gpufleet":
            assert set(service.get("environment", {})) - known == set(), name


def test_every_process_is_there_and_none_runs_as_root_or_writes_its_image() -> None:
    services = compose.read(FILE, SECRETS)["services"]
    assert set(services) >= {
        *("postgres", "valkey", "migrate", "web", "live", "worker-scrape", "worker-detect", "worker-notify", "beat"),
        "simulator",
    }
    assert [name for name, service in services.items() if "demo" in service.get("profiles", [])] == [
        "simulator",
        "simulator-targets",
    ]
    for name, service in services.items():
        if service["image"] == "gpufleet":
            assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"]), name
    assert re.findall(r"(?m)^USER (\S+)$", (ROOT / "Dockerfile").read_text()) == ["10001"]


class Engine:
    """Runs services of the file on this machine."""

    def __init__(self, folder: Path) -> None:
        self.services: dict[str, Any] = compose.read(FILE, SECRETS)["services"]
        self._folder = folder
        self._swaps = {port: str(free_port()) for port in PORTS}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._cluster = postgres.cluster_for(folder, folder.name)
        (folder / "beat").mkdir()
        binaries = folder / "bin"
        binaries.mkdir(mode=0o755)
        (binaries / "valkey-cli").write_text(VALKEY_CLI.format(python=sys.executable))
        (binaries / "valkey-cli").chmod(0o755)
        (binaries / "valkey-server").symlink_to(valkey.server(1, "x").command[0])
        self._path = os.pathsep.join(
            (str(Path(sys.executable).parent), str(binaries), str(self._cluster.binaries), os.environ["PATH"])
        )

    def start(self, name: str) -> None:
        """Starts the service; one that has to end is waited for and must succeed."""
        service = self.services[name]
        log = (self._folder / f"{name}.log").open("wb")
        account = None
        if name == "postgres":
            postgres.create(self._cluster, SECRETS["POSTGRES_PASSWORD"])
            account = self._cluster.account
        with log:
            self._running[name] = subprocess.Popen(
                [self._swapped(word) for word in service["command"]],
                env=self._environment(service),
                cwd="/" if name == "postgres" else ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
                start_new_session=True,
            )
        if service.get("restart") == "no":
            assert self._running[name].wait(HEALTHY_SECONDS) == 0, self.said(name)

    def wait_until_healthy(self, name: str) -> None:
        command = [self._swapped(word) for word in compose.health_command(self.services[name])]
        until = time.monotonic() + HEALTHY_SECONDS
        while True:
            assert self._running[name].poll() is None, self.said(name)
            done = subprocess.run(
                command,
                env=self._environment(self.services[name]),
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode == 0:
                break
            assert time.monotonic() < until, f"{done.stdout}{done.stderr}\n{self.said(name)}"
            time.sleep(0.5)
        if name == "postgres":
            self._make_role()

    def healthy_after_stop(self, names: list[str]) -> list[str]:
        """Those whose check still succeeds once they have been stopped: a check that cannot fail is none."""
        for name in names:
            self._running[name].send_signal(signal.Signals[self.services[name].get("stop_signal", "SIGTERM")])
        for name in names:
            self._running[name].wait(9)  # the engine kills after ten seconds
        checks = {name: self._check(name) for name in names}
        return [name for name, check in checks.items() if check.wait(60) == 0]

    def _check(self, name: str) -> subprocess.Popen[bytes]:
        command = [self._swapped(word) for word in compose.health_command(self.services[name])]
        environment = self._environment(self.services[name])
        return subprocess.Popen(
            command, env=environment, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def said(self, name: str) -> str:
        return f"{name}:\n" + (self._folder / f"{name}.log").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        for name in reversed(self._running):
            process = self._running[name]
            if process.poll() is None:
                process.send_signal(2 if name == "postgres" else 15)
                try:
                    process.wait(15)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def _make_role(self) -> None:
        """What the image's own start-up does with POSTGRES_USER and POSTGRES_DB."""
        from gpufleet.stack.prepare import make_database

        port, password = int(self._swaps["5432"]), SECRETS["POSTGRES_PASSWORD"]
        make_database(
            postgres.address(postgres.SUPERUSER, password, port, "postgres"),
            postgres.address("gpufleet", password, port, "gpufleet"),
        )

    def _environment(self, service: Mapping[str, Any]) -> dict[str, str]:
        given = {name: self._swapped(str(value)) for name, value in service.get("environment", {}).items()}
        return {**clean_environment(), "PGDATA": str(self._cluster.folder), "LC_ALL": "C", **given, "PATH": self._path}

    def _swapped(self, text: str) -> str:
        for port, other in self._swaps.items():
            text = re.sub(rf"(?<!\d){port}(?!\d)", other, text)
        text = re.sub(r"(?<=[@/])(postgres|valkey|simulator)(?=:\d)", "127.0.0.1", text).replace("0.0.0.0", "127.0.0.1")  # noqa: S104
        return text.replace("/var/lib/gpufleet", str(self._folder / "beat"))


@pytest.fixture
def engine() -> Iterator[Engine]:
    folder = Path(tempfile.mkdtemp(prefix="gpufleet-test-"))
    folder.chmod(0o711)
    running = Engine(folder)
    yield running
    running.close()
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_every_service_becomes_healthy_by_its_own_check_and_only_while_it_runs(engine: Engine) -> None:
    services = engine.services
    for name in compose.in_order(services):
        for needed, rule in services[name].get("depends_on", {}).items():
            if rule["condition"] == "service_healthy":
                engine.wait_until_healthy(needed)
        engine.start(name)
    checked = [name for name in services if "healthcheck" in services[name]]
    assert set(services) - set(checked) == {"migrate", "simulator-targets"}
    for name in checked:
        engine.wait_until_healthy(name)
    servers = ["postgres", "valkey"]
    ours = [name for name in checked if name not in servers and name != "beat"]  # beat is judged by age: 120 s
    assert engine.healthy_after_stop(ours) == []
    assert [name for name in ours if "SIGKILL" in engine.said(name)] == []
    assert engine.healthy_after_stop(servers) == []
