"""`events setup`: before the first event, gives Elasticsearch the mapping of the fields, and the times of rollover and deletion.

The sink works without it. Then the server guesses the mapping from the first document, and may refuse a later one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fusion.exceptions import ConfigurationError
from fusion.sinks.es_client import Link, Refused, Server
from fusion.sinks.es_documents import CLASSIC_MAPPING, ECS_MAPPING, LOGS
from fusion.sinks.es_options import ElasticsearchOptions

_DATA_STREAM = "logs-fusion.job"
_POLICY = "fusion-job-events"
#: Priority of the templates, above the 100 of Elastic's own template for `logs-*-*`.
_PRIORITY = 500
_VERSION = 1
_MAX_AGE, _MAX_SIZE = "30d", "50gb"
#: Suffixes of the classic index's name: of the first index, and of all indices that rollovers make.
_FIRST, _ALL = "-000001", "-0*"
#: Statuses if the server lacks an API; which one depends on its version and edition.
_ABSENT = {400, 404, 405, 410}

_Wanted = Mapping[str, Any]


def setup(options: ElasticsearchOptions) -> list[str]:
    """Make or update templates, lifecycle policy, and index or data stream. Return a line for each: created, updated or unchanged.

    It may be run again at any time. SinkUnavailable if the server can't be reached or the credentials lack privileges; ConfigurationError
    if the server refuses a request.
    """
    link = Link(options)
    try:
        return list(_data_stream(link, options) if options.data_stream else _classic(link, options))
    finally:
        link.close()


def _data_stream(link: Link, options: ElasticsearchOptions) -> Iterator[str]:
    server = link.server()
    if server.before(7, 9):
        raise ConfigurationError(
            f"Elasticsearch {server.version[0]}.{server.version[1]} has no data streams; upgrade it to 7.14 or newer, or unset "
            "elasticsearch_data_stream",
            code="FUS-216",
        )
    settings = _settings(server, options)
    told, there = _lifecycle(link, options, server)
    yield told
    if there:
        settings["lifecycle"] = {"name": _POLICY}
    template: dict[str, Any] = {
        "index_patterns": [f"{_DATA_STREAM}-*"],
        "priority": _PRIORITY,
        "version": _VERSION,
        "data_stream": {},
        "template": {"settings": {"index": settings}, "mappings": ECS_MAPPING},
    }
    state = _put(link, f"/_index_template/{_DATA_STREAM}", template, _composable)
    yield f"index template {_DATA_STREAM}: {state}"
    try:
        link.ask("GET", f"/_data_stream/{options.target}")
    except Refused as refusal:
        _only_missing(refusal, f"data stream {options.target}")
        _ask(link, "PUT", f"/_data_stream/{options.target}")
        yield f"data stream {options.target}: created"
    else:
        late = f" (it takes on the template at its next rollover: POST /{options.target}/_rollover)" if state == "updated" else ""
        yield f"data stream {options.target}: unchanged{late}"


def _classic(link: Link, options: ElasticsearchOptions) -> Iterator[str]:
    server = link.server()
    name = options.index
    settings = _settings(server, options)
    told, there = _lifecycle(link, options, server)
    yield told
    if there:
        settings["lifecycle"] = {"name": _POLICY, "rollover_alias": name}
    params: dict[str, Any] = {}
    patterns = [name, f"{name}{_ALL}"]
    if server.before(7, 8):
        template: dict[str, Any] = {
            "index_patterns": patterns,
            "order": _PRIORITY,
            "version": _VERSION,
            "settings": {"index": settings},
        }
        template["mappings"] = {LOGS: CLASSIC_MAPPING}
        params = {"include_type_name": "true"}
        state = _put(link, f"/_template/{name}", template, lambda answer: answer[name], params)
        yield f"legacy template {name}: {state}"
    else:
        inner = {"settings": {"index": settings}, "mappings": CLASSIC_MAPPING}
        template = {"index_patterns": patterns, "priority": _PRIORITY, "version": _VERSION, "template": inner}
        yield f"index template {name}: {_put(link, f'/_index_template/{name}', template, _composable)}"
    try:
        found = link.ask("GET", f"/{name}/_mapping")
    except Refused as refusal:
        _only_missing(refusal, f"index {name}")
        _ask(link, "PUT", f"/{name}{_FIRST}", {"aliases": {name: {"is_write_index": True}}}, params)
        yield f"index {name}{_FIRST}: created, behind the alias {name}"
        return
    if name in found:
        yield (
            f"index {name}: unchanged; it is one index and no alias, so it grows for ever: docs/events.md, 'From one index to an alias', "
            "says how to change that"
        )
    else:
        yield f"alias {name}: unchanged"
    for index, entry in found.items():
        yield from _misfits(index, entry.get("mappings", {}).get("properties", {}))


def _misfits(index: str, there: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields of an existing index whose type refuses some values of events."""
    texts = {"keyword", "text", "wildcard", "match_only_text"}
    for name, wanted in CLASSIC_MAPPING["properties"].items():
        kind = there.get(name, {}).get("type", "object" if name in there else None)
        if kind is not None and kind not in texts and kind != wanted["type"]:
            yield (
                f"index {index}: its field {name} is of type {kind} and refuses events; reindex it, or set another elasticsearch_index"
            )


