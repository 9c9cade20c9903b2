"""`failures` out of the groups that Redis keeps, and `failures GROUP`."""

from __future__ import annotations

import json
import re

import pytest
import redis

from fusion import FailedQueue
from fusion.jobs.failure_groups import group_id
from fusion.store.write.broker import Broker
from tests.budgets import figures
from tests.cli.conftest import Invoke
from tests.kit.hands import Hand, put
from tests.kit.slowest import Slowest

SECRET = "app.Refused: +4915112345678 at https://u:pw@sms.example.com/send?token=abc, password=hunter2 \x1b[2J\n\u202emore"
GROUP = group_id("app.Refused", "app.orders:send")


@pytest.fixture
def failed(conn: redis.Redis) -> Broker:
    """Six of two kinds, from two queues."""
    broker = Broker(conn)
    hand = Hand(broker, "sms", "email")
    for n in range(6):
        put(broker, ("sms", "email")[n % 2], f"j{n}")
        kind = "builtins.KeyError" if n == 5 else "app.Refused"
        fields = {"error_class": kind, "error_frame": "app.orders:send:7"}
        hand.tell(hand.take(), "failed", reason=SECRET if n < 5 else "KeyError: 'x'", fields=fields)
    return broker


def test_failure_groups_agree_with_a_scan_of_all_jobs(invoke: Invoke, conn: redis.Redis, failed: Broker) -> None:
    FailedQueue(conn).quarantine(["j0"], "bug")
    by_jobs = invoke("failures").stdout.splitlines()
    told = json.loads(invoke("failures", "--json").stdout)
    assert not failed.clean()
    lines = invoke("failures").stdout.splitlines()

    def ageless(line: str) -> str:
        return re.sub(r"[0-9.]+ s ago", "ago", line)

    assert [ageless(line).split() for line in lines[:3]] == [ageless(line).split() for line in by_jobs[:3]]
    assert f"failures {GROUP}" in lines[-3]
    document = json.loads(invoke("failures", "--json").stdout)
    assert document["failed"] == told["failed"] == 6
    for one, other in zip(document["groups"], told["groups"], strict=True):
        assert one == one | {name: value for name, value in other.items() if not name.endswith("_seen")}
    assert (document["groups"][0]["id"], document["groups"][0]["last_hour"], document["groups"][0]["total"]) == (GROUP, 5, 5)
    assert invoke("failures", "--limit", "1").stdout.splitlines()[2] == "and 1 more groups; --limit N shows more"


@pytest.mark.parametrize("columns", [80, 140, 200])
def test_on_a_terminal(invoke: Invoke, conn: redis.Redis, failed: Broker, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    failed.clean()
    monkeypatch.setattr("fusion.cli.tables.room", lambda: columns - 1)
    monkeypatch.setattr("fusion.cli.failures_render.room", lambda: columns - 1)
    lines = invoke("failures").stdout.splitlines()
    assert all(len(line) < columns for line in lines[:3])
    assert lines[0].split()[:4] == ["GROUP", "COUNT", "1H", "24H"]
    assert lines[1].split()[:4] == [GROUP, "5", "5", "5"]
    assert ("app.Refused" if columns > 100 else "  Refused ") in lines[1]
    assert ("█|" in lines[1]) == (columns > 140)
    assert lines[0].split()[-1] == "MESSAGE" and (columns > 80) == ("WHERE" in lines[0])
    assert "+***" in lines[1].split("Refused")[1], "the message, also where columns are few"


def test_one_group(invoke: Invoke, conn: redis.Redis, failed: Broker) -> None:
    failed.clean()
    said = invoke("failures", GROUP, "--limit", "2", "--utc").stdout
    assert said.startswith("app.Refused in app.orders:send:7\n")
    for part in (
        f"group    {GROUP}",
        "5 now, 5 in the last hour, 5 in 24 hours, 5 since 20",
        "queues   sms 3, email 2",
        "example  j4 at app.orders:send:7: ",
        "newest   j4 j3, and 3 more",
        f"requeue --query group:{GROUP}",
        "at most 5",
    ):
        assert part in said, part
    for part in ("4915112345678", "u:pw", "hunter2", "\x1b", "\u202e"):
        assert part not in said
    found = json.loads(invoke("failures", GROUP, "--json").stdout)
    assert (found["schema"], found["jobs"], found["minutes"][0]["failed"]) == (1, ["j4", "j3", "j2", "j1", "j0"], 5)
    failed.delete([f"j{n}" for n in range(5)])
    said = invoke("failures", GROUP).stdout
    assert "0 now, 5 in the last hour" in said
    assert "requeue" not in said, "there is nothing to put back"


def test_usage(invoke: Invoke, conn: redis.Redis, failed: Broker) -> None:
    assert "there is no failure group nobody" in invoke("failures", "nobody", code=1).stderr
    assert "GROUP can't be combined" in invoke("failures", GROUP, "--queue", "sms", code=2).stderr


@pytest.mark.long
def test_two_hundred_thousand_in_one_group(invoke: Invoke, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of before get their group in small steps, and nothing that reads or changes it takes long."""
    for start in range(0, 10_000, 5000):
        pipe = conn.pipeline(transaction=False)
        for n in range(start, start + 5000):
            pipe.hset(f"rq:job:j{n}", mapping={"status": "failed", "origin": "sms", "seq": n, "data": "d", "reason": "E: x"})
        pipe.zadd("rq:queue:failed", {f"j{n}": 4e9 + n for n in range(start, start + 5000)})
        pipe.execute()
    slowest = Slowest(conn, monkeypatch)
    broker = Broker(conn)
    while broker.clean(interval=600):
        pass
    conn.zadd(f"rq:failure:{group_id('E', '')}:jobs", {f"j{n}": 1e12 + n for n in range(10_000, 200_000)})
    hand = Hand(broker, "sms")
    put(broker, "sms", "one")
    hand.tell(hand.take(), "failed", reason="E: x")
    assert broker.requeue(["one"], "n") == ["ok"]
    assert broker.delete(["j7", "j8"]) == ["deleted"] * 2
    conn.execute_command("CONFIG", "RESETSTAT")
    document = json.loads(invoke("failures", "--json").stdout)
    invoke("failures", document["groups"][0]["id"])
    assert document["failed"] == 199_998
    stats = {name: one["usec_per_call"] for name, one in conn.info("commandstats").items()}
    assert max(stats.values()) < 5000
    cleaned = sorted(slowest.times.pop("clean"))
    assert cleaned[len(cleaned) * 99 // 100] < figures.SCRIPT_MS, cleaned[-10:]
    assert max(ms for times in slowest.times.values() for ms in times) < figures.SCRIPT_MS, slowest.found
