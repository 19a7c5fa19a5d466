"""Asks a running gpufleet everything that Grafana asks to open a dashboard: its variables, then each panel's queries.

    python bench/grafana_dashboard.py DASHBOARD.json [--url http://127.0.0.1:8000] [--token-file DIR/api-token]

Prints the series and points that each panel got and how long it took, and fails when a panel has no data.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

SPAN, STEP = 900, 15
LABEL_VALUES = re.compile(r"label_values\((?:(?P<selector>.+),\s*)?(?P<label>\w+)\)")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("dashboard", type=Path)
    options.add_argument("--url", default="http://127.0.0.1:8000")
    options.add_argument("--token-file", type=Path, required=True)
    chosen = options.parse_args()
    source = Source(f"{chosen.url}/prometheus/api/v1/", chosen.token_file.read_text().strip())
    dashboard = json.loads(chosen.dashboard.read_text(encoding="utf-8"))
    variables = {one["name"]: source.variable(one) for one in dashboard["templating"]["list"] if one["type"] == "query"}
    for name, values in variables.items():
        print(f"${name}: {len(values)} values, {values[:3]}")
    without = [panel["title"] for panel in dashboard["panels"] if not source.shows(panel, variables)]
    print(f"without data: {', '.join(without)}" if without else "every panel has data")
    return 1 if without else 0


class Source:
    """A Prometheus data source with basic authentication, as Grafana is set up."""

    def __init__(self, base: str, token: str) -> None:
        self._base = base
        self._headers = {"Authorization": "Basic " + b64encode(f"grafana:{token}".encode()).decode()}

    def ask(self, path: str, form: dict[str, Any] | None = None) -> Any:
        body = None if form is None else urlencode(form, doseq=True).encode()
        try:
            with urlopen(Request(self._base + path, body, self._headers), timeout=60) as answer:
                return json.load(answer)["data"]
        except HTTPError as error:
            sys.exit(f"{path}: {error.read().decode()[:500]}")

    def variable(self, one: dict[str, Any]) -> list[str]:
        query = one["query"] if isinstance(one["query"], str) else one["query"]["query"]
        asked = LABEL_VALUES.fullmatch(query)
        if asked is None:
            sys.exit(f"${one['name']}: {query} is no label_values()")
        now = time.time()
        given = {"start": now - SPAN, "end": now}
        if asked["selector"]:
            given["match[]"] = asked["selector"]
        return self.ask(f"label/{quote(asked['label'])}/values?{urlencode(given)}")

    def shows(self, panel: dict[str, Any], variables: dict[str, list[str]]) -> bool:
        good = True
        for target in panel.get("targets", []):
            query = target["expr"]
            for name, values in variables.items():
                query = query.replace(f"${name}", "(" + "|".join(map(_escaped, values)) + ")")
            end = time.time() // STEP * STEP
            began = time.perf_counter()
            found = self.ask("query_range", {"query": query, "start": end - SPAN, "end": end, "step": STEP})["result"]
            took = time.perf_counter() - began
            points = sum(len(series["values"]) for series in found)
            print(
                f"{panel['title']:32} {len(found):5} series {points:7} points {took * 1000:7.0f} ms  {target['expr']}"
            )
            good &= points > 0
        return good


def _escaped(value: str) -> str:
    """A value inside a regular expression inside quotes, as Grafana writes it."""
    return re.sub(r"[$^*{}\[\]'+?.()|\\]", lambda found: "\\\\" + found[0], value)


if __name__ == "__main__":
    sys.exit(main())
