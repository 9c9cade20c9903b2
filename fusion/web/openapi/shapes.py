"""Short functions that make JSON schemas."""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
FLAG: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
ANYTHING: Schema = {}
_OPTIONAL = "x-fusion-optional"


def none_or(schema: Schema) -> Schema:
    """Return the schema of this value or null."""
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    return {"anyOf": [schema, {"type": "null"}]}


def some(schema: Schema) -> Schema:
    """Return the schema of a list of these values."""
    return {"type": "array", "items": schema}


def by_name(schema: Schema) -> Schema:
    """Return the schema of an object that has these values under any names."""
    return {"type": "object", "additionalProperties": schema}


def one_of(*texts: str) -> Schema:
    """Return the schema of one of these texts."""
    return {"type": "string", "enum": list(texts)}


def maybe(schema: Schema) -> Schema:
    """Mark the schema of a field that may be missing."""
    return {**schema, _OPTIONAL: True}


def ref(name: str) -> Schema:
    """Return a reference to another schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def also(*schemas: Schema) -> Schema:
    """Return the schema of an object with the fields of all these objects."""
    fields = {name: schema for one in schemas for name, schema in one["properties"].items()}
    needed = [name for one in schemas for name in one["required"]]
    return {"type": "object", "properties": fields, "required": sorted(set(needed)), "additionalProperties": False}


def fields(**named: Schema) -> Schema:
    """Return the schema of an object with these fields and no others."""
    return {
        "type": "object",
        "properties": {name: {key: value for key, value in one.items() if key != _OPTIONAL} for name, one in named.items()},
        "required": sorted(name for name, one in named.items() if _OPTIONAL not in one),
        "additionalProperties": False,
    }
