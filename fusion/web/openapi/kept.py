"""What the answers hold of who changed what, and of what was deleted."""

from __future__ import annotations

from fusion.web.openapi.shapes import TEXT, TIME, WHOLE, Schema, by_name, fields, none_or, some

_CHANGE = fields(
    id=TEXT,
    at=TIME,
    who=TEXT,
    action=TEXT,
    target=none_or(TEXT),
    queues=some(TEXT),
    outcome=none_or(TEXT),
    ended_at=none_or(TIME),
    count=none_or(WHOLE),
    details=by_name(TEXT),
)

SCHEMAS: dict[str, Schema] = {
    "Audit": fields(entries=some(_CHANGE), after=none_or(TEXT)),
}
