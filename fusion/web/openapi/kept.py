"""What the answers hold of who changed what, and of what was deleted."""

from __future__ import annotations

from fusion.web.openapi.shapes import FLAG, TEXT, TIME, WHOLE, Schema, by_name, fields, maybe, none_or, some

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

_DELETED = fields(
    id=TEXT,
    deleted_at=TIME,
    until=TIME,
    status=TEXT,
    queue=TEXT,
    function=none_or(TEXT),
    created_at=none_or(TIME),
    error_class=none_or(TEXT),
    quarantined=none_or(TEXT),
    bytes=WHOLE,
)

SCHEMAS: dict[str, Schema] = {
    "Purge": fields(purge=maybe({"type": "boolean", "description": "For good, not into the trash."})),
    "Trash": fields(jobs=some(_DELETED), offset=WHOLE, total=none_or(WHOLE), bytes=none_or(WHOLE)),
    "Purged": fields(purged=WHOLE),
    "Restored": fields(job_id=TEXT, restored=FLAG, status=TEXT, queue=TEXT),
    "Audit": fields(entries=some(_CHANGE), after=none_or(TEXT), missing=none_or(WHOLE)),
}
