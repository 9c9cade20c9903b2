"""What the answers hold of lists that are not of jobs and queues."""

from __future__ import annotations

from fusion.views.base import schema
from fusion.views.limit import KeyView
from fusion.views.queue import KeylessView
from fusion.views.scheduler import SchedulerView
from fusion.web.openapi.shapes import (
    ANYTHING,
    FLAG,
    NUMBER,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    also,
    by_name,
    fields,
    maybe,
    none_or,
    one_of,
    ref,
    some,
)

_LAST_JOB = none_or(fields(id=TEXT, status=TEXT))

_ENTRY = fields(
    id=TEXT,
    when=none_or(TEXT),
    words=none_or(TEXT),
    plan=none_or(by_name(ANYTHING)),
    function=none_or(TEXT),
    priority=none_or(WHOLE),
    queue=none_or(TEXT),
    misfire=none_or(TEXT),
    misfire_grace=none_or(NUMBER),
    overlap=none_or(TEXT),
    jitter=none_or(NUMBER),
    state=one_of("active", "paused", "ended", "waits", "error"),
    next=none_or(TIME),
    last=none_or(TIME),
    mark=none_or(TIME),
    last_job=_LAST_JOB,
    manual_job=_LAST_JOB,
    app=none_or(TEXT),
    version=none_or(TEXT),
    declared_at=none_or(TIME),
    paused=none_or(TIME),
    errors=some(TEXT),
    faults=some(TEXT),
    enqueued=WHOLE,
    missed=WHOLE,
    overlapped=WHOLE,
)

_CALLBACK = fields(
    id=TEXT,
    status=one_of("waiting", "retrying", "failed", "delivered", "canceled"),
    to=TEXT,
    job_id=TEXT,
    queue=TEXT,
    job_status=TEXT,
    tries=WHOLE,
    answer=none_or(TEXT),
    created_at=none_or(TIME),
    ended_at=none_or(TIME),
    next_at=none_or(TIME),
)

_MEND = fields(
    label=TEXT, scope=one_of("operate", "admin"), calls=some(fields(method=one_of("POST"), path=TEXT, body=by_name(ANYTHING)))
)
_FINDING = fields(level=one_of("note", "warn", "fail"), check=TEXT, about=TEXT, what=TEXT, fix=some(TEXT), mend=none_or(_MEND))
_VERDICT = fields(verdict=one_of("healthy", "strained", "unhealthy"), ended_per_minute=NUMBER, causes=some(_FINDING))

