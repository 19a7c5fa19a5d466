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
MAX_INSTANCES = 200_000


def listing_url(base: str, match: str) -> str:
    """Where `up` of every target that fits the label matchers `match` is read."""
    return f"{base.rstrip('/')}{PATH}?{urlencode({'match[]': 'up' + match})}"


def is_federated(url: str) -> bool:
    """Whether the body comes out of another server's memory."""
    return url.partition("?")[0].endswith(PATH)


def targets_of(base: str, match: str, body: bytes, access: str) -> list[TargetSpec]:
    """A target for each `instance` of each job in the answer. Raises DiscoveryError when it holds none.

    The node is the label `node`, else the host of `instance`. Labels rack, switch and cluster are taken over.
    """
    found: dict[tuple[str, str], TargetSpec] = {}
    for line in body.split(b"\n"):
        text = line.strip(careful.BLANKS)
        if not text or text.startswith(b"#"):
            continue
        try:
            labels = careful.parse_line(text, False).labels
        except careful.BadLine:
            continue
        job, instance = labels.get("job", ""), labels.get("instance", "")
        if instance:
            found[job, instance] = _spec(base, match, labels, access)
        if len(found) > MAX_INSTANCES:
            raise DiscoveryError(f"more than {MAX_INSTANCES} targets")
    if not found:
        raise DiscoveryError(f"the server knows no target that fits up{match}")
    return [found[key] for key in sorted(found)]


def _spec(base: str, match: str, labels: dict[str, str], access: str) -> TargetSpec:
    job, instance = labels.get("job", ""), labels["instance"]
    own = [("job", "=", job), ("instance", "=", instance), ("__name__", "!~", _OF_THE_SERVER)]
    parts = [match[1:-1].strip().rstrip(","), *(f'{name}{sign}"{_escaped(value)}"' for name, sign, value in own)]
    selector = "{" + ",".join(part for part in parts if part) + "}"
    url = f"{base.rstrip('/')}{PATH}?{urlencode({'match[]': selector})}"
    if len(url) > MAX_URL_CHARACTERS:
        raise DiscoveryError(f"the address for {instance[:100]} is longer than {MAX_URL_CHARACTERS} characters")
    return TargetSpec(
        url=url,
        node=(labels.get("node") or _host(instance))[:255],
        cluster=labels.get("cluster", "")[:63] or LIVE,
        rack=labels.get("rack", "")[:63],
        switch=labels.get("switch", "")[:63],
        job=job[:127],
        labels={"instance": instance[:1_024]},
        access=access,
    )


def _host(instance: str) -> str:
    """The host of `host:port`, of `[::1]:port`, or of an address that was made the instance."""
    bare = instance.partition("://")[2].partition("/")[0] or instance
    host, colon, port = bare.rpartition(":")
    return (host if colon and port.isdigit() else bare).strip("[]") or instance


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
