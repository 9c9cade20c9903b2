"""`limit list | show | set | release | pause | resume` on a real Redis."""

from __future__ import annotations

import json
import re
import time

import pytest
import redis

from fusion import Queue
from tests.cli.conftest import FakeHands, Hands, Invoke
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import everything

SMS = "tasks.sms.sendSMS"


def give(conn: redis.Redis, key: str, *ids: str, limit: int = 1) -> None:
    for job_id in ids:
        Queue("sms", conn).enqueue(SMS, job_id=job_id, concurrency_key=key, max_concurrent=limit)


@pytest.fixture
def worker(conn: redis.Redis, hands: Hands) -> FakeHands:
    """`a` of user:42 runs, `b` and `c` are blocked; `x` of other waits in its queue."""
    worker = hands("sms", name="w.1").register()
    give(conn, "user:42", "a", "b", "c")
    assert [job.id for job in worker.turn(slots=1)] == ["a"]
    time.sleep(0.002)  # of two that were used in the same millisecond, either may come first
    give(conn, "other", "x", limit=3)
    return worker


def started(worker: FakeHands) -> list[str]:
    return [job.id for job in worker.turn(slots=9)]


def keys_of(invoke: Invoke, *args: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(invoke("limit", *args, "--json").stdout)["keys"]
    return found


def test_looking(invoke: Invoke, conn: redis.Redis, worker: FakeHands) -> None:
    before = everything(conn)
    lines = [line.split() for line in invoke("limit", "list").stdout.splitlines()]
    assert lines[0] == ["KEY", "LIMIT", "RATE", "ACTIVE", "HELD", "BLOCKED", "USED"]
    assert [line[:6] for line in lines[1:]] == [["other", "3", "-", "0", "1", "0"], ["user:42", "1", "-", "1", "1", "2"]]
    said = invoke("limit", "show", "user:42").stdout.splitlines()
    assert said[0] == "user:42: 1 at once; 1 active, 1 slots held, 2 blocked"
    assert [line.split()[:3] for line in said[1:]] == [["JOB", "QUEUE", "STATE"], ["a", "sms", "started"]]
    assert "x    sms    queued, not started" in invoke("limit", "show", "other", "user:42").stdout
    first, second = keys_of(invoke, "list")
    assert (first["key"], second["key"]) == ("other", "user:42")
    assert keys_of(invoke, "show", "user:42") == [second]
    assert {name: second[name] for name in ("max_concurrent", "pinned", "active_count", "held_count", "blocked_count", "paused", "stuck")} == {
        "max_concurrent": 1, "pinned": False, "active_count": 1, "held_count": 1, "blocked_count": 2, "paused": False, "stuck": False,
    }  # fmt: skip
    assert [key["key"] for key in keys_of(invoke, "list", "--offset", "1")] == ["user:42"]
    assert "More: run_worker.py limit list --offset 1" in invoke("limit", "list", "--limit", "1").stdout
    assert everything(conn) == before


def test_limit_commands_without_any_key(invoke: Invoke, conn: redis.Redis) -> None:
    assert invoke("limit", "list").stdout == "No concurrency keys\n"
    assert invoke("limit", "list", "--stuck").stdout == "No key is stuck\n"
    assert invoke("limit", "show", "nobody", code=1).stderr == (
        "Error: no job has the concurrency key nobody, and nothing is set for it; `run_worker.py limit list` lists all keys\n"
    )


def test_set_holds_whatever_jobs_say(invoke: Invoke, conn: redis.Redis, worker: FakeHands) -> None:
    told = invoke("limit", "set", "user:42", "2")
    assert (told.stdout, told.stderr) == ("user:42: 2 at once (pinned)\n", "")
    give(conn, "user:42", "d", limit=9)
    assert started(worker) == ["b", "x"]
    assert "* set here" in invoke("limit", "list").stdout
    assert invoke("limit", "set", "user:42", "--rate", "5/2m").stdout == "user:42: 2 at once (pinned), 5/120s (pinned)\n"
    assert invoke("limit", "set", "user:42", "--no-limit", "--no-rate").stdout == "user:42: 9 at once\n"
    assert started(worker) == ["c", "d"]
    assert set(check_conservation(conn, "abcdx").values()) == {"started"}


def test_a_limit_for_jobs_to_come(invoke: Invoke, conn: redis.Redis, hands: Hands) -> None:
    told = invoke("limit", "set", "smtp", "2", "--rate", "100/60s")
    assert told.stderr == "No job has the concurrency key smtp: this binds only jobs that are enqueued with it\n"
    give(conn, "smtp", "a", "b", "c", limit=9)
    assert set(check_conservation(conn, "abc").items()) == {("a", "queued"), ("b", "blocked"), ("c", "blocked")}, (
        "the rate's burst is 1"
    )
    (key,) = keys_of(invoke, "list")
    assert (key["max_concurrent"], key["pinned"], key["rate"], key["rate_pinned"]) == (2, True, "100/60s", True)


def test_pause_and_resume(invoke: Invoke, conn: redis.Redis, worker: FakeHands) -> None:
    said = invoke("limit", "pause", "user:42", "other", "--duration", "10m", "--reason", "the provider is down").stdout
    assert said == "user:42 is paused for 600 seconds\nother is paused for 600 seconds\n"
    assert started(worker) == []
    line = invoke("limit", "show", "user:42").stdout.splitlines()[1]
    assert re.fullmatch(
        r"Paused for (10|9) min more, since [\d.]+ s by \S+@\S+: the provider is down; to go on: \S+ limit resume user:42", line
    )
    assert invoke("limit", "list").stdout.count(" paused\n") == 2
    pause = keys_of(invoke, "show", "user:42")[0]["pause"]
    assert isinstance(pause, dict)
    assert (pause["reason"], bool(pause["since"]), bool(pause["until"])) == ("the provider is down", True, True)
    assert (
        invoke("limit", "resume", "user:42", "other", "nobody").stdout
        == "user:42 goes on\nother goes on\nnobody was not paused\n"
    )
    assert started(worker) == ["x"]
    assert invoke("limit", "pause", "other").stdout == "other is paused\n"
    assert keys_of(invoke, "show", "other")[0]["pause"]["until"] is None  # type: ignore[index]


def test_release(invoke: Invoke, conn: redis.Redis, worker: FakeHands) -> None:
    result = invoke("limit", "release", "user:42", "a", "b", code=1)
    assert result.stdout == "a no longer holds a slot of user:42\n"
    assert (
        result.stderr
        == "Unable to release b: it runs with no slot of user:42; `run_worker.py limit show user:42` lists those that do\n"
    )
    assert started(worker) == ["b", "x"]
    assert "Unable to release a" in invoke("limit", "release", "user:42", "a", code=1).stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["set", "k"], "give N or --rate"),
        (["set", "k", "2", "--no-limit"], "exclude each other"),
        (["set", "k", "--rate", "1/s", "--no-rate"], "exclude each other"),
        (["set", "k", "0"], "0 is not in the range"),
        (["set", "k", "--rate", "often"], "'often': write how many may start in how long"),
        (["set", "two words", "1"], "'two words': use a text of 1 to 200 characters without spaces"),
        (["show", "ok", "two words"], "'two words': use a text of 1 to 200 characters without spaces"),
        (["pause", "k", "--duration", "0"], "use a duration over 0"),
        (["release", "k"], "Missing argument 'JOB_ID...'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_limit_refuses_wrong_arguments(invoke: Invoke, conn: redis.Redis, args: list[str], message: str) -> None:
    assert message in invoke("limit", *args, code=2).stderr
    assert not conn.keys("rq:limit*")
