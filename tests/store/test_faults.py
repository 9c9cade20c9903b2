"""Broken keys, old producers' data, garbage: one of them never hides a commit, starves others, or makes a job vanish."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import (
    DATA,
    LEASE,
    Hand,
    drain,
    events_of,
    everything,
    expire_lease,
    fields_of,
    ids,
    may_reap,
    now_ms,
    outcome,
    put,
    status_of,
)
from tests.kit.servers import SpawnedServer
from tests.kit.waiting import eventually


@pytest.fixture
def hand(broker: Broker) -> Hand:
    return Hand(broker, "bad", "good")


@pytest.mark.parametrize("key", ["rq:queue:bad", "rq:wip:bad"])
def test_a_broken_key_stops_its_queue_only(broker: Broker, conn: redis.Redis, hand: Hand, key: str) -> None:
    put(broker, "bad", "b1", priority=2)
    put(broker, "good", "g1", "g2")
    first = hand.take("good")
    conn.delete(key)
    conn.set(key, "junk")
    answer = hand.turn(outcome(first), slots=[0, 0])
    assert answer.answers == ["ok"], "ADR 0005: the commit is not hidden"
    assert ids(answer.jobs) == ["g2"]
    assert [(queue, "WRONGTYPE" in error) for queue, error in answer.bad] == [("bad", True)]
    assert status_of(conn, "b1") == "queued"
    conn.delete(key)
    if key == "rq:wip:bad":
        assert ids(hand.claim()) == ["b1"], "nothing was lost meanwhile"


def test_a_broken_terminal_set_refuses_that_outcome_only(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "bad", "b1")
    put(broker, "good", "g1", "g2")
    (b1,), (g1,) = hand.claim(1, ["bad"]), hand.claim(1, ["good"])
    conn.set("rq:finished:bad", "junk")
    answer = hand.turn(outcome(b1, fields={"result": "1"}), outcome(g1), slots=[0])
    assert [text.partition(":")[0] for text in answer.answers] == ["error", "ok"]
    assert "WRONGTYPE" in answer.answers[0]
    assert ids(answer.jobs) == ["g2"]
    assert [status_of(conn, job_id) for job_id in ("g1", "g2")] == ["finished", "started"]
    assert (status_of(conn, "b1"), conn.zscore("rq:wip:bad", "b1") is not None) == ("started", True)
    again = hand.turn(outcome(b1, fields={"result": "1"}), outcome(g1), slots=[0], token=hand.token)
    assert again.answers == answer.answers
    conn.delete("rq:finished:bad")
    assert hand.tell(b1) == "ok", "told again once it is mended, the outcome counts"


@pytest.mark.parametrize("key", ["rq:worker:host.1:jobs", "rq:scheduler:scheduled_jobs", "rq:events", "rq:events:meta"])
def test_a_broken_key_of_the_fleet_hides_no_commit(broker: Broker, conn: redis.Redis, hand: Hand, key: str) -> None:
    put(broker, "good", "g1", "g2")
    first = hand.take("good")
    conn.delete(key)
    conn.set(key, "junk")
    answer = hand.turn(outcome(first), slots=[0])
    assert answer.answers == ["ok"]
    assert status_of(conn, "g1") == "finished"
    if key.endswith(":jobs"):
        assert answer.bad
        assert status_of(conn, "g2") == "queued", "a claim that can't be noted does not happen"
        conn.delete(key)
        assert ids(hand.claim()) == ["g2"]
    else:
        assert ids(answer.jobs) == ["g2"]


def test_an_entry_without_data_fails_and_the_next_runs(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """Deleted, truncated or never written, the job ends with a reason."""
    put(broker, "good", "gone", "cut", "next")
    conn.delete("rq:job:gone")
    conn.hdel("rq:job:cut", "data")
    assert ids(hand.claim()) == ["next"]
    for job_id in ("gone", "cut"):
        found = fields_of(conn, job_id)
        assert (found["status"], found["origin"]) == ("failed", "good")
        assert found["reason"].startswith("corrupt: ")
        assert events_of(conn, job_id)[-1]["event"] == "failed"
    assert fields_of(conn, "cut")["nonce"], "what there was is kept"
    assert set(check_conservation(conn, ["gone", "cut"]).values()) == {"failed"}
    assert broker.requeue(["gone", "cut"], "n") == ["corrupt", "corrupt"]


@pytest.mark.parametrize("entry", [b"\xff\xfe\x00junk", b"has space", b"a\nb", b"x" * 200, b"../etc", b"", b"victim:dependents"])
def test_an_entry_that_is_no_job_id_gets_a_record_of_its_own(broker: Broker, conn: redis.Redis, hand: Hand, entry: bytes) -> None:
    put(broker, "good", "victim", priority=0)
    conn.sadd("rq:job:victim:dependents", "child")
    conn.zadd("rq:queue:good", {entry: 2})
    conn.zadd("rq:queue:good", {"not-a-hash": 2})
    conn.set("rq:job:not-a-hash", "a string")
    assert ids(hand.claim(2)) == ["victim"]
    failed = [member.decode() for member in conn.zrange("rq:queue:failed", 0, -1)]
    assert len(failed) == 2
    raws = {conn.hget(f"rq:job:{job_id}", "raw_id") for job_id in failed}
    assert raws == {entry[:1024], b"not-a-hash"}
    assert conn.smembers("rq:job:victim:dependents") == {b"child"}
    assert conn.get("rq:job:not-a-hash") == b"a string"
    assert set(check_conservation(conn, failed).values()) == {"failed"}


@pytest.mark.parametrize("status", ["started", "finished", "failed", "canceled", "scheduled", "deferred"])
def test_a_stale_entry_is_dropped(broker: Broker, conn: redis.Redis, hand: Hand, status: str) -> None:
    put(broker, "good", "stale", "next")
    conn.hset("rq:job:stale", "status", status)
    before = fields_of(conn, "stale")
    assert ids(hand.claim()) == ["next"]
    assert fields_of(conn, "stale") == before
    assert conn.zscore("rq:queue:good", "stale") is None


def test_an_old_producers_jobs(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """A bare whole number for a score, a hash of the few fields it knew: they run, get a place of their own and come back to it."""
    for job_id in ("old-b", "old-a"):
        conn.hset(f"rq:job:{job_id}", mapping={"data": DATA, "created_at": "2026-01-31T09:30:00"})
        conn.zadd("rq:queue:good", {job_id: 2})
    conn.expire("rq:job:old-a", 100)
    conn.sadd("rq:queues", "rq:queue:good")
    put(broker, "good", "new", priority=1)
    first, second = hand.claim(2)
    assert {first.id, second.id} == {"old-a", "old-b"}
    found = fields_of(conn, first.id)
    assert (found["status"], found["origin"], found["priority"]) == ("started", "good", "2")
    assert first.fields[b"origin"] == b"good"
    assert conn.ttl(f"rq:job:{first.id}") == -1
    assert hand.tell(second, "release", reason="r") == "ok"
    assert hand.tell(first, "release", reason="r") == "ok"
    assert drain(hand, 1) == [first.id, second.id, "new"]
    assert set(check_conservation(conn, [first.id, second.id]).values()) == {"started"}


def test_old_producers_jobs_are_adopted_before_a_busy_class_starves_them(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    for priority in (0, 1, 2):
        put(broker, "good", f"new-{priority}", priority=priority)
        conn.hset(f"rq:job:old-{priority}", mapping={"data": DATA})
        conn.zadd("rq:queue:good", {f"old-{priority}": priority})
    broker.clean()
    for priority in (0, 1, 2):
        put(broker, "good", f"later-{priority}", priority=priority)
    assert drain(hand) == [f"{age}-{priority}" for priority in (2, 1, 0) for age in ("new", "old", "later")]


@pytest.mark.parametrize(("score", "expected"), [(-3, 0), (1000, 255), (float("inf"), 255), (1.25, 1)])
def test_scores_out_of_range(broker: Broker, conn: redis.Redis, hand: Hand, score: float, expected: int) -> None:
    conn.hset("rq:job:odd", mapping={"data": DATA, "priority": "junk"})
    conn.zadd("rq:queue:good", {"odd": score})
    assert ids(hand.turn(slots=[expected]).jobs) == ["odd"]
    assert hand.turn(slots=[0], token=hand.token).jobs[0].fields[b"data"] == DATA
    assert fields_of(conn, "odd")["priority"] == str(expected)


def test_a_job_in_a_queue_that_is_not_its_origin_belongs_to_the_queue_that_had_it(
    broker: Broker, conn: redis.Redis, hand: Hand
) -> None:
    put(broker, "elsewhere", "a")
    score = conn.zscore("rq:queue:elsewhere", "a")
    conn.delete("rq:queue:elsewhere")
    conn.zadd("rq:queue:good", {"a": score})
    claimed = hand.take()
    assert check_conservation(conn, ["a"]) == {"a": "started"}
    assert hand.tell(claimed) == "ok"
    assert check_conservation(conn, ["a"]) == {"a": "finished"}


def test_garbage_in_the_fields_a_script_reads(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "good", "a")
    junk = {"expires_at": "junk", "deliveries": "junk", "attempts": "junk", "lost": "junk", "failure_ttl": "1e400", "seq": "junk"}
    conn.hset("rq:job:a", mapping=junk)
    conn.hset(
        "rq:worker:host.1",
        mapping={"successful_job_count": "junk", "failed_job_count": "junk", "turn": "junk", "beat_ms": "junk"},
    )
    assert hand.tell(hand.take(), "lost", reason="r") == "ok"
    assert hand.tell(hand.take(), "retry", reason="r") == "ok"
    broker.promote()
    assert hand.tell(hand.take(), "failed", reason="r") == "ok"
    assert fields_of(conn, "a")["attempts"] == "2"
    assert check_conservation(conn, ["a"]) == {"a": "failed"}


@pytest.mark.parametrize("version", [(7, 0), (6, 2)], ids=["flag", "text for servers before 7"])
def test_a_full_server_refuses_no_outcome(spawn: Callable[..., SpawnedServer], version: tuple[int, ...]) -> None:
    """ADR 0011: what is under way can be finished, given back and recovered at maxmemory."""
    conn = spawn("--maxmemory-policy", "noeviction").client()
    broker = Broker(conn, server_version=version)
    hand = Hand(broker, "good")
    put(broker, "good", *(f"j{i}" for i in range(9)))
    for claimed in hand.claim(3):
        hand.tell(claimed)
    finished, failed, released, lost, held = hand.claim(5)
    may_reap(conn)
    broker.reap(LEASE, 0)
    broker.promote()
    broker.clean()
    hand.extend(finished)
    broker.cancel("no such job")
    conn.config_set("maxmemory", 1)
    assert hand.extend(finished, failed) == (True, ["ok", "ok"])
    assert hand.tell(finished, fields={"result": "x" * 1000}) == "ok"
    assert hand.tell(failed, "failed", reason="r") == "ok"
    assert hand.tell(released, "release", reason="r") == "ok"
    conn.config_set("maxmemory", 0)
    expire_lease(conn, "good", lost.id)
    conn.config_set("maxmemory", 1)
    assert broker.reap(LEASE, 0) == (1, False)
    assert hand.tell(held, "retry", reason="r", delay=0.001) == "ok"
    eventually(lambda: broker.promote()[0] == 1)
    assert broker.cancel(held.id) == "canceled"
    assert ids(hand.claim()) == [released.id], "and what waits still runs, else nothing would ever shrink"
    broker.clean()
    conn.config_set("maxmemory", 0)
    done = [finished.id, failed.id, released.id, lost.id, held.id]
    assert [*check_conservation(conn, done).values()] == ["finished", "failed", "started", "queued", "canceled"]


def test_a_flushed_server_forgets_politely(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """Workers register again, new jobs run, what was under way is answered as gone."""
    put(broker, "good", "a")
    claimed = hand.take()
    conn.flushall()
    assert hand.turn(outcome(claimed), slots=[0]).status == "unregistered"
    assert hand.extend(claimed) == (False, ["lost"])
    assert broker.register(hand.name, hand.incarnation, LEASE, 420, {})
    assert hand.tell(claimed) == "gone"
    put(broker, "good", "b")
    assert ids(hand.claim()) == ["b"]
    assert [e["n"] for e in events_of(conn)] == ["1", "2"]


def test_keys_of_a_job_that_vanished_are_no_leak(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """The hash of a running job was evicted or deleted by somebody: its lease leads to nothing, which is reported once."""
    put(broker, "good", "a")
    hand.take()
    conn.delete("rq:job:a")
    may_reap(conn)
    expire_lease(conn, "good", "a")
    broker.reap(LEASE, 0)
    assert fields_of(conn, "a")["reason"] == "corrupt: its data vanished while it ran"
    assert check_conservation(conn, ["a"]) == {"a": "failed"}
    state = everything(conn)
    broker.reap(LEASE, 0)
    assert everything(conn) == state
    assert now_ms(conn)
