"""A Redis full of what another queue's people have, and a caller who may see one queue alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import redis

from fusion import Job, Queue
from fusion.audit import audited
from fusion.cron.scheduler import Scheduler
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.store.layout.codec import text
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from fusion.web.api import Api
from fusion.web.app import App
from fusion.web.cors import Cors
from fusion.web.exchange import Actor, Request
from fusion.web.routing import SCOPES
from tests.kit.hands import Hand
from tests.store.batch_hands import add, begin
from tests.web.harness import Answer

#: Part of every name of theirs.
MARKER = "zebra"
#: Whose token is restricted to it.
OWN = "sms"
TASK = "tests.jobs.basic.noop"


class Caller:
    """Asks the API itself, as somebody who may do everything with these queues."""

    def __init__(
        self,
        conn: redis.Redis,
        scope: Scope = EVERYTHING,
        name: str = "texts",
        cors: Cors | None = None,
        scopes: Sequence[str] = SCOPES,
    ) -> None:
        actor = Actor(name, frozenset(scopes), scope)
        self._app = App(Api(conn, ["tests.jobs"]).routes(), lambda request: actor, cors=cors)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """One request."""
        raw = b"" if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        given = {"host": "localhost", "content-type": "application/json", **headers}
        request = Request(method, path, given, query=query, length=len(raw), read=lambda size: raw[:size], client="10.0.0.9")
        response = self._app.handle(request)
        body = response.body if response.parts is None else b"".join(response.parts)
        return Answer(response.status, {name.lower(): value for name, value in response.header_list()}, body)


def settle(conn: redis.Redis, queue: str, mark: str) -> None:
    """Jobs of a queue in every state, with all that may hang on a job; every name begins with `mark`."""
    broker = Broker(conn)

    def put(job_id: str, **more: Any) -> None:
        Queue(queue, conn).enqueue(TASK, job_id=f"{mark}-{job_id}", **more)

    hand = Hand(broker, queue, name=f"{mark}-worker.1")
    for state in ("finished", "failed", "started"):
        put(state, callback_url=f"https://{mark}.example/", description=f"{mark} {state}", log_tag=f"{mark}-tag")
        job = hand.take()
        if state != "started":
            fields = {"error_class": f"{mark}.Error", "error_frame": f"{mark}.mod:fn:3", "exc_info": f"{mark} trace"}
            assert hand.tell(job, state, reason=f"{mark}: broken", fields=fields if state == "failed" else {}) == "ok"
    put("queued", meta={mark: mark}, unique_key=f"{mark}-unique", priority="low")
    put("scheduled", enqueue_in=3600)
    put("child", depends_on=f"{mark}-queued")
    put("held", concurrency_key=f"{mark}-key", max_concurrent=1)
    put("blocked", concurrency_key=f"{mark}-key", max_concurrent=1)
    Scheduler(conn).cron("* * * * *", TASK, id=f"{mark}-entry", queue=queue, args=(mark,))
    put("canceled")
    Job(f"{mark}-canceled", {}, conn).cancel()
    put("stopped")
    Job(f"{mark}-stopped", {}, conn).stop()
    put("thrown")
    Job(f"{mark}-thrown", {}, conn).delete()
    with audited(conn, f"token:{mark}", "stop", f"{mark}-stopped", (queue,), reason=mark):
        pass


def deliveries(conn: redis.Redis, mark: str) -> list[str]:
    """Ids of the callbacks that tell of these jobs."""
    found = (text(key).rpartition(":")[2] for key in conn.scan_iter("rq:job:cb-*"))
    return [one for one in found if mark in text(conn.hget(f"rq:job:{one}", "data"))]


def strangers(conn: redis.Redis) -> None:
    """All that others have: of each kind of thing that there is, one with the marker."""
    settle(conn, MARKER, MARKER)
    broker, limits = Broker(conn), LimitBroker(conn)
    begin(broker, f"{MARKER}-batch", name=f"{MARKER} batch")
    add(broker, f"{MARKER}-batch", f"{MARKER}-member", queue=MARKER)
    limits.pin_limit(f"{MARKER}-key", 1)
    limits.pause_limit(f"{MARKER}-key", 600, by=MARKER, reason=MARKER)
    fields = {"action": "requeue", "query": f"queue:{MARKER}", "states": "failed", "by": MARKER, "within": f'["{MARKER}"]'}
    broker.open_operation(f"{MARKER}-operation", fields)
    broker.pause(MARKER, 600, by=MARKER, reason=MARKER)
    counted = [(0, f"1:{what}", 3) for what in ("completed", "failed", "w3", "r9")]
    broker.note_history(f"{MARKER}-history", 1, {("function", MARKER): counted})
    if conn.exists("rq:job:ours-queued"):
        Queue(MARKER, conn).enqueue(TASK, job_id=f"{MARKER}-kid", depends_on="ours-queued")
