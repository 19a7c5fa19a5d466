"""The description of the API: all its routes, and every status that each can answer with."""

from __future__ import annotations

from typing import Any

import pytest
from api_callers import Caller, body_of, stranger

from dashboards.api.router import api

METHODS = {"get", "post", "delete"}


@pytest.fixture
def document(db: None) -> dict[str, Any]:
    answer = stranger().get("openapi.json")
    assert answer.status_code == 200
    found: dict[str, Any] = body_of(answer)
    return found


def test_all_routes_of_the_contract(document: dict[str, Any]) -> None:
    verbs = ("acknowledge", "unacknowledge", "assign", "snooze", "comment", "label", "resolve", "reopen")
    wanted = {
        ("/fleet", "get"),
        ("/series", "get"),
        ("/incidents", "get"),
        ("/incidents/{incident_id}", "get"),
        ("/incidents/{incident_id}/events", "get"),
        *((f"/incidents/{{incident_id}}/{verb}", "post") for verb in verbs),
        ("/silences", "get"),
        ("/silences", "post"),
        ("/silences/{silence_id}/end", "post"),
        ("/maintenance", "get"),
        ("/maintenance", "post"),
        ("/maintenance/{window_id}/end", "post"),
        ("/targets", "get"),
        ("/availability", "get"),
        ("/trends", "get"),
        ("/nodes/{name}/expected-gpus", "post"),
    }
    found = {
        (path.removeprefix("/api/v1"), method)
        for path, operations in document["paths"].items()
        for method in operations
    }
    assert wanted <= found


def test_each_route_says_what_it_can_answer(document: dict[str, Any]) -> None:
    for path, operations in document["paths"].items():
        assert operations.keys() <= METHODS
        for method, operation in operations.items():
            statuses = set(operation["responses"])
            assert statuses >= {"401", "403", "405"}, path
            assert len(statuses & {"200", "201"}) == 1, path
            if method == "post" and "requestBody" in operation:
                assert statuses >= {"400", "413", "422"}, path
            if "/incidents/{" in path and method == "post":
                assert "409" in statuses, path
            if "{" in path:
                assert "404" in statuses, path
            if operation.get("parameters") and any(one["in"] == "query" for one in operation["parameters"]):
                assert "422" in statuses, path
            assert operation.get("security"), path
            assert operation["summary"], path


def test_errors_have_the_media_type_of_problems(document: dict[str, Any]) -> None:
    for operations in document["paths"].values():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                expected = "application/json" if status in ("200", "201") else "application/problem+json"
                assert list(answer["content"]) == [expected]


def test_references_point_somewhere(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")

    def walk(part: Any) -> None:
        if isinstance(part, dict):
            if "$ref" in part:
                at: Any = document
                for step in part["$ref"].removeprefix("#/").split("/"):
                    at = at[step]
            for value in part.values():
                walk(value)
        elif isinstance(part, list):
            for value in part:
                walk(value)

    walk(document)
    ids = [op["operationId"] for ops in document["paths"].values() for op in ops.values()]
    assert len(ids) == len(set(ids))


def test_the_description_holds_what_the_program_has(document: dict[str, Any], viewer: Caller) -> None:
    assert document == body_of(viewer.get("openapi.json"))
    assert document["info"]["version"] == api.version
