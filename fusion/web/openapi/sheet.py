"""What the answers about one job hold."""

from __future__ import annotations

from fusion.web.openapi.shapes import FLAG, NUMBER, TEXT, TIME, WHOLE, Schema, fields, maybe, none_or, one_of, some

_KIN: dict[str, Schema] = {"id": TEXT, "status": TEXT, "queue": none_or(TEXT), "function": none_or(TEXT)}
_TRY = fields(
    outcome=TEXT,
    started_at=none_or(TIME),
    ended_at=none_or(TIME),
    seconds=none_or(NUMBER),
    worker=TEXT,
    error_class=none_or(TEXT),
    signal=none_or(WHOLE),
    exit_code=none_or(WHOLE),
    ending=none_or(TEXT),
    oom_likely=FLAG,
    peak_memory=none_or(WHOLE),
    error=maybe(none_or(TEXT)),
)
_RUN = fields(
    worker=none_or(TEXT),
    worker_alive=FLAG,
    since=none_or(TIME),
    seconds=none_or(NUMBER),
    timeout=none_or(NUMBER),
    used=none_or(NUMBER),
    lease_until=none_or(TIME),
    lease_left=none_or(NUMBER),
    ahead=FLAG,
    told=none_or(TEXT),
)
_STEP = {
    "type": "object",
    "properties": {
        "at": TIME,
        "state": TEXT,
        "seconds": none_or(NUMBER),
        "worker": none_or(TEXT),
        "cause": none_or(TEXT),
        "from": one_of("event", "record"),
        "why": none_or(TEXT),
    },
    "required": ["at", "state", "seconds", "worker", "cause", "from"],
    "additionalProperties": False,
}
_LIMITS = fields(
    key=TEXT,
    max_concurrent=none_or(WHOLE),
    rate=none_or(TEXT),
    has_slot=FLAG,
    held=none_or(WHOLE),
    waiting=none_or(WHOLE),
    ahead=none_or(WHOLE),
    paused=FLAG,
    holders=some(fields(**_KIN)),
)
_UNIQUE = fields(
    key=none_or(TEXT),
    until=TEXT,
    window=none_or(NUMBER),
    has_it=FLAG,
    holder=none_or(TEXT),
    free_in=none_or(NUMBER),
)
_DELIVERY = fields(id=TEXT, status=TEXT, tries=WHOLE, next_at=none_or(TIME), answer=maybe(none_or(TEXT)))
_CALLBACK = fields(on=TEXT, function=none_or(TEXT), url=none_or(TEXT), delivery=none_or(_DELIVERY))
_EVENT = fields(at=TIME, event=TEXT, worker=none_or(TEXT), attempts=none_or(WHOLE), log=FLAG, message=maybe(none_or(TEXT)))
_TIMES = fields(
    timeout=none_or(NUMBER),
    ttl=none_or(NUMBER),
    expires_at=none_or(TIME),
    result_ttl=none_or(NUMBER),
    failure_ttl=none_or(NUMBER),
    kept_until=none_or(TIME),
)
#: What is known of a job beside what its record says.
SHEET = fields(
    function=none_or(TEXT),
    last_updated=TIME,
    state_since=none_or(TIME),
    waits=some(fields(code=TEXT, text=TEXT, ahead=none_or(WHOLE), until=none_or(TIME))),
    run=none_or(_RUN),
    timeline=fields(steps=some(_STEP), complete=FLAG),
    tries=some(_TRY),
    retry=fields(policy=TEXT, left=none_or(WHOLE), next_at=none_or(TIME)),
    limits=none_or(_LIMITS),
    fair_key=none_or(TEXT),
    unique=none_or(_UNIQUE),
    parents=fields(
        total=WHOLE, more=FLAG, jobs=some(fields(**_KIN, on_failure=one_of("fail", "ignore", "wait"), waited_for=FLAG))
    ),
    children=fields(total=WHOLE, jobs=some(fields(**_KIN))),
    batch=none_or(fields(id=TEXT, name=none_or(TEXT), state=TEXT, **{"is": TEXT})),
    in_chain=FLAG,
    cron=none_or(TEXT),
    failure_group=none_or(TEXT),
    copied_from=none_or(TEXT),
    copied_to=some(TEXT),
    replaces=none_or(TEXT),
    replaced_by=none_or(TEXT),
    times=_TIMES,
    callbacks=some(_CALLBACK),
    signature=fields(state=one_of("signed", "unsigned", "bad", "unchecked"), why=none_or(TEXT)),
    size=fields(bytes=WHOLE, too_large=some(TEXT)),
    events=fields(entries=some(_EVENT), complete=FLAG),
    description=maybe(none_or(TEXT)),
    arguments=maybe(none_or(TEXT)),
    meta=maybe(none_or(TEXT)),
    cursor=maybe(none_or(TEXT)),
    returned=maybe(none_or(TEXT)),
    reason_text=maybe(none_or(TEXT)),
    result_error=maybe(none_or(TEXT)),
    callback_error_text=maybe(none_or(TEXT)),
    quarantined_for=maybe(none_or(TEXT)),
    trace=maybe(fields(lines=some(TEXT), of=WHOLE)),
)
