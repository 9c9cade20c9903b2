"""docs/http-reference.md out of docs/openapi.json's document: each call with its scope, parameters, body and answers; the objects that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_HEAD = """# The HTTP API, call by call

Made from the code by `make reference`, out of [openapi.json](openapi.json). What the words mean, how to ask and what errors there are:
[http.md](http.md). A `?` behind a field says that it may be missing; `[]` stands for each of a list, `*` for each name of an object.
"""
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_REF = "#/components/schemas/"
#: Types of JSON schema by the words of people.
_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "null": "null",
    "object": "object",
}


def reference(document: dict[str, Any]) -> str:
    """The page."""
    calls = [
        (method, path, about[method.lower()])
        for path, about in sorted(document["paths"].items())
        for method in _METHODS
        if method.lower() in about
    ]
    parts = [_HEAD, _contents(calls)]
    parts += ["\n" + "\n".join(_call(*one)) + "\n" for one in calls]
    parts.append("\n## Objects\n\nThose that bodies and answers name.\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        parts.append(f"\n### {name}\n\n" + "\n".join(_object(schema)) + "\n")
    return "".join(parts)


def _contents(calls: list[tuple[str, str, dict[str, Any]]]) -> str:
    lines = ["\n| call | scope | what it does |", "|---|---|---|"]
    for method, path, call in calls:
        title = f"{method} {path}"
        lines.append(f"| [`{title}`](#{_anchor(title)}) | {_scope(call)} | {_cell(call['summary'])} |")
    return "\n".join(lines) + "\n"


def _anchor(title: str) -> str:
    """Of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _scope(call: dict[str, Any]) -> str:
    return f"`{call['x-scope']}`" if "x-scope" in call else "none"


def _call(method: str, path: str, call: dict[str, Any]) -> Iterator[str]:
    yield f"## {method} {path}\n"
    yield f"{call['description'] or call['summary']}\n"
    if "x-scope" not in call:
        yield "Scope: none, nor a token.\n"
    else:
        some = (
            "tokens for some queues too" if call["x-for-some-queues"] else "tokens for some queues are refused (403 `all_queues`)"
        )
        yield f"Scope: {_scope(call)}; {some}.\n"
    if call["parameters"]:
        yield "| parameter | in | takes | meaning |\n|---|---|---|---|"
        for one in call["parameters"]:
            yield f"| `{one['name']}` | {one['in']} | {_takes(one['schema'])} | {_cell(one.get('description', ''))} |"
        yield ""
    if "requestBody" in call:
        need = "" if call["requestBody"]["required"] else "; it need not be sent"
        yield f"Body: {_takes(_json_of(call['requestBody']))}{need}.\n"
    answers = {code: one for code, one in call["responses"].items() if code != "default"}
    (first, *_) = answers.values()
    files = "; or CSV, or JSON lines" if "text/csv" in first["content"] else ""
    yield f"Answer: {' or '.join(sorted(answers))}, {_takes(_json_of(first))}{files}. What went wrong: [Error](#error)."


def _json_of(about: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = about["content"]["application/json"]["schema"]
    return found


def _takes(schema: dict[str, Any]) -> str:
    """What a value may be, in words."""
    if name := schema.get("$ref", "").removeprefix(_REF):
        return "anything" if name == "Anything" else f"[{name}](#{_anchor(name)})"
    if "enum" in schema:
        said = ", ".join(f"`{value}`" for value in schema["enum"])
    elif "anyOf" in schema:
        said = " or ".join(dict.fromkeys(_takes(one) for one in schema["anyOf"]))
    else:
        kinds = schema.get("type", [])
        said = " or ".join(_kind(kind, schema) for kind in ([kinds] if isinstance(kinds, str) else kinds)) or "anything"
    if "maximum" in schema:
        said += f", {schema['minimum']:,} to {schema['maximum']:,}"
    if "maxLength" in schema:
        said += f" of up to {schema['maxLength']} characters"
    return said + (f"; without it `{schema['default']}`" if "default" in schema else "")


def _kind(kind: str, schema: dict[str, Any]) -> str:
    if kind == "array":
        return f"list of {_takes(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {_takes(schema['additionalProperties'])} by name"
    return "time" if schema.get("format") == "date-time" and kind == "string" else _KINDS[kind]


def _object(schema: dict[str, Any]) -> Iterator[str]:
    if "properties" not in schema:
        ways = schema.get("anyOf", ())
        named = [_takes(one) for one in ways if "properties" not in one]
        yield f"{' or '.join([*named, 'an object of these fields'])}:" if ways else "Any JSON."
        for n, one in enumerate(one for one in ways if "properties" in one):
            yield "\nor of these:\n" if n else ""
            yield from _fields(one)
        return
    yield from _fields(schema)


def _fields(schema: dict[str, Any]) -> Iterator[str]:
    rows = list(_rows(schema, ""))
    if not rows:
        yield "No fields."
        return
    told = any(meaning for _, _, meaning in rows)
    yield "| field | takes | meaning |\n|---|---|---|" if told else "| field | takes |\n|---|---|"
    for name, takes, meaning in rows:
        yield f"| `{name}` | {takes} |" + f" {meaning} |" * told


def _rows(schema: dict[str, Any], before: str) -> Iterator[tuple[str, str, str]]:
    """Each field, and those of the objects within it: `errors[].code`."""
    for name, one in sorted(schema["properties"].items()):
        meaning, _, takes = one.get("description", "").partition(" Takes: ")
        meaning = re.sub(r"  \[default: (.*)\]$", r" Default: \1.", meaning)
        optional = "" if name in schema.get("required", ()) else "?"
        yield f"{before}{name}{optional}", _cell(takes or _takes(one)), _cell(meaning)
        for inner, marks in _within(one, ""):
            yield from _rows(inner, f"{before}{name}{marks}.")


def _within(schema: dict[str, Any], marks: str) -> Iterator[tuple[dict[str, Any], str]]:
    """The objects with fields of their own that a value is or holds."""
    if "properties" in schema:
        yield schema, marks
    for one in schema.get("anyOf", ()):
        yield from _within(one, marks)
    if isinstance(schema.get("items"), dict):
        yield from _within(schema["items"], f"{marks}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from _within(schema["additionalProperties"], f"{marks}.*")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
