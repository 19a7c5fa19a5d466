"""How the address of a target is shown: never with a password or a token in it."""

from __future__ import annotations

import re
from urllib.parse import urlsplit, urlunsplit

HIDDEN = "***"
_SECRET = re.compile(r"token|secret|passw|pwd|auth|api_?key|access_?key|^key$|^sig(nature)?$|credential", re.IGNORECASE)


def shown_url(url: str) -> str:
    """The address without user and password, and with the values of query parameters that name a secret hidden.

    What cannot be taken apart is hidden whole: it might be anything.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    place = parts.netloc.rpartition("@")[2]
    pairs = [pair.partition("=") for pair in parts.query.split("&")] if parts.query else []
    query = "&".join(
        f"{name}={HIDDEN}" if _SECRET.search(name) else f"{name}{equals}{value}" for name, equals, value in pairs
    )
    return urlunsplit((parts.scheme, place, parts.path, query, ""))