def _settings(server: Server, options: ElasticsearchOptions) -> dict[str, Any]:
    sizes = {"number_of_shards": options.shards, "number_of_replicas": options.replicas}
    return {} if server.serverless else {name: str(value) for name, value in sizes.items() if value is not None}


def _lifecycle(link: Link, options: ElasticsearchOptions, server: Server) -> tuple[str, bool]:
    size = "max_size" if server.before(7, 13) else "max_primary_shard_size"
    rollover = {"max_age": _MAX_AGE, size: _MAX_SIZE}
    phases: dict[str, Any] = {"hot": {"min_age": "0ms", "actions": {"rollover": rollover}}}
    if options.delete_after is not None:
        delete: dict[str, Any] = {"delete": {} if server.before(7, 8) else {"delete_searchable_snapshot": True}}
        phases["delete"] = {"min_age": f"{options.delete_after}d", "actions": delete}
    try:
        state = _put(link, f"/_ilm/policy/{_POLICY}", {"policy": {"phases": phases}}, lambda answer: answer[_POLICY])
    except ConfigurationError as error:
        cause = error.__cause__
        if not isinstance(cause, Refused) or cause.status not in _ABSENT:
            raise
        return f"lifecycle policy {_POLICY}: left out, this server has none ({cause}); delete old indices by other means", False
    return f"lifecycle policy {_POLICY}: {state}", True


def _put(
    link: Link,
    path: str,
    wanted: _Wanted,
    find: Callable[[dict[str, Any]], _Wanted],
    params: Mapping[str, Any] | None = None,
) -> str:
    """Put the wanted object unless it exists already. `find`: extracts the present one from the answer to a GET."""
    try:
        there = find(link.ask("GET", path, params=params))
    except (Refused, KeyError, IndexError):
        there = None
    if there is not None and _flat(wanted) == _flat({key: there.get(key) for key in wanted}):
        return "unchanged"
    _ask(link, "PUT", path, wanted, params)
    return "created" if there is None else "updated"


def _composable(answer: dict[str, Any]) -> _Wanted:
    found: dict[str, Any] = answer["index_templates"][0]["index_template"]
    if "data_stream" in found:
        # The server adds its defaults, so they don't count as differences.
        found = found | {"data_stream": {}}
    return found | {"template": {key: found["template"].get(key) for key in ("settings", "mappings")}}


def _flat(value: Any, where: str = "") -> dict[str, str]:
    """Return the leaves by dotted name, as texts: the server returns settings nested, with numbers and booleans as strings."""
    if not isinstance(value, Mapping):
        return {where: value if isinstance(value, str) else json.dumps(value)}
    leaves: dict[str, str] = {}
    for key, item in value.items():
        leaves |= _flat(item, f"{where}.{key}" if where else str(key))
    return leaves


def _ask(link: Link, method: str, path: str, body: Any = None, params: Mapping[str, Any] | None = None) -> None:
    try:
        link.ask(method, path, body, params=params)
    except Refused as refusal:
        raise ConfigurationError(
            f"Elasticsearch refuses {method} {path}: {refusal}; correct what it names", code="FUS-216"
        ) from refusal


def _only_missing(refusal: Refused, what: str) -> None:
    if refusal.status != 404:
        raise ConfigurationError(f"{what} can't be looked at: {refusal}; correct what it names", code="FUS-216") from refusal
