"""Thousands of failed jobs: chosen exactly, moved whole, interrupted and taken up again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import redis

from fusion import FailedFilter, FailedQueue, Job, Queue
from fusion.exceptions import InvalidJobOperation
from fusion.jobs.failures import FailureGroup
from fusion.store.access import broker_of
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, new, outcome
from tests.kit.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("builtins.TimeoutError", "app.errors.BadNumber", "requests.exceptions.ReadTimeout")
BASES = ("builtins.OSError", "app.errors.Base\nbuiltins.ValueError", "requests.exceptions.Timeout\nbuiltins.OSError")
TASKS = ("tasks.sms.sendSMS", "tasks.email.sendEmail")


def fill(conn: redis.Redis, count: int) -> dict[str, tuple[str, str, str]]:
    """Failed jobs of two queues, two functions and three errors: id -> (queue, function, error)."""
    broker, made = broker_of(conn), {}
    for queue in ("sms", "email"):
        hand = Hand(broker, queue, name=f"filler.{queue}")
        mine = range(count // 2)
        for start in range(0, len(mine), 250):
            jobs = []
            for n in mine[start : start + 250]:
                data = b'["%s", null, [], {}]' % TASKS[n % 2].encode()
                jobs.append(new(f"{queue}-{n:05}", n % 3, data=data))
                made[f"{queue}-{n:05}"] = (queue, TASKS[n % 2], KINDS[n % 3])
            broker.enqueue(queue, jobs, os.urandom(8).hex())
            commits = []
            for claimed in hand.claim(250):
                which = int(claimed.id[-5:]) % 3
                fields = {
                    "error_class": KINDS[which],
                    "error_bases": BASES[which],
                    "error_frame": f"app.m{which}:f:1",
                    "exc_info": "t",
                }
                commits.append(outcome(claimed, "failed", reason=f"{KINDS[which]}: no", fields=fields))
            hand.turn(*commits)
        broker.deregister(hand.name, hand.incarnation)
    return made


def age(conn: redis.Redis, job_ids: list[str]) -> None:
    for job_id in job_ids:
        conn.hset(f"rq:job:{job_id}", "ended_at", "2026-01-01T00:00:00.000000Z")


@pytest.mark.long
def test_each_filter_is_exact(conn: redis.Redis) -> None:
    made = fill(conn, 600)
    old = [job_id for job_id in made if job_id.endswith(("00", "01"))]
    age(conn, old)
    old_set = set(old)
    table: dict[FailedFilter | str | None, set[str]] = {
        None: set(made),
        "sms": {i for i, (queue, _, _) in made.items() if queue == "sms"},
        FailedFilter(queue="e*"): {i for i, (queue, _, _) in made.items() if queue == "email"},
        FailedFilter(function="tasks.sms.sendSMS"): {i for i, (_, name, _) in made.items() if name == TASKS[0]},
        FailedFilter(function="tasks.email.*"): {i for i, (_, name, _) in made.items() if name == TASKS[1]},
        FailedFilter(error="BadNumber"): {i for i, (_, _, kind) in made.items() if kind == KINDS[1]},
        FailedFilter(error="requests.exceptions.ReadTimeout"): {i for i, (_, _, kind) in made.items() if kind == KINDS[2]},
        FailedFilter(error="OSError"): {i for i, (_, _, kind) in made.items() if kind != KINDS[1]},
        FailedFilter(error="ReadTime"): set(),
        FailedFilter(older_than=3600): old_set,
        FailedFilter(newer_than=3600): set(made) - old_set,
        FailedFilter(older_than=3600, newer_than=60): set(),
        FailedFilter(queue="sms", error="Timeout*", older_than=3600): {
            i for i in old if made[i][0] == "sms" and made[i][2] != KINDS[1]
        },
    }
    for wanted, expected in table.items():
        assert FailedQueue().requeue_all(wanted, dry_run=True) == (len(expected), {}), wanted
        if isinstance(wanted, FailedFilter):
            assert {failure.id for failure in FailedQueue().failures(wanted)} == expected
    assert FailedQueue().count == 600, "a dry run moves nothing"
    assert FailedQueue().requeue_all(FailedFilter(error="BadNumber", queue="sms")).moved == 100
    left = {i for i, (queue, _, kind) in made.items() if (queue, kind) != ("sms", KINDS[1])}
    assert set(FailedQueue().get_job_ids(0, 1000)) == left
    assert Counter(check_conservation(conn, made).values()) == {"failed": 500, "queued": 100}


@pytest.mark.long
def test_five_thousand_interrupted_and_taken_up_again(conn: redis.Redis) -> None:
    made = fill(conn, 5000)
    wanted = FailedFilter(error="OSError")
    fit = {i for i, (_, _, kind) in made.items() if kind != KINDS[1]}
    seen = 0

    def interrupt(step: int) -> None:
        nonlocal seen
        seen += step
        if seen >= 1500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FailedQueue().requeue_all(wanted, progress=interrupt)
    done = {i for i, status in check_conservation(conn, made).items() if status == "queued"}
    assert done < fit
    assert 500 < len(done) <= 1500
    assert FailedQueue().requeue_all(wanted) == (len(fit) - len(done), {})
    states = check_conservation(conn, made)
    assert {i for i, status in states.items() if status == "queued"} == fit
    assert all(conn.hget(f"rq:job:{i}", "requeued") == b"1" for i in fit), "each once"
    assert FailedQueue().requeue_all(wanted) == (0, {})


@pytest.mark.long
def test_killed_in_the_middle(conn: redis.Redis, redis_url: str) -> None:
    """kill -9 between any two instructions of the client leaves whole jobs moved."""
    made = fill(conn, 3000)
    code = "from fusion import FailedQueue; FailedQueue().requeue_all()"
    client = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env={**os.environ, "FUSION_REDIS_URL": redis_url})
    try:
        eventually(lambda: FailedQueue().count < 2700, interval=0.0005, why="it moves jobs")
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait(10)
    left = FailedQueue().count
    assert Counter(check_conservation(conn, made).values()) == {"queued": 3000 - left} | ({"failed": left} if left else {})
    assert FailedQueue().requeue_all() == (left, {})
    assert Counter(check_conservation(conn, made).values()) == {"queued": 3000}


@pytest.mark.long
def test_two_at_once_move_each_job_once(conn: redis.Redis, redis_url: str) -> None:
    """Clicked twice, while the sweep runs."""
    made = fill(conn, 1500)
    code = "from fusion import FailedQueue; print(FailedQueue().requeue_all().moved)"
    environ = {**os.environ, "FUSION_REDIS_URL": redis_url}
    clients = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    broker, deadline = Broker(conn), time.monotonic() + 30
    while any(client.poll() is None for client in clients) and time.monotonic() < deadline:
        broker.clean()
    assert sum(int(client.communicate(timeout=10)[0]) for client in clients) == 1500
    assert Counter(check_conservation(conn, made).values()) == {"queued": 1500}
    assert all(conn.hget(f"rq:job:{i}", "requeued") == b"1" for i in made)


def test_a_bad_job_is_reported_and_stops_nothing(conn: redis.Redis) -> None:
    fill(conn, 300)
    conn.hdel("rq:job:sms-00000", "data")
    conn.delete("rq:job:sms-00007")
    conn.set("rq:job:sms-00007", "no hash")
    conn.hset("rq:job:sms-00011", mapping={"ended_at": "soon", "requeued": "x", "priority": "junk", "ttl": "junk"})
    assert FailedQueue().requeue_all(FailedFilter(queue="sms", error="Bad*")) == (49, {}), "the class of one can't be read"
    moved, refused = FailedQueue().requeue_all()
    assert moved == 300 - 49 - 2
    assert refused["sms-00000"] == "corrupt"
    assert refused["sms-00007"].startswith("error: WRONGTYPE")
    assert set(FailedQueue().get_job_ids()) == {"sms-00000", "sms-00007"}
    with pytest.raises(InvalidJobOperation, match="WRONGTYPE"):
        FailedQueue().requeue("sms-00007")


def test_a_limit_takes_the_first(conn: redis.Redis) -> None:
    fill(conn, 400)
    first = FailedQueue().get_job_ids(0, 150)
    assert FailedQueue().requeue_all(limit=150) == (150, {})
    assert all(Job.fetch(i).is_queued for i in first[::30])
    assert FailedQueue().count == 250
    assert FailedQueue().requeue_all(limit=1000, dry_run=True) == (250, {})


def test_quarantine(conn: redis.Redis) -> None:
    made = fill(conn, 60)
    queue = FailedQueue()
    assert queue.quarantine(["sms-00000", "sms-00000", "nobody"], "blocked number") == (1, {"nobody": "missing"})
    assert queue.quarantine("sms-00002", "one id") == (1, {})
    assert queue.quarantine(FailedFilter(error="BadNumber"), "bug 815") == (20, {})
    assert Job.fetch("sms-00000").quarantined == "blocked number"
    assert queue.requeue_many(["sms-00000", "sms-00003"]) == (1, {"sms-00000": "quarantined"})
    assert queue.requeue_all() == (37, {})
    assert queue.requeue_all() == (0, {})
    assert queue.count == 22
    assert {failure.quarantined for failure in queue.failures()} == {"blocked number", "one id", "bug 815"}
    assert list(queue.failures(FailedFilter())) == []
    queue.requeue("sms-00000")
    assert Job.fetch("sms-00000").quarantined == ""
    assert queue.requeue_all(FailedFilter(include_quarantined=True)) == (21, {})
    assert set(check_conservation(conn, made).values()) == {"queued"}
    with pytest.raises(ValueError, match="needs a reason"):
        queue.quarantine(["x"], "  ")


def test_groups(conn: redis.Redis) -> None:
    made = fill(conn, 60)
    queue = FailedQueue()
    queue.quarantine(["sms-00001"], "r")
    conn.zadd("rq:queue:failed", {"vanished": 9e9})
    first, second, third = queue.groups()
    assert {first.error_class, second.error_class, third.error_class} == set(KINDS)
    bad = next(group for group in (first, second, third) if group.error_class == KINDS[1])
    assert (bad.error_frame, bad.count, bad.quarantined, bad.queues) == ("app.m1:f:1", 20, 1, {"email": 10, "sms": 10})
    assert made[bad.example][2] == KINDS[1]
    assert bad.first_seen is not None
    assert bad.last_seen is not None
    assert bad.first_seen <= bad.last_seen
    assert queue.groups(FailedFilter(queue="nothing")) == []


def test_a_job_that_an_older_version_left_has_a_group_too(conn: redis.Redis) -> None:
    Queue("sms").enqueue("tasks.sms.sendSMS", job_id="a")
    hand = Hand(broker_of(conn), "sms")
    hand.tell(hand.take(), "failed", reason="app.E: no")
    conn.set("rq:job:b", "no hash")
    conn.zadd("rq:queue:failed", {"b": 9e9})
    found = {(group.error_class, group.count): group for group in FailedQueue().groups()}
    assert isinstance(found["app.E", 1], FailureGroup)
    assert found["unreadable", 1].first_seen is None
