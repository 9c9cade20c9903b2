"""What bodies and answers hold, by the names under which routes mention them. What `views.py` and the documents of readers make, fits here."""

from __future__ import annotations

from fusion.enqueue.options import SPELLINGS
from fusion.web.openapi import bulk, kept, more, of_lists, sheet
from fusion.web.openapi.shapes import (
    ANYTHING,
    FLAG,
    NUMBER,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    also,
    fields,
    maybe,
    none_or,
    one_of,
    ref,
    some,
)

_CUT = none_or(fields(text=TEXT, bytes=WHOLE, cut=FLAG))
_JOB = fields(
    id=TEXT,
    status=TEXT,
    queue=TEXT,
    original_queue=TEXT,
    priority=WHOLE,
    log_tag=none_or(TEXT),
    concurrency_key=none_or(TEXT),
    created_at=none_or(TIME),
    enqueued_at=none_or(TIME),
    scheduled_at=none_or(TIME),
    started_at=none_or(TIME),
    ended_at=none_or(TIME),
    attempts=WHOLE,
    lost=WHOLE,
    deliveries=WHOLE,
    retry_count=WHOLE,
    worker=none_or(TEXT),
    quarantined=FLAG,
    error=none_or({"type": "object", "properties": {"class": TEXT, "at": none_or(TEXT)}}),
    progress=none_or(fields(done=NUMBER, total=none_or(NUMBER), at=none_or(TIME), note=maybe(none_or(TEXT)))),
    reason=maybe(_CUT),
    result=maybe(_CUT),
    callback_error=maybe(_CUT),
    runs=maybe(
        some(fields(outcome=TEXT, started_at=none_or(TIME), ended_at=none_or(TIME), worker=none_or(TEXT), error=none_or(_CUT)))
    ),
)


_BATCH = fields(
    id=TEXT,
    name=none_or(TEXT),
    status=one_of("open", "running", "canceled", "success", "complete"),
    total=WHOLE,
    open=WHOLE,
    finished=WHOLE,
    failed=WHOLE,
    canceled=WHOLE,
    stopped=WHOLE,
    deleted=WHOLE,
    created_at=none_or(TIME),
    closed_at=none_or(TIME),
    canceled_at=none_or(TIME),
    ended_at=none_or(TIME),
    success_at=none_or(TIME),
    abandoned=FLAG,
    parent=none_or(TEXT),
    on_complete=none_or(TEXT),
    on_success=none_or(TEXT),
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
    "Health": fields(status=TEXT),
    "Readiness": fields(status=TEXT, verdict=one_of("unknown", "healthy", "strained", "unhealthy")),
    "Call": _CALL,
    "PutBackOrCall": {"anyOf": [fields(job_id=TEXT), {**_CALL}]},
    "Accepted": fields(
        job_id=TEXT,
        status=TEXT,
        queue=TEXT,
        priority=WHOLE,
        created_at=none_or(TIME),
        duplicate_of=maybe(TEXT),
        scheduled_at=maybe(none_or(TIME)),
    ),
    "PutBack": {"anyOf": [fields(job_id=TEXT, status=TEXT, delay=NUMBER), ref("Accepted")]},
    "Job": also(_JOB, sheet.SHEET),
    "Tree": fields(
        id=TEXT,
        nodes=some(
            fields(
                id=TEXT,
                status=TEXT,
                queue=none_or(TEXT),
                function=none_or(TEXT),
                level=WHOLE,
                parents=some(fields(id=TEXT, on_failure=one_of("fail", "ignore", "wait"))),
                other_parents=WHOLE,
            )
        ),
        cut=FLAG,
    ),
    "Stopped": fields(job_id=TEXT, status=TEXT, pending=FLAG),
    "Pause": fields(
        duration=maybe({"description": "Seconds, or 90s, 5m, 2h, 1d; none: until it is resumed."}), reason=maybe(none_or(TEXT))
    ),
    "Batch": _BATCH,
    "Batches": fields(batches=some(ref("Batch")), total=WHOLE, offset=WHOLE),
    "BatchWithMembers": also(_BATCH, fields(members=some(fields(id=TEXT, status=none_or(TEXT))), offset=WHOLE)),
    "BatchCanceled": fields(id=TEXT, canceled=WHOLE, running=WHOLE),
    **bulk.SCHEMAS,
    **more.SCHEMAS,
    **of_lists.SCHEMAS,
    **kept.SCHEMAS,
    **sheet.SCHEMAS,
}
