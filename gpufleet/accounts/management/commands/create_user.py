"""`manage.py create_user NAME --role ROLE [--generate]`: the first user of a new installation, and every later one."""

from __future__ import annotations

import getpass
import secrets
import sys
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import IntegrityError

from gpufleet.accounts.actions import create_user
from gpufleet.accounts.models import Role, User
from gpufleet.core.times import utc_now

GENERATED_BYTES = 15  # 20 letters and digits
LONGEST_PASSWORD = 1024


class Command(BaseCommand):
    help = (
        "Makes a user. The password is asked for at a terminal, or is the first line of the standard input; "
        "with --generate a random one is made and printed once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("name", help="user name")
        parser.add_argument("--role", required=True, choices=[role.value for role in Role], help="what it may do")
        parser.add_argument("--email", default="", help="address, where there is one")
        parser.add_argument("--generate", action="store_true", help="make a random password and print it once")

    def handle(self, *args: Any, **options: Any) -> None:
        name = options["name"]
        self._check(name, options["email"])
        password = secrets.token_urlsafe(GENERATED_BYTES) if options["generate"] else read_password()
        try:
            create_user(name, options["role"], password, now=utc_now(), email=options["email"])
        except ValidationError as error:
            raise CommandError(f"No user was made: {' '.join(error.messages)}") from error
        except IntegrityError as error:
            raise CommandError(f"No user was made: there is a user {name!r} already.") from error
        if options["generate"]:
            self.stdout.write(password)
        else:
            self.stdout.write(f"made the user {name}, {options['role']}")

    def _check(self, name: str, email: str) -> None:
        """Before a password is asked for: whether name and address can be."""
        if User.objects.filter(username=name).exists():
            raise CommandError(f"No user was made: there is a user {name!r} already.")
        user = User(username=name, email=email)
        try:
            user.clean_fields(exclude=["password"])
        except ValidationError as error:
            raise CommandError(f"No user was made: {' '.join(error.messages)}") from error


def read_password() -> str:
    """Asked for twice at a terminal, else the first line of the standard input. Raises CommandError without one."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline(LONGEST_PASSWORD + 2).rstrip("\r\n")
        if len(line) > LONGEST_PASSWORD:
            raise CommandError(f"No user was made: the password has more than {LONGEST_PASSWORD} characters.")
        if not line:
            raise CommandError("No user was made: the standard input holds no password (or use --generate).")
        return line
    password = getpass.getpass("Password: ")
    if password != getpass.getpass("Again: "):
        raise CommandError("No user was made: the two passwords differ.")
    return password
