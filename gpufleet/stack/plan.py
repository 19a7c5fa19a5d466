"""What a demo will be: ports, addresses, secrets and the environment of its processes, decided before anything runs."""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpufleet.environment import SettingError
from gpufleet.environment import read as read_settings
from gpufleet.stack import postgres, valkey
from gpufleet.stack.folder import STATE_NAME, DataFolder, new_password
from gpufleet.stack.options import Options
from gpufleet.stack.ports import LOOPBACK, free_port, is_free, local_names
from gpufleet.stack.problems import StackError

DATABASE = "gpufleet"
WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - what a person may ask for


@dataclass(frozen=True, slots=True)
class Ports:
    """Where the parts listen. `live` and `web` are on the host of the options, the others on loopback."""

    web: int
    live: int
    simulator: int
    postgres: int
    valkey: int


@dataclass(frozen=True, slots=True)
class Plan:
    """One start of the demo. A `.._embedded` server is ours; else the caller's environment names one."""

    options: Options
    ports: Ports
    mark: str
    superuser_password: str
    broker_password: str
    database_embedded: bool
    broker_embedded: bool
    environment: Mapping[str, str]

    @property
    def url(self) -> str:
        """Address of the pages."""
        return self.environment["GPUFLEET_BASE_URL"]

    @property
    def simulator_url(self) -> str:
        return f"http://{LOOPBACK}:{self.ports.simulator}"


def make(options: Options, folder: DataFolder) -> Plan:
    """The plan for an opened data folder; what must stay the same at the next start is kept in it."""
    state = folder.state(_new_state())
    ports = _ports(options, state["ports"])
    kept = {name: getattr(ports, name) for name in ("live", "simulator", "postgres", "valkey")}
    folder.write_json(STATE_NAME, {**state, "ports": kept})
    database = postgres.address(DATABASE, state["database_password"], ports.postgres, DATABASE)
    broker = valkey.address(state["broker_password"], ports.valkey)
    given_database, given_broker = os.environ.get("DATABASE_URL", ""), os.environ.get("BROKER_URL", "")
    # A shell that has sourced DIR/env names our own servers, perhaps at the ports of an earlier start.
    database_embedded = not given_database or state["database_password"] in given_database
    broker_embedded = not given_broker or state["broker_password"] in given_broker
    addresses = {
        "DATABASE_URL": database if database_embedded else given_database,
        "BROKER_URL": broker if broker_embedded else given_broker,
    }
    environment = {**_environment(options, ports, state["secret_key"]), **addresses}
    try:
        read_settings(environment)
    except SettingError as error:
        raise StackError(str(error)) from error
    return Plan(
        options=options,
        ports=ports,
        mark=state["mark"],
        superuser_password=state["superuser_password"],
        broker_password=state["broker_password"],
        database_embedded=database_embedded,
        broker_embedded=broker_embedded,
        environment=environment,
    )


def as_shell(environment: Mapping[str, str]) -> str:
    """Text of DIR/env."""
    lines = [f"export {name}={shlex.quote(value)}\n" for name, value in sorted(environment.items())]
    return "# Source this to run manage.py beside the demo.\n" + "".join(lines)


def _new_state() -> dict[str, Any]:
    return {
        "mark": secrets.token_hex(8),
        "superuser_password": new_password(),
        "database_password": new_password(),
        "broker_password": new_password(),
        "secret_key": secrets.token_urlsafe(48),
        "ports": {},
    }


def _ports(options: Options, before: Mapping[str, int]) -> Ports:
    """The ports of the last start where they are still free, others where they are not."""
    hosts = {"live": options.host, "simulator": LOOPBACK, "postgres": LOOPBACK, "valkey": LOOPBACK}
    chosen: dict[str, int] = {}
    for name, host in hosts.items():
        port = before.get(name)
        taken = {options.port, *chosen.values()}
        while port is None or port in taken or not is_free(host, port):
            port = free_port(host)
        chosen[name] = port
    return Ports(web=options.port, **chosen)


def _environment(options: Options, ports: Ports, secret_key: str) -> dict[str, str]:
    """Settings of every process. The caller's own GPUFLEET_* settings win, but for what the options say."""
    names = local_names() if options.host in WILDCARDS else [options.host]
    host = names[0] if options.host in WILDCARDS else options.host
    bracketed = f"[{host}]" if ":" in host and not host.startswith("[") else host
    defaults = {
        "GPUFLEET_SECRET_KEY": secret_key,
        "GPUFLEET_BASE_URL": f"http://{bracketed}:{ports.web}",
        "GPUFLEET_ALLOWED_HOSTS": ",".join(dict.fromkeys(["localhost", LOOPBACK, "[::1]", *names])),
    }
    given = {name: value for name, value in os.environ.items() if name.startswith("GPUFLEET_")}
    fixed = {
        "GPUFLEET_LIVE_PORT": str(ports.live),
        "GPUFLEET_INTERVAL_SECONDS": str(options.interval_seconds),
    }
    return {**defaults, **given, **fixed}
