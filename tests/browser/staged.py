"""A Redis that holds one of everything: our queue's, another queue's, what strangers wrote, and secrets."""

from __future__ import annotations

import json

import redis

from fusion import Queue
from fusion.jobs.failure_groups import group_id
from fusion.store.write.broker import Broker
from tests.cli.conftest import FakeHands
from tests.cli.test_every_command import plant_more
from tests.store.batch_hands import add
from tests.web.strangers import TASK, settle, strangers

#: Does something where it is not escaped.
MARKUP = "<img src=x onerror=\"document.title='pwned'\"><script>document.title='pwned'</script>'\"&lt;{{7*7}}</table>"
#: What stands in the address of a page for its names, by the first word of its path.
NAMES = {
    "batches": "batch",
    "cron": "ours-entry",
    "failures": group_id("ours.Error", "ours.mod:fn"),
    "jobs": "ours-failed",
    "keys": "k",
    "limit": "k",
    "limits": "k",
    "operations": "zebra-operation",
    "queues": "sms",
    "tasks": TASK,
    "trash": "ours-thrown",
    "workers": "failing.1",
}


def stage(conn: redis.Redis) -> None:
    """Plant it all. FUSION_REDIS_URL must name the same Redis."""
    settle(conn, "sms", "ours")
    strangers(conn)
    plant_more(conn, lambda *queues, name="web1.4711": FakeHands(Broker(conn), name, queues))
    for nth in range(30):
        Queue("sms", conn).enqueue(
            TASK, job_id=f"many-{nth}", description="a description of some length, as people write them " * 2
        )
    counted = [(0, f"1:{what}", 3) for what in ("completed", "failed", "w3", "r9")]
    Broker(conn).note_history("web1.4711", 1, {("function", TASK): [*counted, (0, "slowest", 7400), (0, "peak", 310_000_000)]})
    conn.persist("rq:worker:failing.1")  # those who look take their time
    _draw(conn)
    _mark(conn)


def _draw(conn: redis.Redis) -> None:
    """A graph on the page of the batch, with a box of each colour, and one on the page of the job. A member has no record any more."""
    states = ("finished", "failed", "started", "canceled", "queued", "gone", "blocked")
    add(Broker(conn), "batch", *(f"drawn-{state}" for state in states), queue="sms", func=TASK)
    for state in states:
        conn.hset(
            f"rq:job:drawn-{state}", mapping={"status": state, "parents": "[]" if state == states[0] else '["drawn-finished"]'}
        )
    conn.delete("rq:job:drawn-gone")
    conn.hset("rq:batch:batch", "on_success", "many-1")
    conn.hset("rq:job:many-0", mapping={"parents": '["ours-failed"]', "func": MARKUP})
    conn.zadd("rq:job:ours-failed:children", {"many-0": 1})


def _mark(conn: redis.Redis) -> None:
    """Markup wherever a page may look."""
    Queue("sms", conn).enqueue(TASK, job_id="marked")
    conn.hset("rq:job:marked", mapping=dict.fromkeys(("description", "log_tag", "reason", "worker_name", "origin"), MARKUP))
    conn.hset("rq:job:ours-failed", mapping=dict.fromkeys(("description", "log_tag", "exc_info", "reason"), MARKUP))
    conn.sadd("rq:queues", "rq:queue:" + MARKUP)
    conn.zadd("rq:queue:" + MARKUP, {"marked": 1})
    conn.sadd("rq:workers", "rq:worker:" + MARKUP)
    conn.hset("rq:worker:" + MARKUP, mapping={"state": MARKUP, "queues": MARKUP, "hostname": MARKUP, "current_job": MARKUP})
    conn.hset("rq:cron:entry:ours-entry", mapping={"error": MARKUP, "app": MARKUP})
    conn.xadd("rq:events", {"event": MARKUP, "job_id": MARKUP, "queue": MARKUP, "reason": MARKUP})
    conn.hset("rq:sink:log", mapping={"error": json.dumps(MARKUP)})
