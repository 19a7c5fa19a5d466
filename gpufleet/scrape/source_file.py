"""Reads the file of sources: the part of Prometheus' `scrape_configs` that says where targets are and how to ask them.

Every operator has such a file. What is not understood is refused by name: a key that was skipped in silence would
scrape something else than its author meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
import yaml

from gpufleet.fleet.specs import TargetSpec
from gpufleet.scrape.access import PLAIN, Access
from gpufleet.scrape.discovery import SAFE_LOADER, DiscoveryError, parse_groups, read_text, read_yaml

log = structlog.get_logger(__name__)

MAX_JOBS = 1_000
REFRESH_SECONDS = 60.0
LEAST_REFRESH_SECONDS = 5.0

_ACCESS_KEYS = frozenset({"basic_auth", "authorization", "tls_config"})
_JOB_KEYS = _ACCESS_KEYS | {
    *("job_name", "scheme", "metrics_path", "params", "honor_labels"),
    *("static_configs", "file_sd_configs", "http_sd_configs", "federate_configs"),
}
_REFUSED = {
    "scrape_interval": "every target is scraped once an interval, see GPUFLEET_INTERVAL_SECONDS",
    "scrape_timeout": "the time-out follows GPUFLEET_INTERVAL_SECONDS",
    "relabel_configs": "write the labels into static_configs, file_sd or http_sd",
    "metric_relabel_configs": "the catalogue knows what each exporter sends",
    "bearer_token": "secrets are named by file: authorization with credentials_file",
    "bearer_token_file": "write authorization with credentials_file",
    "password": "secrets are named by file: password_file",
    "credentials": "secrets are named by file: credentials_file",
    "oauth2": "use authorization with credentials_file",
    "proxy_url": "targets are asked directly",
}
_SERIES = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_DURATION = re.compile(r"(\d+)(ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class HttpSource:
    """A URL that lists targets (http_sd), asked again after `refresh_seconds`."""

    url: str
    refresh_seconds: float
    access: Access


@dataclass(frozen=True, slots=True)
class Federation:
    """A Prometheus-compatible server at `url` whose series `match` come from targets that it scrapes.

    With a `node_label` one of its targets may tell of many nodes: `series`, a metric that has this label, lists them.
    """

    url: str
    match: str
    refresh_seconds: float
    series: str = "up"
    node_label: str = ""


@dataclass(frozen=True, slots=True)
class SourceJob:
    """One job. `defaults` are the labels that its lists of targets start from."""

    name: str
    access: Access = PLAIN
    defaults: Mapping[str, str] = field(default_factory=dict)
    targets: tuple[TargetSpec, ...] = ()
    files: tuple[str, ...] = ()
    http: tuple[HttpSource, ...] = ()
    federations: tuple[Federation, ...] = ()


class _Table(dict[Any, Any]):
    """A table that knows on which line each of its keys stands."""

    lines: Mapping[str, int]


class _Loader(SAFE_LOADER):  # type: ignore[misc]
    """Reads tables with their lines, and refuses a key that stands there twice: the first would count for nothing."""

    def table(self, node: yaml.MappingNode) -> Iterator[_Table]:
        found = _Table()
        yield found
        lines: dict[str, int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode) and key.value != "<<"):
            if key.value in lines:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} stands there twice", key.start_mark)
            lines[key.value] = key.start_mark.line + 1
        found.update(self.construct_mapping(node))
        found.lines = lines


_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.table)


def read_sources(path: Path) -> list[SourceJob]:
    """The jobs of a file. Raises DiscoveryError with the file and the place in it."""
    try:
        jobs = parse_sources(read_text(path))
    except DiscoveryError as error:
        raise DiscoveryError(f"{path}: {error}") from error
    folder = path.absolute().parent
    return [_rooted(job, folder) for job in jobs]


def access_of(jobs: Iterable[SourceJob]) -> dict[str, Access]:
    """How to ask, by the name of the job; jobs that need nothing are left out."""
    return {job.name: job.access for job in jobs if job.access != PLAIN}


class AccessFile:
    """How to ask by the newest readable state of the file of sources. Looks at the file each time it is called."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._known: dict[str, Access] = {}

    def __call__(self) -> Mapping[str, Access]:
        if not self._path:
            return {}
        try:
            stat = Path(self._path).stat()
            if (stat.st_mtime_ns, stat.st_size) != self._seen:
                self._known = access_of(read_sources(Path(self._path)))
                self._seen = stat.st_mtime_ns, stat.st_size
        except (DiscoveryError, OSError) as error:
            log.error("the file of sources cannot be read; what it said before goes on", reason=str(error))
        return self._known


