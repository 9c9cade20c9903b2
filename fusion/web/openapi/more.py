"""What the answers hold of lists that are not of one queue."""

from __future__ import annotations

from fusion.web.openapi.shapes import Schema

SCHEMAS: dict[str, Schema] = {}
