"""The Overview: the verdict with what mends it, waits, what runs, what failed; and what it costs."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.dashboard.app import DashboardApp
from fusion.dashboard.pages import findings, overview
from fusion.kernel.timeutil import to_iso
from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from tests.cli.conftest import FakeHands
from tests.dashboard.browser import Browser, audited
from tests.kit.hands import put

HOSTILE = "<script>alert(1)</script>\u202e"


def arrive(conn: redis.Redis, job_id: str, seconds: float) -> None:
    """The job has waited for this long."""
    at = to_iso(Inspector(conn).now() - timedelta(seconds=seconds))
    conn.hset(f"rq:job:{job_id}", mapping={"enqueued_at": at, "created_at": at})


def worker(broker: Broker, *queues: str, state: str = "idle") -> FakeHands:
    made = FakeHands(broker, "web1.1", queues).register()
    broker.connection.hset("rq:worker:web1.1", "state", state)
    return made


def test_a_fleet_without_anything_is_healthy(client: Browser) -> None:
    page = client.get("/")
    assert "healthy" in page.text and "Nothing needs a person" in page.text and "No job runs" in page.text


def test_the_overview_names_the_cause_and_the_command(client: Browser, broker: Broker) -> None:
    put(broker, "sms", "a")
    page = client.get("/")
    assert "unhealthy" in page.text and "sms: 1 job waits (0 end a minute): no live worker serves it" in page.text
    assert 'data-copy="run_worker.py worker sms"' in page.html


@pytest.mark.parametrize(
    ("line", "copied"),
    [
        ("run_worker.py worker sms", "run_worker.py worker sms"),
        ("fusion worker sms", "fusion worker sms"),
        ("kill -HUP the supervisors (systemctl reload fusion) of those of the older one", ""),
        ("redis-cli ACL SETUSER fusion on '>PASSWORD'", "redis-cli ACL SETUSER fusion on '>PASSWORD'"),
        ("once the host answers: run_worker.py callbacks retry --to a", "run_worker.py callbacks retry --to a"),
        ("run_worker.py relay, once more: they share the work", "run_worker.py relay"),
        ("run_worker.py queue show 'a, b'", "run_worker.py queue show 'a, b'"),
        ("upgrade Redis to 6.2 or newer, or Valkey", ""),
    ],
)
def test_the_copy_button_copies_only_the_command(line: str, copied: str) -> None:
    assert findings.command(line) == copied


def test_waits_stand_by_priority_the_longest_first(client: Browser, broker: Broker, conn: redis.Redis) -> None:
    for queue, job, priority, age in (("a", "a1", 1, 50), ("b", "b1", 2, 5), ("c", "c1", 2, 90), ("d", "d1", 0, 900)):
        put(broker, queue, job, priority=priority)
        arrive(conn, job, age)
    found = client.get("/").text.partition("Oldest wait")[2].partition("No job runs")[0]
    assert [found.index(text) for text in ("high c", "high b", "moderate a", "low d")] == sorted(
        found.index(text) for text in ("high c", "high b", "moderate a", "low d")
    )


def test_failures_are_held_against_those_of_an_hour_before() -> None:
    history = [{"failed": 1}] * 10 + [{"failed": 50}] * 50 + [{"failed": 3}] * 10
    assert overview.failures(history) == {"minutes": 10, "now": 30, "before": 10, "worse": True}
    assert not overview.failures([{"failed": 3}] * 70)["worse"]


def test_a_job_that_runs_is_stopped(client: Browser, reader: Browser, broker: Broker, conn: redis.Redis) -> None:
    hands = worker(broker, "q", state="busy")
    put(broker, "q", "slow")
    hands.turn(slots=1)
    page = client.get("/")
    assert "1 job runs" in page.text and "Stop job slow of queue q" in page.html
    assert "Stop" not in [label for _, _, label in reader.get("/").forms()]
    assert reader.send("/running/stop", job="slow").status == 403
    assert "Job slow is being stopped" in client.press(page, "Stop").text
    assert audited(conn, "stop") == ["token:adminer"]


def _paused(broker: Broker) -> None:
    worker(broker, "q")
    put(broker, "q", "a")
    broker.pause("q", by="deploy")
    arrive(broker.connection, "a", 400)


def _busy(broker: Broker) -> None:
    hands = worker(broker, "q")
    put(broker, "q", "slow", "next")
    hands.turn(slots=1)
    broker.connection.hset("rq:worker:web1.1", "state", "busy")
    arrive(broker.connection, "next", 700)


def _suspended(broker: Broker) -> None:
    worker(broker, "q")
    broker.suspend()


def _failing(broker: Broker) -> None:
    hands = worker(broker, "q")
    put(broker, "q", *(f"j{n}" for n in range(6)))
    hands.end("failed", hands.turn(slots=6))


def _stuck(broker: Broker) -> None:
    conn = broker.connection
    hands = worker(broker, "sync")
    Queue("sync", conn).enqueue("tests.jobs.basic.noop", job_id="first", concurrency_key="user:42", max_concurrent=1)
    hands.turn(slots=1)
    Queue("sync", conn).enqueue("tests.jobs.basic.noop", job_id="second", concurrency_key="user:42", max_concurrent=1)
    conn.hset("rq:job:first", "started_at", to_iso(Inspector(conn).now() - timedelta(seconds=1200)))


#: What is wrong, the words on the button, and where it leads to.
MENDED: list[tuple[Callable[[Broker], None], str, str]] = [
    (_paused, "Resume q", "done"),
    (_busy, "Stop slow", "done"),
    (_suspended, "Resume the fleet", "done"),
    (_failing, "Requeue them", "begun, 6 jobs match"),
    (_stuck, "Release user:42 of first", "done"),
]


@pytest.mark.parametrize(("stage", "label", "said"), MENDED, ids=[label for _, label, _ in MENDED])
def test_its_button_mends_it(
    client: Browser, reader: Browser, broker: Broker, stage: Callable[[Broker], None], label: str, said: str
) -> None:
    stage(broker)
    page = client.get("/")
    assert label not in [words for _, _, words in reader.get("/").forms()]
    action, fields, _ = next(form for form in page.forms() if form[2] == label)
    told = client.send(action, None, **fields)
    assert told.status == 303
    if told.headers["location"].startswith("/operations/"):
        assert broker.connection.exists(f"rq:operation:{told.headers['location'].rpartition('/')[2]}")
        return
    assert said in client.get("/").text


def test_a_cause_that_is_over_is_not_mended_twice(client: Browser) -> None:
    assert "finding no longer exists" in client.post("/mend", check="queues", about="q", label="Resume q").text


def test_hostile_names_are_shown_and_run_nothing(client: Browser, conn: redis.Redis) -> None:
    conn.sadd("rq:queues", f"rq:queue:{HOSTILE}")
    conn.zadd(f"rq:queue:{HOSTILE}", {"a": 1.5})
    page = client.get("/")
    assert "<script>alert" not in page.html and "\u202e" not in page.html and "alert(1)" in page.text


def test_a_token_for_some_queues_sees_nothing_of_the_others(restricted: Callable[..., Browser], broker: Broker) -> None:
    hands = worker(broker, "zebra", state="busy")
    put(broker, "zebra", "zebra-runs", "zebra-waits")
    put(broker, "sms", "ours")
    hands.turn(slots=1)
    page = restricted("sms").get("/")
    assert page.status == 200 and "zebra" not in page.html and "1 queue of this token" in page.text and "sms" in page.text


def test_an_unchanged_overview_is_not_sent_again(app: DashboardApp, client: Browser, broker: Broker, conn: redis.Redis) -> None:
    hands = worker(broker, *(f"queue-of-department-{n}" for n in range(30)), state="busy")
    for n in range(30):
        put(broker, f"queue-of-department-{n}", *(f"job-{n}-{m}" for m in range(3)))
        conn.zadd("rq:history:queues", {f"queue-of-department-{n}": 1})
    hands.turn(slots=8)
    now = int(conn.time()[0]) // 60
    for minute in range(now - 70, now + 1):
        key, place = f"rq:history:minute:queue:queue-of-department-1:{minute // 60}", minute % 60
        figures: dict[Any, Any] = {
            f"{place}:{priority}:{what}": minute * 37 % 991
            for priority in range(3)
            for what in ("completed", "failed", "w3", "w9")
        }
        conn.hset(key, mapping=figures)
    first = client.get("/", accept_encoding="gzip")
    tick = client.get("/", accept_encoding="gzip", hx_request="true")
    files = [client.get(address, accept_encoding="gzip") for address in _files(first.html)]
    assert len(files) == 5
    assert len(first.body) + sum(len(one.body) for one in files) < 60_000
    assert len(tick.body) < 8_000 and tick.headers["content-encoding"] == "gzip"
    assert gzip.decompress(tick.body).count(b"data-row") == 20
    same = client.get("/", accept_encoding="gzip", hx_request="true", if_none_match=tick.headers["etag"])
    assert (same.status, same.body) == (304, b"")


def _files(html: str) -> list[str]:
    return re.findall(r'(?:src|href)="(/static/[^"]+)"', html)


def test_held_jobs_stand_with_what_they_wait_for(client: Browser, broker: Broker, conn: redis.Redis) -> None:
    worker(broker, "q")
    put(broker, "q", "a")
    conn.hset("rq:waits", "held:q:tasks.unknown.send", "1 no worker has it: start one with --tasks tasks")
    conn.zadd("rq:waits:held:q:tasks.unknown.send", {"a": 1})
    page = client.get("/")
    assert "Held jobs" in page.text and "tasks.unknown.send" in page.text and "q=is%3Aheld+queue%3Aq" in page.html
