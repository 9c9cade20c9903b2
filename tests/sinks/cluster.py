"""What the contract server holds: indices, data streams, templates, policies. Answers as Elasticsearch gives them, so far as the
sink uses them; tests/es/test_calibration.py holds the two beside each other."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Any

Answer = tuple[int, dict[str, Any]]


def error(status: int, kind: str, reason: str) -> Answer:
    return status, {"error": {"root_cause": [{"type": kind, "reason": reason}], "type": kind, "reason": reason}, "status": status}


@dataclass
class Index:
    name: str
    mapping: dict[str, Any] = field(default_factory=dict)
    kind: str = "_doc"
    documents: dict[str, Any] = field(default_factory=dict)
    times_written: dict[str, int] = field(default_factory=dict)
    closed: bool = False


@dataclass
class Cluster:
    version: tuple[int, int]
    flavor: str = "default"
    lifecycle: bool = True
    auto_create: bool = True
    indices: dict[str, Index] = field(default_factory=dict)
    #: Alias -> the index that is written to.
    aliases: dict[str, str] = field(default_factory=dict)
    streams: set[str] = field(default_factory=set)
    templates: dict[str, Any] = field(default_factory=dict)
    legacy: dict[str, Any] = field(default_factory=dict)
    policies: dict[str, Any] = field(default_factory=dict)
    #: Refuses single documents: status, type and reason, or None.
    refuse: Callable[[str, dict[str, Any]], tuple[int, str, str] | None] = lambda doc_id, document: None

    def call(self, endpoint: str, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> Answer:
        method: Callable[..., Answer] = getattr(self, "_" + endpoint.replace(".", "_"))
        return method(parts, query, body)

    def _info(self, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> Answer:
        number = ".".join(map(str, (*self.version, 0)))
        return 200, {
            "name": "contract",
            "version": {"number": number, "build_flavor": self.flavor},
            "tagline": "You Know, for Search",
        }

    def _bulk(self, parts: Mapping[str, str], query: Mapping[str, str], body: list[Any]) -> Answer:
        items = []
        for action, document in zip(body[::2], body[1::2], strict=True):
            ((op, about),) = action.items()
            status, more = self._create(parts["index"], op, about, document)
            items.append({op: {"_index": parts["index"], "_id": about["_id"], "status": status, **more}})
        return 200, {"took": 1, "errors": any("error" in item[op] for item in items for op in item), "items": items}

    def _create(self, name: str, op: str, about: dict[str, Any], document: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        def no(status: int, kind: str, reason: str) -> tuple[int, dict[str, Any]]:
            return status, {"error": {"type": kind, "reason": reason}}

        if op != "create":
            return no(400, "illegal_argument_exception", f"this server takes create only, not {op}")
        if not re.fullmatch(r"(?![-_+])[^A-Z\\/*?\"<>| ,#:]+", name):
            return no(400, "invalid_index_name_exception", f"Invalid index name [{name}], must be lowercase")
        index = self.indices.get(self.aliases.get(name, name))
        if index is None:
            if not self.auto_create:
                return no(404, "index_not_found_exception", f"no such index [{name}]")
            index = self._make(name, about.get("_type", "_doc"))
        if index.closed:
            return no(400, "index_closed_exception", "closed")
        kind = about.get("_type", "_doc")
        if kind not in ("_doc", index.kind):
            reason = (
                f"Rejecting mapping update to [{name}] as the final mapping would have more than 1 type: [{index.kind}, {kind}]"
            )
            return no(400, "illegal_argument_exception", reason)
        if name in self.streams and "@timestamp" not in document:
            return no(400, "document_parsing_exception", "data stream timestamp field [@timestamp] is missing")
        doc_id = about["_id"]
        index.times_written[doc_id] = index.times_written.get(doc_id, 0) + 1
        if doc_id in index.documents:
            reason = f"[{doc_id}]: version conflict, document already exists (current version [1])"
            return no(409, "version_conflict_engine_exception", reason)
        refused = self.refuse(doc_id, document) or self._misfit(index, doc_id, document)
        if refused:
            return no(*refused)
        index.documents[doc_id] = document
        shards = {"total": 2, "successful": 1, "failed": 0}
        number = len(index.documents) - 1
        return 201, {"_version": 1, "result": "created", "_shards": shards, "_seq_no": number, "_primary_term": 1}

    def _misfit(self, index: Index, doc_id: str, document: dict[str, Any]) -> tuple[int, str, str] | None:
        exception = "document_parsing_exception" if self.version >= (8, 8) else "mapper_parsing_exception"
        for name, value in document.items():
            kind = index.mapping.get("properties", {}).get(name, {}).get("type")
            if (kind == "date" and not _is_date(value)) or (kind in {"text", "keyword"} and isinstance(value, dict)):
                quoted = f". Preview of field's value: '{value}'" if self.version >= (8, 0) else ""
                return 400, exception, f"failed to parse field [{name}] of type [{kind}] in document with id '{doc_id}'{quoted}"
        return None

    def _make(self, name: str, kind: str = "_doc") -> Index:
        """A new index by the template that fits."""
        template = self._template_of(name)
        index = Index(name, template.get("template", {}).get("mappings", {}), kind)
        if "data_stream" in template:
            self.streams.add(name)
        if not template:
            for legacy in self.legacy.values():
                if any(fnmatchcase(name, pattern) for pattern in legacy["index_patterns"]):
                    ((index.kind, index.mapping),) = legacy["mappings"].items()
        elif template.get("template", {}).get("mappings"):
            index.kind = "_doc"
        self.indices[name] = index
        return index

    def _template_of(self, name: str) -> dict[str, Any]:
        fitting = [one for one in self.templates.values() if any(fnmatchcase(name, pattern) for pattern in one["index_patterns"])]
        return max(fitting, key=lambda one: one.get("priority", 0), default={})

    def _indices_create(self, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> Answer:
        name = parts["index"]
        if name in self.indices:
            return error(400, "resource_already_exists_exception", f"index [{name}] already exists")
        index = self._make(name)
        if body and "mappings" in body:
            index.mapping = body["mappings"]
        for alias, about in (body or {}).get("aliases", {}).items():
            if alias in self.indices:
                del self.indices[name]
                return error(
                    400, "invalid_alias_name_exception", f"Invalid alias name [{alias}]: an index exists with the same name"
                )
            if about.get("is_write_index"):
                self.aliases[alias] = name
        return 200, {"acknowledged": True, "shards_acknowledged": True, "index": name}

    def _indices_get_mapping(self, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> Answer:
        index = self.indices.get(self.aliases.get(parts["index"], parts["index"]))
        if index is None:
            return error(404, "index_not_found_exception", f"no such index [{parts['index']}]")
        return 200, {index.name: {"mappings": index.mapping}}

    def _indices_put_index_template(self, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> Answer:
        if self.version < (7, 8):
            return 405, {"error": f"Incorrect HTTP method for uri [/_index_template/{parts['name']}]", "status": 405}
        settings = body.get("template", {}).get("settings", {}).get("index", {})
        if "lifecycle" in settings and not self.lifecycle:
            return error(400, "illegal_argument_exception", "unknown setting [index.lifecycle.name]")
        self.templates[parts["name"]] = body
        return 200, {"acknowledged": True}

    def _indices_get_index_template(self, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> Answer:
        found = self.templates.get(parts["name"])
        if found is None:
            return error(404, "resource_not_found_exception", f"index template matching [{parts['name']}] not found")
        shown = json.loads(json.dumps(found)) | {"composed_of": []}
        shown["template"]["settings"] = _texts(shown["template"].get("settings", {}))
        if "data_stream" in shown:
            shown["data_stream"] = {"hidden": False, "allow_custom_routing": False}
        return 200, {"index_templates": [{"name": parts["name"], "index_template": shown}]}

    def _indices_put_template(self, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> Answer:
        if "lifecycle" in body.get("settings", {}).get("index", {}) and not self.lifecycle:
            return error(400, "illegal_argument_exception", "unknown setting [index.lifecycle.name]")
        self.legacy[parts["name"]] = body
        return 200, {"acknowledged": True}

    def _indices_get_template(self, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> Answer:
        found = self.legacy.get(parts["name"])
        if found is None:
            return 404, {}
        return 200, {parts["name"]: {**found, "settings": _texts(found.get("settings", {})), "aliases": {}}}

    def _indices_create_data_stream(self, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> Answer:
        name = parts["name"]
        if name in self.indices:
            return error(400, "resource_already_exists_exception", f"data_stream [{name}] already exists")
        if "data_stream" not in self._template_of(name):
            return error(400, "illegal_argument_exception", f"no matching index template found for data stream [{name}]")
        self._make(name)
        return 200, {"acknowledged": True}

    def _indices_get_data_stream(self, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> Answer:
        if parts["name"] not in self.streams:
            return error(404, "index_not_found_exception", f"no such index [{parts['name']}]")
        return 200, {"data_streams": [{"name": parts["name"]}]}

    def _ilm_put_lifecycle(self, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> Answer:
        if not self.lifecycle:
            return 400, {"error": f"no handler found for uri [/_ilm/policy/{parts['policy']}] and method [PUT]"}
        self.policies[parts["policy"]] = body["policy"]
        return 200, {"acknowledged": True}

    def _ilm_get_lifecycle(self, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> Answer:
        found = self.policies.get(parts["policy"])
        if found is None:
            return error(404, "resource_not_found_exception", f"Lifecycle policy not found: {parts['policy']}")
        return 200, {parts["policy"]: {"version": 1, "modified_date": "2026-01-01T00:00:00.000Z", "policy": found}}


def _is_date(value: Any) -> bool:
    try:
        datetime.fromisoformat(str(value))
    except ValueError:
        return False
    return True


def _texts(settings: Any) -> Any:
    """As the server gives settings back."""
    if isinstance(settings, dict):
        return {name: _texts(value) for name, value in settings.items()}
    return settings if isinstance(settings, str) else json.dumps(settings)


def filtered(value: Any, paths: list[list[str]]) -> Any:
    """`filter_path`: only what one of the paths leads to; `*` is any one step, lists are walked through."""
    if isinstance(value, list):
        kept = [filtered(item, paths) for item in value]
        return [item for item in kept if item is not None] or None
    if any(not path for path in paths):
        return value
    if not isinstance(value, dict):
        return None
    kept_items = {}
    for key, item in value.items():
        found = filtered(item, [path[1:] for path in paths if path[0] in ("*", key)]) if paths else None
        if found is not None:
            kept_items[key] = found
    return kept_items or None
