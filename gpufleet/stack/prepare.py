"""Makes the database ready for the processes: schema, people, API token, targets. One process, run as a job.

`python -m gpufleet.stack.prepare DATA [--targets-url URL | --targets FILE] [--history DAYS --nodes N]`.
Safe to run again: it adds what is missing.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import secrets
import sys
from pathlib import Path

import django
import psycopg
from psycopg import sql

from gpufleet.stack import history, simulated_targets
from gpufleet.stack.folder import write_secret
from gpufleet.stack.layout import MIGRATED
from gpufleet.stack.problems import StackError

SIMULATED = "simulator-targets.json"
ROLES = ("viewer", "responder", "manager", "admin")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--targets-url")
    parser.add_argument("--targets", type=Path)
    parser.add_argument("--history", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=0)
    options = parser.parse_args()
    try:
        superuser = os.environ.pop("STACK_SUPERUSER_URL", "")
        if superuser:
            make_database(superuser, os.environ["DATABASE_URL"])
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "gpufleet.settings")
        django.setup()
        _migrate()
        print(MIGRATED, flush=True)
        if options.history:
            # Before anything is watched: the record ends where scraping begins.
            history.take_in(options.data, options.history, options.nodes)
        watch(options.data, options.targets, options.targets_url)
        _ask_for_a_cycle()
        make_people(options.data)
        make_token(options.data)
    except StackError as error:
        print(error, flush=True)
        return 1
    return 0


def make_database(superuser_url: str, url: str) -> None:
    """Makes the role and the database that `url` names; the role owns it and is no superuser."""
    wanted = psycopg.conninfo.conninfo_to_dict(url)
    user, password, name = (str(wanted[key]) for key in ("user", "password", "dbname"))
    with psycopg.connect(superuser_url, autocommit=True) as connection:
        known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [user]).fetchone()
        verb = sql.SQL("ALTER" if known else "CREATE")
        connection.execute(
            sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(verb, sql.Identifier(user), sql.Literal(password))
        )
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone():
            connection.execute(
                sql.SQL("CREATE DATABASE {} OWNER {}").format(sql.Identifier(name), sql.Identifier(user))
            )


def make_people(data: Path) -> None:
    """One person a role, each with a password of its own, kept in users.json. Who exists already stays untouched."""
    from gpufleet.accounts.models import User

    path = data / "users.json"
    people: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.exists() else {}
    missing = [role for role in ROLES if not User.objects.filter(username=role).exists()]
    for role in missing:
        people.setdefault(role, {"password": secrets.token_urlsafe(12), "role": role})
    if missing:
        write_secret(path, json.dumps(people, indent=2) + "\n")
    for role in missing:
        User.objects.create_user(username=role, password=people[role]["password"], role=role)
        print(f"made the user {role}", flush=True)


def make_token(data: Path) -> None:
    """An administrator's API token in `api-token`, made once."""
    from gpufleet.accounts.models import ApiToken

    path = data / "api-token"
    if path.exists() and ApiToken.objects.filter(user__username="admin", revoked_at=None).exists():
        return
    written = _call("create_token", "admin")
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    if not lines:
        raise StackError("create_token printed no token.")
    write_secret(path, lines[-1].split()[-1] + "\n")


def watch(data: Path, targets: Path | None, targets_url: str | None) -> None:
    """Watches the file, the simulated fleet, or what was watched before; a simulated fleet that is left is dropped."""
    simulated = data / SIMULATED
    if targets_url and targets is None:
        _import_targets(simulated_targets.fetch(targets_url, simulated))
    elif simulated.exists():
        _import_targets(write_secret(simulated, "[]\n"))
        simulated.unlink()
    if targets is not None:
        _import_targets(targets)


def _migrate() -> None:
    from django.core.management import call_command

    call_command("migrate", interactive=False, verbosity=0)
    from gpufleet.core.times import utc_now
    from gpufleet.store.partitions import keep_partitions

    keep_partitions(utc_now())  # the first scrape comes before the first run of the periodic job


def _import_targets(path: Path) -> None:
    """The file is the whole list of its name: what it no longer holds is no longer watched."""
    print(_call("import_targets", str(path), "--prune").strip(), flush=True)


def _call(command: str, *arguments: str) -> str:
    """What the product's own command prints. Raises StackError with its sentence when it refuses."""
    from django.core.management import CommandError, call_command

    out = io.StringIO()
    try:
        call_command(command, *arguments, stdout=out)
    except CommandError as error:
        raise StackError(f"{command}: {error}") from error
    return out.getvalue()


def _ask_for_a_cycle() -> None:
    """The first cycle need not wait for the clock: whoever scrapes finds it in its queue."""
    from gpufleet.celery import app

    app.send_task("pipeline.tick", queue="scrape", expires=30, ignore_result=True)


if __name__ == "__main__":
    sys.exit(main())
