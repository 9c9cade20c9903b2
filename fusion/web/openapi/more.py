"""What the answers hold of lists that are not of one queue."""

from __future__ import annotations

from fusion.web.openapi.shapes import FLAG, NUMBER, TEXT, TIME, WHOLE, Schema, also, by_name, fields, none_or, some

_GROUP = fields(
    id=TEXT,
    error_class=TEXT,
    message=TEXT,
    error_frame=none_or(TEXT),
    frame=none_or(TEXT),
    count=WHOLE,
    quarantined=WHOLE,
    total=WHOLE,
    last_hour=WHOLE,
    last_day=WHOLE,
    first_seen=none_or(TIME),
    last_seen=none_or(TIME),
    queues=by_name(WHOLE),
    example=none_or(TEXT),
    hours=some(WHOLE),
    trend=some(WHOLE),
)
_PAGE = fields(offset=WHOLE, complete=FLAG)

_FOUND = fields(
    id=TEXT,
    status=TEXT,
    queue=TEXT,
    function=none_or(TEXT),
    since=none_or(TIME),
    priority=WHOLE,
    log_tag=none_or(TEXT),
    attempts=WHOLE,
    worker=none_or(TEXT),
    error=none_or({"type": "object", "properties": {"class": TEXT, "at": none_or(TEXT)}}),
    quarantined=FLAG,
    scheduled_at=none_or(TIME),
    waits_for=none_or(TEXT),
    progress_percent=none_or(NUMBER),
)

SCHEMAS: dict[str, Schema] = {
    "Failures": also(fields(groups=some(_GROUP), total=WHOLE), _PAGE),
    "Failure": also(_GROUP, fields(minutes=some(fields(at=TIME, failed=WHOLE)), jobs=some(TEXT)), _PAGE),
    "Jobs": fields(
        query=TEXT,
        jobs=some(_FOUND),
        after=none_or(TEXT),
        looked=WHOLE,
        total=WHOLE,
        complete=FLAG,
        note=none_or(TEXT),
        broken=some(TEXT),
    ),
}