SCHEMAS: dict[str, Schema] = {
    "CronEntries": fields(schedulers=some(TEXT), entries=some(_ENTRY)),
    "CronEntry": also(
        _ENTRY,
        fields(
            coming=some(fields(local=TEXT, utc=none_or(TIME), note=none_or(TEXT))),
            decisions=some(
                fields(
                    tick=TIME,
                    at=TIME,
                    late=none_or(NUMBER),
                    outcome=TEXT,
                    missed=none_or(WHOLE),
                    job=none_or(TEXT),
                    status=none_or(TEXT),
                )
            ),
        ),
    ),
    "CronRun": fields(id=TEXT, job_id=TEXT),
    "CronRemoved": fields(id=TEXT, removed=FLAG, declared_by=none_or(TEXT)),
    "Force": fields(force=maybe({"type": "boolean", "description": "Although a job of it has not ended."})),
    "CronPaused": fields(id=TEXT, paused=FLAG),
    "Callback": _CALLBACK,
    "Callbacks": fields(
        callbacks=some(ref("Callback")),
        offset=WHOLE,
        more=FLAG,
        complete=maybe(FLAG),
        dropped=maybe(WHOLE),
        refused=maybe(WHOLE),
        gone=maybe(WHOLE),
    ),
    "CallbackRetried": fields(id=TEXT, retried=FLAG),
    "KeyLimit": fields(max_concurrent=maybe(none_or(WHOLE)), rate=maybe(none_or(TEXT))),
    "JobId": fields(job_id=TEXT),
    "Suspend": fields(duration=maybe({"description": "Seconds, or 90s, 5m, 2h, 1d; none: until they are resumed."})),
    "Suspended": fields(suspended=FLAG, duration=none_or(WHOLE)),
    "FleetResumed": fields(suspended=FLAG, was=FLAG),
    "Info": fields(
        at=TIME,
        verdict=_VERDICT,
        queues=WHOLE,
        workers=WHOLE,
        suspended=FLAG,
        failed=WHOLE,
        scheduled=WHOLE,
        dropped=by_name(WHOLE),
        held=WHOLE,
        blocked=some(fields(kind=TEXT, queue=TEXT, task=TEXT, count=WHOLE, since=none_or(TIME), why=TEXT)),
        stuck=some(schema(KeyView)),
        keyless=some(schema(KeylessView)),
        callback_errors=none_or(fields(count=WHOLE, job_id=TEXT, at=none_or(TIME))),
        callbacks=by_name(WHOLE),
        schedulers=some(schema(SchedulerView)),
        cron=fields(entries=WHOLE, paused=WHOLE, errors=WHOLE),
        broken=some(TEXT),
    ),
    "Doctor": also(_VERDICT, fields(checks=some(TEXT), findings=some(_FINDING))),
    "Running": fields(
        at=TIME,
        running=some(
            fields(
                id=TEXT,
                queue=TEXT,
                function=TEXT,
                worker=TEXT,
                started_at=none_or(TIME),
                seconds=none_or(NUMBER),
                timeout=none_or(NUMBER),
                done=none_or(NUMBER),
                attempt=WHOLE,
            )
        ),
        last_failed=some(fields(id=TEXT, queue=TEXT, function=TEXT, error=TEXT, at=none_or(TIME))),
    ),
    "RedisServer": fields(
        at=TIME,
        engine=one_of("Redis", "Valkey"),
        version=TEXT,
        role=TEXT,
        replicas=WHOLE,
        started_at=TIME,
        memory=fields(
            used=none_or(WHOLE),
            peak=none_or(WHOLE),
            rss=none_or(WHOLE),
            max=none_or(WHOLE),
            policy=TEXT,
            fragmentation=none_or(NUMBER),
            evicted_keys=none_or(WHOLE),
        ),
        persistence=fields(
            appends=FLAG,
            append_failed=FLAG,
            snapshot_at=none_or(TIME),
            snapshot_failed=FLAG,
            unsaved_changes=none_or(WHOLE),
        ),
        clients=fields(connected=none_or(WHOLE), blocked=none_or(WHOLE), max=none_or(WHOLE)),
        commands_per_second=none_or(NUMBER),
        keys=WHOLE,
        ping=none_or(fields(p50=NUMBER, max=NUMBER)),
        commands=some(fields(name=TEXT, calls=WHOLE, seconds=NUMBER, p99=none_or(NUMBER))),
        slow=none_or(some(fields(at=none_or(TIME), seconds=NUMBER, name=TEXT))),
        findings=some(_FINDING),
    ),
    "Scheduled": fields(
        at=TIME,
        total=WHOLE,
        offset=WHOLE,
        jobs=some(fields(id=TEXT, due_at=TIME, due_in=NUMBER, queue=none_or(TEXT), function=none_or(TEXT), why=TEXT)),
    ),
    "Reschedule": fields(when={"description": "Seconds from now, 90s, 5m, 2h, 1d, or a time with its zone; 0 is now."}),
    "Rescheduled": fields(job_id=TEXT, due_at=TIME),
    "Sinks": fields(
        stream=fields(length=WHOLE, cap=WHOLE, epoch=TEXT, last=WHOLE, first_at=none_or(TIME)),
        sinks=some(
            fields(
                name=TEXT,
                state=one_of("delivering", "failing", "open", "unserved"),
                behind=WHOLE,
                oldest_seconds=NUMBER,
                delivered=WHOLE,
                parked=WHOLE,
                dropped=WHOLE,
                failing_since=none_or(TIME),
                failures=WHOLE,
                breaker_open=FLAG,
                last_error=none_or(TEXT),
                last_error_at=none_or(TIME),
                last_event=none_or(TEXT),
                last_event_at=none_or(TIME),
                served_seconds_ago=none_or(NUMBER),
            )
        ),
        relays=some(
            fields(name=TEXT, hostname=TEXT, pid=WHOLE, sinks=some(TEXT), busy=none_or(TEXT), alive=FLAG, heartbeat_age=NUMBER)
        ),
    ),
}