def parse_sources(text: str) -> list[SourceJob]:
    """The jobs of the text. Raises DiscoveryError with line or key."""
    whole = _table(read_yaml(text, _Loader), "the file", {"scrape_configs"})
    configs = _list(whole, "scrape_configs", "the file")
    if len(configs) > MAX_JOBS:
        raise DiscoveryError(f"more than {MAX_JOBS} jobs")
    jobs = [_job(config, f"job {number}") for number, config in enumerate(configs, 1)]
    names = [job.name for job in jobs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise DiscoveryError(f"the job_name {twice!r} stands there twice")
    return jobs


def _rooted(job: SourceJob, folder: Path) -> SourceJob:
    """Relative names of files count from the folder of the file that names them."""

    def rooted(access: Access) -> Access:
        def path(name: str) -> str:
            return str(folder / name) if name else ""

        return replace(
            access,
            password_file=path(access.password_file),
            credentials_file=path(access.credentials_file),
            ca_file=path(access.ca_file),
            cert_file=path(access.cert_file),
            key_file=path(access.key_file),
        )

    return replace(
        job,
        access=rooted(job.access),
        files=tuple(str(folder / name) for name in job.files),
        http=tuple(replace(one, access=rooted(one.access)) for one in job.http),
    )


def _job(config: Any, place: str) -> SourceJob:
    table = _table(config, place, _JOB_KEYS)
    name = _text(table, "job_name", place)
    if not name or len(name) > 127:
        raise DiscoveryError(f"{place}: job_name is a text of 1 to 127 characters")
    place = f"job {name!r}"
    defaults = _defaults(table, name, place)
    groups = _list(table, "static_configs", place)
    return SourceJob(
        name=name,
        access=_access(table, place),
        defaults=defaults,
        targets=tuple(parse_groups(groups, defaults, f"{place}, static_configs")),
        files=tuple(_files(table, place)),
        http=tuple(_http(one, f"{place}, http_sd_configs") for one in _list(table, "http_sd_configs", place)),
        federations=tuple(_federation(one, f"{place}, federate_configs") for one in _federations(table, place)),
    )


def _defaults(table: Mapping[str, Any], name: str, place: str) -> dict[str, str]:
    defaults = {"job": name}
    if _text(table, "scheme", place):
        defaults["__scheme__"] = _text(table, "scheme", place)
    if _text(table, "metrics_path", place):
        defaults["__metrics_path__"] = _text(table, "metrics_path", place)
    parameters = table.get("params") or {}
    if not isinstance(parameters, Mapping):
        raise DiscoveryError(f"{place}: params is no table")
    for key, values in parameters.items():
        if not isinstance(values, list) or len(values) != 1 or not isinstance(values[0], str):
            raise DiscoveryError(f"{place}: params.{key} is no list of one text")
        defaults[f"__param_{key}"] = values[0]
    return defaults


def _files(table: Mapping[str, Any], place: str) -> list[str]:
    found: list[str] = []
    for config in _list(table, "file_sd_configs", place):
        for name in _list(_table(config, f"{place}, file_sd_configs", {"files", "refresh_interval"}), "files", place):
            if not isinstance(name, str) or Path(name).suffix.lower() not in {".json", ".yml", ".yaml"}:
                raise DiscoveryError(f"{place}: {name!r} is no name of a .json, .yml or .yaml file")
            found.append(name)
    return found


def _http(config: Any, place: str) -> HttpSource:
    table = _table(config, place, _ACCESS_KEYS | {"url", "refresh_interval"})
    return HttpSource(_url(table, place), _refresh(table, place), _access(table, place))


def _federations(table: Mapping[str, Any], place: str) -> list[Any]:
    configs = _list(table, "federate_configs", place)
    if configs and any(key.endswith("_configs") and key != "federate_configs" for key in table):
        raise DiscoveryError(f"{place}: federate_configs stands alone in a job")
    return configs


def _federation(config: Any, place: str) -> Federation:
    table = _table(config, place, {"url", "match", "refresh_interval", "series", "node_label"})
    match = _text(table, "match", place) or "{}"
    if not match.startswith("{") or not match.endswith("}"):
        raise DiscoveryError(f"{place}: match is labels in braces, such as '{{job=\"dcgm\"}}'")
    series, node_label = _text(table, "series", place), _text(table, "node_label", place)
    if bool(series) != bool(node_label):
        raise DiscoveryError(f"{place}: node_label and series, a metric that has this label, stand there together")
    if node_label and not (_LABEL.fullmatch(node_label) and _SERIES.fullmatch(series)):
        raise DiscoveryError(f"{place}: node_label is no name of a label, or series none of a metric")
    return Federation(_url(table, place), match, _refresh(table, place), series or "up", node_label)


def _url(table: Mapping[str, Any], place: str) -> str:
    url = _text(table, "url", place)
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.username is not None:
        raise DiscoveryError(f"{place}: url is an http or https address without a user in it")
    return url


def _refresh(table: Mapping[str, Any], place: str) -> float:
    text = _text(table, "refresh_interval", place)
    if not text:
        return REFRESH_SECONDS
    parts = _DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) != text:
        raise DiscoveryError(f"{place}: refresh_interval is a time such as 30s or 5m")
    return max(LEAST_REFRESH_SECONDS, sum(int(number) * _UNITS[unit] for number, unit in parts))


