"""A key of a wrong type hides nothing but itself: what looks names it and shows the rest."""

from __future__ import annotations

import json
import socket

import pytest
import redis

from fusion import Queue, Scheduler
from tests.cli.conftest import Hands, Invoke
from tests.jobs import basic

#: Key -> the type that it should be of.
INFO = {
    "rq:queues": "a set",
    "rq:workers": "a set",
    "rq:queue:failed": "a sorted set",
    "rq:scheduler:scheduled_jobs": "a sorted set",
    "rq:dropped": "a hash",
    "rq:callback_errors": "a hash",
    "rq:schedulers": "a sorted set",
    "rq:cron:due": "a sorted set",
    "rq:wip:sms": "a sorted set",
    "rq:finished:sms": "a sorted set",
    "rq:worker:box.1": "a hash",
    "rq:cron:entry:e": "a hash",
}


def world(conn: redis.Redis, hands: Hands) -> None:
    for name in ("box.1", "box.2"):
        hands("sms", name=name).register()
        conn.hset(f"rq:worker:{name}", "hostname", socket.gethostname())
    for queue in ("sms", "email"):
        Queue(queue).enqueue(basic.noop)
    Queue("sms").enqueue_in(600, basic.noop)
    Scheduler().every(3600, basic.noop, id="e")
    Scheduler().every(3600, basic.noop, id="other")


def spoil(conn: redis.Redis, key: str) -> None:
    conn.delete(key)
    conn.set(key, "theirs")


@pytest.mark.parametrize("key", INFO)
def test_info_names_the_key_and_shows_the_rest(invoke: Invoke, conn: redis.Redis, hands: Hands, key: str) -> None:
    world(conn, hands)
    spoil(conn, key)
    sentence = f"{key} should be {INFO[key]} and is something else"
    said = invoke("info").stdout
    assert sentence in said
    for part, of in (("email", "rq:queues"), ("box.2", "rq:workers"), ("1 scheduled", "rq:scheduler:scheduled_jobs")):
        assert (part in said) == (key != of), part
    document = json.loads(invoke("info", "--json").stdout)
    assert [line for line in document["broken"] if sentence in line]
    assert invoke("info", "-r").stdout


def test_info_of_sound_keys_says_nothing_of_broken_ones(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    world(conn, hands)
    assert json.loads(invoke("info", "--json").stdout)["broken"] == []
    assert "should be" not in invoke("info").stdout


def test_health_without_the_list_of_workers_can_not_tell(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    world(conn, hands)
    spoil(conn, "rq:workers")
    assert "rq:workers should be a set" in invoke("health", code=1).stderr
    assert "rq:workers should be a set" in str(json.loads(invoke("health", "--json", code=1).stdout)["reasons"])
    assert invoke("health", "--worker", "box.1").stdout == "box.1: alive, started\n"
    assert invoke("health", "--worker", "nobody", code=3).stderr == "no worker nobody is registered\n"


def test_health_goes_by_the_workers_that_can_be_read(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    world(conn, hands)
    spoil(conn, "rq:worker:box.1")
    assert invoke("health").stdout == "box.2: alive, started\n"
    assert "rq:worker:box.1 should be a hash" in invoke("health", "--worker", "box.1", code=1).stderr


@pytest.mark.parametrize(
    ("command", "key", "kind", "rest"),
    [
        ("failures", "rq:queue:failed", "a sorted set", ""),
        ("failures", "rq:callback_errors", "a hash", "No failed jobs"),
        ("scheduled", "rq:scheduler:scheduled_jobs", "a sorted set", ""),
        ("cron list", "rq:cron:due", "a sorted set", ""),
        ("cron list", "rq:cron:marks", "a sorted set", "other"),
        ("cron list", "rq:schedulers", "a sorted set", "other"),
        ("cron list", "rq:cron:entry:e", "a hash", "other"),
        ("events stats", "rq:events", "a stream", "Stream: 0 events"),
        ("events stats", "rq:events:meta", "a hash", "Stream: "),
        ("events stats", "rq:relays", "a sorted set", "log "),
        ("events stats", "rq:sink:log", "a hash", "other "),
        ("events stats", "rq:events:parked:log", "a stream", "log "),
        ("callbacks list", "rq:queue:failed", "a sorted set", "No callbacks"),
        ("callbacks list", "rq:callbacks:gone", "a sorted set", "No callbacks"),
    ],
)
def test_a_list_with_a_broken_key_shows_the_rest_and_names_the_key(
    invoke: Invoke, conn: redis.Redis, hands: Hands, command: str, key: str, kind: str, rest: str
) -> None:
    world(conn, hands)
    for sink in ("log", "other"):
        conn.xgroup_create("rq:events", sink, "0")
    spoil(conn, key)
    done = invoke(*command.split(), code=1)
    assert rest in done.stdout
    assert bool(rest) == bool(done.stdout), "nothing is printed of what is not known"
    assert done.stderr.startswith(f"Error: {key} should be {kind} and is something else")
    assert done.stderr.count("\n") == 1
