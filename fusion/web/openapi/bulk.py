"""What is asked and answered about operations on many jobs."""

from __future__ import annotations

from fusion.web.openapi.shapes import FLAG, TEXT, TIME, WHOLE, Schema, also, by_name, fields, maybe, none_or, one_of, ref, some

_ACTION = one_of("requeue", "cancel", "stop", "delete", "quarantine", "reprioritise")
_OPERATION = fields(
    id=TEXT,
    action=_ACTION,
    query=TEXT,
    args=by_name(TEXT),
    status=one_of("running", "done", "canceled"),
    by=TEXT,
    began_at=TIME,
    ended_at=none_or(TIME),
    canceled_by=none_or(TEXT),
    matched=WHOLE,
    done=WHOLE,
    skipped=WHOLE,
    refused=WHOLE,
    kept=WHOLE,
    why=by_name(fields(count=WHOLE, means=TEXT, example=none_or(TEXT))),
    carrier=none_or(TEXT),
)
_ONE = also(_OPERATION, fields(carried_on=FLAG))

SCHEMAS: dict[str, Schema] = {
    "Operate": fields(
        action=_ACTION,
        query={"type": "string", "description": "Which jobs; without a state: those of the action's own states."},
        dry_run=maybe(FLAG),
        reason=maybe({"type": "string", "description": "Of quarantine: why."}),
        purge=maybe({"type": "boolean", "description": "Of delete: for good, not into the trash."}),
        priority=maybe({"description": "Of reprioritise: high, moderate, low or 0 to 255."}),
    ),
    "Operation": _ONE,
    "OperationBegun": {
        "anyOf": [
            ref("Operation"),
            fields(
                action=_ACTION,
                query=TEXT,
                args=by_name(TEXT),
                dry_run=FLAG,
                matched=WHOLE,
                complete=FLAG,
                by=some(fields(queue=TEXT, state=TEXT, count=WHOLE)),
                examples=some(fields(id=TEXT, queue=TEXT, state=TEXT)),
            ),
        ]
    },
    "Operations": fields(operations=some(_OPERATION), total=WHOLE, offset=WHOLE),
}