def _access(table: Mapping[str, Any], place: str) -> Access:
    basic = _table(table.get("basic_auth") or {}, f"{place}, basic_auth", {"username", "password_file"})
    bearer = _table(table.get("authorization") or {}, f"{place}, authorization", {"type", "credentials_file"})
    keys = {"ca_file", "cert_file", "key_file", "server_name", "insecure_skip_verify"}
    tls = _table(table.get("tls_config") or {}, f"{place}, tls_config", keys)
    if basic and bearer:
        raise DiscoveryError(f"{place}: basic_auth or authorization, not both")
    credentials = _text(bearer, "credentials_file", place)
    if bearer and not credentials:
        raise DiscoveryError(f"{place}: authorization needs a credentials_file")
    skip = tls.get("insecure_skip_verify", False)
    if not isinstance(skip, bool):
        raise DiscoveryError(f"{place}: insecure_skip_verify is true or false")
    return Access(
        username=_text(basic, "username", place),
        password_file=_text(basic, "password_file", place),
        scheme=(_text(bearer, "type", place) or "Bearer") if bearer else "",
        credentials_file=credentials,
        ca_file=_text(tls, "ca_file", place),
        cert_file=_text(tls, "cert_file", place),
        key_file=_text(tls, "key_file", place),
        server_name=_text(tls, "server_name", place),
        insecure_skip_verify=skip,
    )


def _table(found: Any, place: str, keys: frozenset[str] | set[str]) -> Mapping[str, Any]:
    if not isinstance(found, Mapping):
        raise DiscoveryError(f"{place}: a table with {', '.join(sorted(keys))} is missing")
    unknown = sorted(str(key) for key in found if key not in keys)
    if unknown:
        why = _REFUSED.get(unknown[0], f"known are {', '.join(sorted(keys))}")
        raise DiscoveryError(f"{_place(found, unknown[0], place)}: {unknown[0]} is not supported ({why})")
    return found


def _place(table: Mapping[str, Any], key: str, place: str) -> str:
    """The place with the line of the key, where it is known."""
    line = table.lines.get(key) if isinstance(table, _Table) else None
    return place if line is None else f"{place}, line {line}"


def _list(table: Mapping[str, Any], key: str, place: str) -> list[Any]:
    found = table.get(key) or []
    if not isinstance(found, list):
        raise DiscoveryError(f"{_place(table, key, place)}: {key} is no list")
    return found


def _text(table: Mapping[str, Any], key: str, place: str) -> str:
    found = table.get(key, "")
    if not isinstance(found, str) or "\0" in found or "\n" in found or len(found) > 2_048:
        raise DiscoveryError(f"{_place(table, key, place)}: {key} is no text of one line")
    return found
