"""Targets that another Prometheus-compatible server scrapes: each becomes a target of ours, read through `/federate`.

One address a target, so that a shard, a failure and a time-out are those of one target, as everywhere else.
"""

from __future__ import annotations

from urllib.parse import urlencode

from gpufleet.fleet.models import LIVE
from gpufleet.fleet.specs import TargetSpec
from gpufleet.scrape import careful
from gpufleet.scrape.discovery import MAX_URL_CHARACTERS, DiscoveryError

PATH = "/federate"
# What the server itself says about a scrape; it goes on when the target is down, and would pass for an answer.
_OF_THE_SERVER = "up|scrape_.+|ALERTS.*"
_NO_NAMES = frozenset({"localhost", "localhost.localdomain", "127.0.0.1", "::1"})
MAX_INSTANCES = 200_000


def listing_url(base: str, match: str, series: str = "up") -> str:
    """Where `series` of every target that fits the label matchers `match` is read."""
    return f"{base.rstrip('/')}{PATH}?{urlencode({'match[]': series + match})}"


def is_federated(url: str) -> bool:
    """Whether the body comes out of another server's memory."""
    return url.partition("?")[0].endswith(PATH)


def targets_of(base: str, match: str, body: bytes, access: str, node_label: str = "") -> list[TargetSpec]:
    """A target for each `instance` of each job in the answer. Raises DiscoveryError when it holds none.

    The node is the label `node`, else the host of `instance`. Labels rack, switch and cluster are taken over. With a
    `node_label` each of its values is a node, and a target of its own with the series that have the value.
    """
    found: dict[tuple[str, str, str], TargetSpec] = {}
    for line in body.split(b"\n"):
        text = line.strip(careful.BLANKS)
        if not text or text.startswith(b"#"):
            continue
        try:
            labels = careful.parse_line(text, False).labels
        except careful.BadLine:
            continue
        job, instance = labels.get("job", ""), labels.get("instance", "")
        named = labels.get(node_label, "") if node_label else instance
        if instance and named and (job, instance, named) not in found:
            found[job, instance, named] = _spec(base, match, labels, access, node_label)
        if len(found) > MAX_INSTANCES:
            raise DiscoveryError(f"more than {MAX_INSTANCES} targets")
    if not found:
        also = f" and has the label {node_label}" if node_label else ""
        raise DiscoveryError(f"the server knows no target that fits {match}{also}")
    return [found[key] for key in sorted(found)]


def _spec(base: str, match: str, labels: dict[str, str], access: str, node_label: str) -> TargetSpec:
    job, instance = labels.get("job", ""), labels["instance"]
    own = [("job", "=", job), ("instance", "=", instance), ("__name__", "!~", _OF_THE_SERVER)]
    if node_label:
        own.append((node_label, "=", labels[node_label]))
    parts = [match[1:-1].strip().rstrip(","), *(f'{name}{sign}"{_escaped(value)}"' for name, sign, value in own)]
    selector = "{" + ",".join(part for part in parts if part) + "}"
    url = f"{base.rstrip('/')}{PATH}?{urlencode({'match[]': selector})}"
    if len(url) > MAX_URL_CHARACTERS:
        raise DiscoveryError(f"the address for {instance[:100]} is longer than {MAX_URL_CHARACTERS} characters")
    return TargetSpec(
        url=url,
        node=_node(labels, node_label)[:255],
        cluster=labels.get("cluster", "")[:63] or LIVE,
        rack=labels.get("rack", "")[:63],
        switch=labels.get("switch", "")[:63],
        job=job[:127],
        labels={name: labels[name][:1_024] for name in ("instance", node_label) if name},
        access=access,
    )


def _node(labels: dict[str, str], node_label: str) -> str:
    """The name of the node. An exporter that calls itself localhost is where the other server found it."""
    named = _host(labels[node_label]) if node_label else labels.get("node", "")
    return named if named and named not in _NO_NAMES else _host(labels["instance"])


def _host(instance: str) -> str:
    """The host of `host:port`, of `[::1]:port`, or of an address that was made the instance."""
    bare = instance.partition("://")[2].partition("/")[0] or instance
    host, colon, port = bare.rpartition(":")
    return (host if colon and port.isdigit() else bare).strip("[]") or instance


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
