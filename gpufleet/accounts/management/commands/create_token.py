"""`manage.py create_token USER [--role ROLE] [--days N]`: prints an API token, once."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from gpufleet.accounts.models import Role, User
from gpufleet.accounts.tokens import TokenError, create_token
from gpufleet.core.times import utc_now


class Command(BaseCommand):
    help = "Makes an API token for a user and prints it. It cannot be read again."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", help="user name")
        parser.add_argument(
            "--role", choices=[role.value for role in Role], help="the token's role; the user's own by default"
        )
        parser.add_argument("--days", type=int, help="days until it expires; never by default")

    def handle(self, *args: Any, **options: Any) -> None:
        user = User.objects.filter(username=options["user"]).first()
        if user is None:
            names = ", ".join(User.objects.order_by("username").values_list("username", flat=True)) or "nobody yet"
            raise CommandError(f"There is no user {options['user']!r}; there is {names}.")
        try:
            text = create_token(user, now=utc_now(), role=options["role"], days=options["days"], actor=user.username)
        except TokenError as error:
            raise CommandError(f"No token was made: {error}.") from error
        self.stdout.write(text)
