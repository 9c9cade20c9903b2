"""`queue set | show` on a real Redis."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis

from fusion import Queue
from tests.cli.conftest import Invoke

SMS = "tasks.sms.sendSMS"
NONE = {"max_concurrent": None, "rate": None, "burst": None, "max_wait": None, "max_queue_length": None, "queue_timeout": None}


@pytest.fixture
def used(conn: redis.Redis) -> redis.Redis:
    Queue("sms", conn).enqueue(SMS)
    Queue("email", conn).enqueue(SMS)
    return conn


def shown(invoke: Invoke, *queues: str) -> list[dict[str, Any]]:
    found = json.loads(invoke("queue", "show", *queues, "--json").stdout)["queues"]
    return [{name: one[name] for name in ("name", *NONE)} for one in found]


def test_limits_of_a_queue_are_set_shown_and_removed(invoke: Invoke, used: redis.Redis) -> None:
    assert "Nothing is set" in invoke("queue", "show").stdout
    told = invoke("queue", "set", "sms", "--limit", "20", "--rate", "100/60s", "--burst", "5", "--max-wait", "5m").stdout
    assert told == "sms: limit 20, rate 100/60s, burst 5, max wait 300 s\n"
    told = invoke("queue", "set", "sms", "--max-length", "1000", "--timeout", "90").stdout
    assert told == "sms: limit 20, rate 100/60s, burst 5, max wait 300 s, max length 1000, timeout 90 s\n"
    assert used.hget("rq:gates", "sms") == b"limit=20 rate=100/60000/5 max_wait=300000 max_length=1000 timeout=90000"
    assert shown(invoke) == [
        {
            "name": "sms",
            "max_concurrent": 20,
            "rate": "100/60s",
            "burst": 5,
            "max_wait": 300,
            "max_queue_length": 1000,
            "queue_timeout": 90,
        }
    ]
    lines = [line.split() for line in invoke("queue", "show", "*").stdout.splitlines()]
    assert lines[1:] == [["email", "-", "-", "-", "-", "-", "-"], ["sms", "20", "100/60s", "5", "300", "s", "1000", "90", "s"]]
    assert shown(invoke, "email") == [{"name": "email", **NONE}]
    said = invoke("info").stdout
    assert "Bounds are set for sms; to see these:" in said
    invoke("queue", "set", "sms", "--no-limit", "--no-rate", "--no-max-wait", "--no-max-length")
    assert used.hget("rq:gates", "sms") == b"timeout=90000"
    assert invoke("queue", "set", "sms", "--no-timeout").stdout == "sms: nothing is set\n"
    assert not used.exists("rq:gates")
    assert "Bounds are set" not in invoke("info").stdout


def test_a_full_queue_is_named_with_what_to_do(invoke: Invoke, used: redis.Redis) -> None:
    invoke("queue", "set", "sms", "--max-length", "1")
    assert "to set another number:" in invoke("info").stdout


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ((), "give a limit to set"),
        (("--limit", "0"), "limit"),
        (("--rate", "fast"), "rate"),
        (("--burst", "3"), "--burst goes with --rate"),
        (("--no-rate", "--burst", "3"), "burst"),
        (("--limit", "3", "--no-limit"), "exclude each other"),
        (("--max-wait", "-1"), "max_wait"),
        (("--timeout", "soon"), "timeout"),
        (("--max-length", "0"), "max_length"),
    ],
)
def test_queue_set_refuses_invalid_limits(invoke: Invoke, used: redis.Redis, args: tuple[str, ...], told: str) -> None:
    assert told in invoke("queue", "set", "sms", *args, code=2).stderr
    assert not used.exists("rq:gates")


def test_a_queue_that_nobody_knows_is_refused_unless_it_is_meant(invoke: Invoke, used: redis.Redis) -> None:
    assert "did you mean sms?" in invoke("queue", "set", "smss", "--limit", "3", code=1).stderr
    assert not used.exists("rq:gates")
    invoke("queue", "set", "smss", "--limit", "3", "--yes")
    assert [one["name"] for one in shown(invoke)] == ["smss"]
    assert "reserved" in invoke("queue", "set", "failed", "--limit", "3", code=2).stderr
