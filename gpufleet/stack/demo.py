"""`bin/demo`: all of gpufleet on this machine, as one supervised group."""

from __future__ import annotations

import time
from collections.abc import Mapping

from gpufleet.stack import layout, plan, postgres, valkey
from gpufleet.stack.console import Console
from gpufleet.stack.folder import DataFolder
from gpufleet.stack.options import Options
from gpufleet.stack.plan import Plan
from gpufleet.stack.ports import require_free
from gpufleet.stack.problems import StackError
from gpufleet.stack.supervisor import Supervisor, UnitFailed
from gpufleet.stack.units import Unit


def run(options: Options, console: Console) -> int:
    """Starts everything and stays until a signal. Raises StackError with one sentence when it cannot."""
    began = time.time()
    folder = DataFolder(options.data)
    require_free(options.host, options.port)
    made = plan.make(options, folder)
    folder.write_secret("env", plan.as_shell(made.environment))
    _tell_start(made, console)
    demo = _Demo(made, folder, console)
    cluster = postgres.cluster_for(options.data, made.mark) if made.database_embedded else None
    supervisor = Supervisor(_units(made, cluster, console, began), console, demo)
    try:
        return supervisor.run()
    except UnitFailed as failure:
        if failure.name == "postgres" and cluster is not None:
            raise postgres.explain(cluster, failure.said) from failure
        raise failure.explained(options.data) from failure
    finally:
        demo.processes_changed({})
        folder.close()


class _Demo:
    """Hears from the supervisor: keeps demo.json right and tells the person what is ready."""

    def __init__(self, made: Plan, folder: DataFolder, console: Console) -> None:
        self._plan = made
        self._folder = folder
        self._console = console
        self._web_ready = self._preparing = self._prepared = self._welcomed = False
        self._first_start = not (folder.path / "users.json").exists()

    def processes_changed(self, processes: Mapping[str, int]) -> None:
        self._prepared = self._prepared or (self._preparing and "prepare" not in processes)
        self._preparing = "prepare" in processes
        self._welcome()
        try:
            self._folder.write_json("demo.json", self._record(processes))
        except StackError as error:  # a full disk must not end what still runs
            self._console.say(str(error))

    def _record(self, processes: Mapping[str, int]) -> dict[str, object]:
        made = self._plan
        return {
            "url": made.url,
            "live_port": made.ports.live,
            "simulator_url": made.simulator_url if made.options.simulator else None,
            "interval_seconds": made.options.interval_seconds,
            "nodes": made.options.nodes if made.options.simulator else None,
            "postgres_port": made.ports.postgres if made.database_embedded else None,
            "valkey_port": made.ports.valkey if made.broker_embedded else None,
            "pids": dict(processes),
        }

    def ready(self, name: str, seconds: float) -> None:
        if name != "first-look":  # it speaks for itself
            self._console.say(f"{name} is ready ({seconds:.1f} s)")
        self._web_ready = self._web_ready or name == "web"
        self._welcome()

    def _welcome(self) -> None:
        """Once the pages answer and everybody can sign in."""
        if self._web_ready and self._prepared and not self._welcomed:
            self._welcomed = True
            self._console.block(self._addresses())

    def _addresses(self) -> str:
        made, people = self._plan, self._folder.read_json("users.json")
        lines = ["", f"  gpufleet    {made.url}"]
        if made.options.simulator:
            lines.append(f"  simulator   {made.simulator_url}")
        for name, person in people.items():
            secret = person["password"] if self._first_start else "(unchanged)"
            lines.append(f"  {name:<11} {secret}")
        lines.append(f"  Passwords are kept in {self._folder.path / 'users.json'} and shown at the first start only.")
        lines.append(f"  API token   {self._folder.path / 'api-token'}")
        lines.append("  Ctrl-C stops everything; the data stays.")
        return "\n".join([*lines, ""])


def _units(made: Plan, cluster: postgres.Cluster | None, console: Console, began: float) -> list[Unit]:
    """All units; raises StackError when the cluster cannot be made or used."""
    environment = {**made.environment, "PYTHONUNBUFFERED": "1"}
    prepare_environment = dict(environment)
    servers: list[Unit] = []
    if cluster is not None:
        started = time.monotonic()
        if postgres.create(cluster, made.superuser_password):
            console.say(f"made a PostgreSQL cluster in {cluster.folder} ({time.monotonic() - started:.1f} s)")
        servers.append(postgres.server(cluster, made.ports.postgres))
        prepare_environment["STACK_SUPERUSER_URL"] = postgres.address(
            postgres.SUPERUSER, made.superuser_password, made.ports.postgres, "postgres"
        )
    if made.broker_embedded:
        servers.append(valkey.server(made.ports.valkey, made.broker_password))
    units = [*servers, layout.prepare_unit(made, prepare_environment, tuple(unit.name for unit in servers))]
    if made.options.simulator:
        units.append(layout.simulator_unit(made))
    units += [*layout.worker_units(made.options.data, environment), *layout.web_units(made, environment)]
    if made.options.simulator or made.options.targets is not None:
        units.append(layout.first_look_unit(made, began))
    return units


def _tell_start(made: Plan, console: Console) -> None:
    options = made.options
    console.say(f"starting, data in {options.data}")
    if not made.database_embedded:
        console.say("using the PostgreSQL that DATABASE_URL names")
    if not made.broker_embedded:
        console.say("using the Valkey or Redis that BROKER_URL names")
