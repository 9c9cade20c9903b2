"""What bodies and answers hold, by the names under which routes mention them. What `views.py` and the documents of readers make, fits here."""

from __future__ import annotations

from fusion.enqueue.options import SPELLINGS
from fusion.web.openapi.shapes import (
    ANYTHING,
    FLAG,
    TEXT,
    WHOLE,
    Schema,
    fields,
    maybe,
    none_or,
    one_of,
)

_CALL: Schema = {
    "type": "object",
    "properties": {
        "queue": {"type": "string", "default": "default"},
        "func": {"type": "string", "description": "The task by its dotted path."},
        "args": {"type": "array"},
        "kwargs": {"type": "object"},
        "payload": {"description": "For `args` of this alone."},
        **{name: {"description": f"{one.meaning} Takes: {one.reads.takes}"} for name, one in SPELLINGS.items()},
    },
    "required": ["func"],
    "additionalProperties": False,
}

SCHEMAS: dict[str, Schema] = {
    "Anything": ANYTHING,
    "Error": fields(error=fields(code=TEXT, message=TEXT, field=maybe(TEXT))),
    "Call": _CALL,
    "PutBackOrCall": {"anyOf": [fields(job_id=TEXT), {**_CALL}]},
    "Force": fields(force=maybe({"type": "boolean", "description": "Although a job of it has not ended."})),
    "KeyLimit": fields(max_concurrent=maybe(none_or(WHOLE)), rate=maybe(none_or(TEXT))),
    "JobId": fields(job_id=TEXT),
    "Suspend": fields(duration=maybe({"description": "Seconds, or 90s, 5m, 2h, 1d; none: until they are resumed."})),
    "Reschedule": fields(when={"description": "Seconds from now, 90s, 5m, 2h, 1d, or a time with its zone; 0 is now."}),
    "Operate": fields(
        action=one_of("requeue", "cancel", "stop", "delete", "quarantine", "reprioritise"),
        query={"type": "string", "description": "Which jobs; without a state: those of the action's own states."},
        dry_run=maybe(FLAG),
        reason=maybe({"type": "string", "description": "Of quarantine: why."}),
        purge=maybe({"type": "boolean", "description": "Of delete: for good, not into the trash."}),
        priority=maybe({"description": "Of reprioritise: high, moderate, low or 0 to 255."}),
    ),
    "Purge": fields(purge=maybe({"type": "boolean", "description": "For good, not into the trash."})),
    "Edit": fields(
        args=maybe({"type": ["array", "null"]}),
        kwargs=maybe({"type": ["object", "null"]}),
        queue=maybe(none_or(TEXT)),
        priority=maybe({"type": ["string", "integer", "null"]}),
    ),
    "Pause": fields(
        duration=maybe({"description": "Seconds, or 90s, 5m, 2h, 1d; none: until it is resumed."}), reason=maybe(none_or(TEXT))
    ),
}
