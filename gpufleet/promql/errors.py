"""Why a query has no answer. `kind` and `status` are those of Prometheus' HTTP API."""

from __future__ import annotations


class PromqlError(Exception):
    """A query that cannot be answered; the message is for the person who wrote it."""

    kind = "execution"
    status = 422


class BadQuery(PromqlError):
    """The query cannot be read, or uses what is not supported: the message names it."""

    kind = "bad_data"
    status = 400


class ExecutionFailed(PromqlError):
    """The query was read, but not for these data: an ambiguous match, a limit that was reached."""


class QueryTimeout(PromqlError):
    """The query took longer than it may."""

    kind = "timeout"
