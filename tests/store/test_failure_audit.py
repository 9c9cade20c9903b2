"""Failure groups over time: how many there are, what goes, and what an upgrade or a mishap left out."""

from __future__ import annotations

import redis

from fusion.store.layout.keys import Keys
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation, check_groups, group_faults
from tests.kit.hands import Hand, now_ms, outcome, put
from tests.store.test_failure_groups import FIELDS, about, fail, group_of, members, minutes

KEYS = Keys()


# -- bounds


def test_a_thousand_groups_and_one(conn: redis.Redis, broker: Broker) -> None:
    hand = Hand(broker, "q")
    fail(broker, "first", hand=hand, error_class="First")
    fail(broker, "second", hand=hand, error_class="Second")
    conn.zadd(KEYS.failures, {f"{n:012d}": 2 + n for n in range(998)})
    for n in range(998):
        conn.hset(KEYS.failure(f"{n:012d}"), "error_class", "E")
    fail(broker, "a", hand=hand, error_class="A")
    assert group_of(conn, "a") == "other", "each of them holds a job, for all that is known"
    empty = group_of(conn, "second")
    broker.delete(["second"])
    fail(broker, "b", hand=hand, error_class="B")
    assert about(conn, group_of(conn, "b"))["error_class"] == "B"
    assert conn.zscore(KEYS.failures, empty) is None, "it made room"
    assert conn.exists(KEYS.failure(empty)) == 0
    fail(broker, "c", hand=hand, error_class="C")
    assert members(conn, "other") == ["a", "c"]
    assert conn.zcard(KEYS.failures) == 1001


def test_a_group_without_jobs_is_forgotten_after_a_day(conn: redis.Redis, broker: Broker) -> None:
    fail(broker, "a")
    group = group_of(conn, "a")
    broker.delete(["a"])
    broker.clean()
    assert conn.exists(KEYS.failure(group))
    for key in (KEYS.failures, KEYS.failures_empty):
        conn.zadd(key, {group: now_ms(conn) - 86_400_000 - 1})
    broker.clean()
    assert not [key for key in conn.scan_iter("rq:failure*") if not key.rpartition(b":")[2].isdigit()]
    assert all(conn.ttl(key) > 86_000 for key in conn.scan_iter("rq:failure:*"))


# -- upgrade


def _of_before(conn: redis.Redis, *ids: str, **fields: str) -> None:
    """Failed jobs as a version without groups left them."""
    for job_id in ids:
        conn.hset(
            f"rq:job:{job_id}",
            mapping={"status": "failed", "origin": "q", "seq": 1, "data": "d", "ended_at": "2020-02-29T12:00:00.250000Z"}
            | fields,
        )
    conn.zadd(KEYS.failed, {job_id: now_ms(conn) / 1000 + 99.5 for job_id in ids})


def test_jobs_that_failed_before_get_their_groups(conn: redis.Redis, broker: Broker) -> None:
    _of_before(conn, *(f"j{n}" for n in range(450)), **FIELDS)
    _of_before(conn, "lost", reason="lost 5 times", func="shop.send")
    calls = 1
    while broker.clean(interval=600):
        calls += 1
    assert 1 < calls <= 30
    group = group_of(conn, "j7")
    assert conn.zcard(KEYS.failure_jobs(group)) == 450
    assert conn.zscore(KEYS.failure_jobs(group), "j7") == 1582977600250
    assert (about(conn, group)["total"], minutes(conn, group)) == ("450", 0)
    assert about(conn, group_of(conn, "lost"))["error_class"] == "lost 5 times"
    check_groups(conn)
    assert not broker.clean()
    assert about(conn, group)["total"] == "450", "once"


def test_failures_of_older_workers_get_their_group_at_the_next_pass(conn: redis.Redis, broker: Broker) -> None:
    """Though many others stand between it and where the slow pass over all of them is."""
    _of_before(conn, *(f"j{n}" for n in range(450)), **FIELDS)
    conn.zadd(KEYS.failed, {f"j{n}": "+inf" for n in range(70)})
    while broker.clean(interval=600):
        pass
    late, year = [f"late{n}" for n in range(130)], 86400 * 365
    _of_before(conn, *late, **FIELDS)
    conn.zadd(KEYS.failed, {job_id: now_ms(conn) / 1000 + year + n / 1000 for n, job_id in enumerate(late)})
    assert not broker.clean(interval=600), "a pass an interval"
    assert group_of(conn, "late7") == ""
    conn.hset(KEYS.clean, "began", 0)
    calls = 1
    while broker.clean(interval=600):
        calls += 1
    assert calls == 4, "fifty a call, until one finds none"
    assert {group_of(conn, job_id) for job_id in late} == {group_of(conn, "j7")}
    assert conn.zcard(KEYS.failure_jobs(group_of(conn, "j7"))) == 580
    assert conn.hget(KEYS.clean, "newest") == b"0"
    check_groups(conn)


def test_nothing_of_others_is_touched(conn: redis.Redis, broker: Broker) -> None:
    conn.hset("rq:job:rqs", mapping={"status": "failed", "origin": "q", "success_callback_name": ""})
    conn.hset("rq:job:newer", mapping={"status": "dreaming", "origin": "q", "seq": 1})
    conn.set("rq:job:text", "x")
    conn.zadd(KEYS.failed, dict.fromkeys(["rqs", "newer", "text", "nobody"], now_ms(conn) / 1000 + 99.5))
    before = {key: conn.dump(key) for key in conn.scan_iter("rq:job:*")}
    assert not broker.clean()
    assert {key: conn.dump(key) for key in conn.scan_iter("rq:job:*")} == before
    assert not [*conn.scan_iter("rq:failure*")]


def test_queues_are_counted_anew_where_nobody_knows_what_vanished(conn: redis.Redis, broker: Broker) -> None:
    """Also while jobs come and go."""
    hand = Hand(broker, "q", "sms")
    names = [f"j{n:03d}" for n in range(250)]
    put(broker, "q", *names[:200])
    put(broker, "sms", *names[200:])
    for queue, count in (("q", 200), ("sms", 50)):
        jobs = hand.claim(count, [queue])
        hand.turn(*(outcome(claimed, "failed", reason="x", fields=FIELDS) for claimed in jobs))
    group = group_of(conn, names[0])
    broker.quarantine(names[:3], "why")
    conn.delete("rq:job:j001", "rq:job:j220")
    conn.zrem(KEYS.failed, "j001", "j220")
    for step in range(12):
        broker.clean()
        broker.requeue([names[100 + step], names[10 + step]], f"n{step}")
        fail(broker, f"new{step}", hand=hand, queue="sms")
    assert "recount" in about(conn, group), "all this while they were counted"
    for _ in range(12):
        broker.clean()
    assert group_faults(conn, group) == []
    check_conservation(conn, [name for name in names if name not in ("j001", "j220")])
