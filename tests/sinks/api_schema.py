"""Holds a request against Elastic's published API specification (fixtures/elastic_api.json). What the cut lacks counts as a fault."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parent / "fixtures"
_BUILTINS: dict[str, tuple[type, ...]] = {
    "string": (str,), "boolean": (bool,), "number": (int, float), "object": (dict,), "null": (type(None),),
}  # fmt: skip
#: Open to settings of plugins by the specification; the server itself knows each of ours, and refuses others.
_CLOSED = {"indices._types.IndexSettings"}
_action = {"kind": "instance_of", "type": {"name": "OperationContainer", "namespace": "_global.bulk"}}
_document = {"kind": "instance_of", "type": {"name": "object", "namespace": "_builtins"}}


@cache
def specification() -> dict[str, Any]:
    return dict(json.loads((FIXTURES / "elastic_api.json").read_text()))


@cache
def ecs_fields() -> dict[str, str]:
    return dict(json.loads((FIXTURES / "ecs_fields.json").read_text()))


def endpoint(method: str, path: str) -> tuple[str, dict[str, str]] | None:
    """Name of the endpoint and the parts of its path; the most literal of those that fit."""
    found = []
    for name, entry in specification()["endpoints"].items():
        for url in entry["urls"]:
            pattern = re.sub(r"\{(\w+)\}", r"(?P<\1>[^/]+)", url["path"])
            match = re.fullmatch(pattern, path)
            # No index begins with an underscore: /_nonsense is no request for the index of that name.
            if match and method in url["methods"] and not match.groupdict().get("index", "").startswith("_"):
                found.append((pattern.count("("), name, match.groupdict()))
    return min(found, key=lambda one: one[0])[1:] if found else None


def faults_of_request(name: str, parts: Mapping[str, str], query: Mapping[str, str], body: Any) -> list[str]:
    """What is wrong with a request; a body is parsed JSON, of the bulk endpoint the list of its lines."""
    request = _type(_key(specification()["endpoints"][name]["request"]))
    assert request is not None
    faults = list(_unknown("path", parts, request["path"]))
    allowed = [*request["query"], *(_type("_spec_utils.CommonQueryParameters") or {})["properties"]]
    faults += _unknown("query", query, allowed)
    for item in allowed:
        if item["name"] in query:
            faults += _faults(_from_text(query[item["name"]]), item["type"], f"query.{item['name']}")
    wanted = request["body"]
    if wanted["kind"] == "no_body":
        return faults + (["body: there must be none"] if body is not None else [])
    if body is None:
        return faults + (["body: missing"] if specification()["endpoints"][name]["requestBodyRequired"] else [])
    if name == "bulk":
        # The specification takes each line for an action or a document of any form; which one it is, its place says.
        if len(body) % 2:
            faults.append("body: a document without its action, or an action without its document")
        for number, line in enumerate(body):
            faults += _faults(line, _document if number % 2 else _action, f"body[{number}]")
        return faults
    if wanted["kind"] == "value":
        return faults + list(_faults(body, wanted["value"], "body"))
    return faults + list(_object(body, wanted["properties"], "body"))


def faults_of_answer(type_name: str, value: Any) -> list[str]:
    """The same for the body of a response, whose type is that of an endpoint's `response`."""
    body = (_type(type_name) or {})["body"]
    return list(_object(value, body["properties"], "answer"))


def _key(name: Mapping[str, str]) -> str:
    return f"{name['namespace']}.{name['name']}"


def _type(key: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = specification()["types"].get(key)
    return found


def _from_text(text: str) -> Any:
    return {"true": True, "false": False}.get(text, text)


def _unknown(where: str, given: Mapping[str, Any], allowed: list[dict[str, Any]]) -> Iterator[str]:
    names = {item["name"] for item in allowed} | {alias for item in allowed for alias in item.get("aliases", ())}
    for name in given:
        if name not in names:
            yield f"{where}.{name}: unknown"


def _faults(value: Any, kind: Mapping[str, Any], where: str) -> Iterator[str]:
    match kind["kind"]:
        case "user_defined_value":
            return
        case "literal_value":
            if value != kind["value"]:
                yield f"{where}: {value!r} is not {kind['value']!r}"
        case "array_of":
            if not isinstance(value, list):
                yield f"{where}: {value!r} is no list"
            else:
                for number, item in enumerate(value):
                    yield from _faults(item, kind["value"], f"{where}[{number}]")
        case "dictionary_of":
            if not isinstance(value, dict) or (kind.get("singleKey") and len(value) != 1):
                yield f"{where}: {value!r} is no object of this kind"
            else:
                for key, item in value.items():
                    yield from _faults(item, kind["value"], f"{where}.{key}")
        case "union_of":
            tried = [list(_faults(value, item, where)) for item in kind["items"]]
            if all(tried):
                # The most telling one: of an object with a `type`, the alternative that took the type.
                yield from min(
                    tried, key=lambda faults: (any(".type: " in fault or " cut" in fault for fault in faults), len(faults))
                )
        case "instance_of":
            yield from _instance(value, kind["type"], where)
        case other:
            yield f"{where}: the specification says {other}, which is not understood here"


def _instance(value: Any, name: Mapping[str, str], where: str) -> Iterator[str]:
    if name["namespace"] == "_builtins":
        allowed = _BUILTINS[name["name"]]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            yield f"{where}: {value!r} is no {name['name']}"
        return
    if name["name"].startswith("T") and name["namespace"].endswith(".Request"):
        # A type parameter: documents of ours, of any form.
        if not isinstance(value, dict):
            yield f"{where}: {value!r} is no document"
        return
    found = _type(_key(name))
    if found is None:
        yield f"{where}: {_key(name)} is not in the cut"
    elif found["kind"] == "type_alias":
        yield from _faults(value, found["type"], where)
    elif found["kind"] == "enum":
        names = {member["name"] for member in found["members"]} | {
            alias for m in found["members"] for alias in m.get("aliases", ())
        }
        if str(value).lower() not in names and value not in names:
            yield f"{where}: {value!r} is none of {sorted(names)}"
    else:
        container = found.get("variants", {}).get("kind") == "container"
        extra = "AdditionalProperties" in found.get("attachedBehaviors", ()) and _key(name) not in _CLOSED
        yield from _object(value, list(_inherited(found)), where, container, extra)


def _inherited(found: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    yield from found.get("properties", ())
    parent = found.get("inherits")
    if parent:
        above = _type(_key(parent["type"]))
        yield from _inherited(above) if above else iter(({"name": _key(parent["type"]), "required": True},))


def _object(
    value: Any, properties: list[dict[str, Any]], where: str, container: bool = False, extra: bool = False
) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: {value!r} is no object"
        return
    if not extra:
        yield from _unknown(where, value, properties)
    if container and len(value) != 1:
        yield f"{where}: {sorted(value)} must be exactly one"
    for item in properties:
        given = next((name for name in (item["name"], *item.get("aliases", ())) if name in value), None)
        if given is not None:
            yield from _faults(value[given], item["type"], f"{where}.{given}")
        elif item["required"]:
            yield f"{where}.{item['name']}: missing"
