"""The checker has teeth: whatever it is there to find, it finds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation, check_ended, dead_entries, leftovers, runs_seen
from tests.kit.hands import Hand, now_ms, put

OK = {"a": 1, "b": 1}


@pytest.fixture
def ended(conn: redis.Redis) -> redis.Redis:
    """Two jobs that finished, and the worker that ran them."""
    broker = Broker(conn)
    put(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    for claimed in hand.claim(2):
        hand.tell(claimed)
    assert set(check_ended(conn, OK, OK).values()) == {"finished"}
    assert (dead_entries(conn), leftovers(conn)) == ([], [])
    return conn


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda conn: conn.zrem("rq:finished:q", "a"), "sets say None"),
        (lambda conn: conn.delete("rq:job:a"), "hash says None"),
        (lambda conn: conn.zadd("rq:queue:q", {"a": 1}), r"sets say \['queued', 'finished'\]"),
        (lambda conn: conn.hset("rq:job:a", "status", "failed"), "hash says failed"),
    ],
    ids=["lost from its set", "lost its record", "in two sets", "record and set differ"],
)
def test_a_job_that_is_not_in_one_state_is_found(ended: redis.Redis, damage: Callable[[redis.Redis], object], said: str) -> None:
    damage(ended)
    with pytest.raises(AssertionError, match=said):
        check_conservation(ended, ["a", "b"])
    with pytest.raises(AssertionError, match=said):
        check_ended(ended, ["a", "b"])


@pytest.mark.parametrize(
    ("runs", "said"),
    [({"a": 1}, "b finished and never ran"), ({"a": 1, "b": 2}, "b ran 2 times, 1 are explained")],
)
def test_a_run_too_many_and_none_at_all_are_found(ended: redis.Redis, runs: dict[str, int], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_ended(ended, ["a", "b"], runs)


def test_a_run_that_was_lost_explains_another(conn: redis.Redis) -> None:
    broker = Broker(conn)
    put(broker, "q", "a")
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "lost", reason="killed")
    hand.tell(hand.take())
    check_ended(conn, ["a"], {"a": 2})
    with pytest.raises(AssertionError, match="a ran 3 times, 2 are explained"):
        check_ended(conn, ["a"], {"a": 3})


def test_the_checker_finds_a_job_that_waits_for_ever(conn: redis.Redis) -> None:
    put(Broker(conn), "q", "a")
    with pytest.raises(AssertionError, match="a is stuck: queued"):
        check_ended(conn, ["a"])


def test_a_failure_without_a_reason_is_found(conn: redis.Redis) -> None:
    broker = Broker(conn)
    put(broker, "q", "a")
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "failed", reason="ValueError")
    check_ended(conn, ["a"], {"a": 1})
    conn.hset("rq:job:a", "reason", "")
    with pytest.raises(AssertionError, match="a failed for no reason"):
        check_ended(conn, ["a"])


@pytest.mark.parametrize(("event", "said"), [("completed", "a ended 2 times"), ("retry", "2 outcomes of 1 executions")])
def test_an_outcome_that_was_taken_twice_is_found(ended: redis.Redis, event: str, said: str) -> None:
    ended.xadd("rq:events", {"event": event, "job_id": "a"})
    ended.hincrby("rq:events:meta", "n", 1)
    with pytest.raises(AssertionError, match=said):
        check_ended(ended, ["a"])


def test_events_that_were_trimmed_are_not_taken_for_all(ended: redis.Redis) -> None:
    ended.xtrim("rq:events", maxlen=1, approximate=False)
    with pytest.raises(AssertionError, match="1 of 6 events are left"):
        check_ended(ended, ["a"])


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda conn: conn.zadd("rq:wip:q", {"a": now_ms(conn)}), "rq:wip:q: leases of"),
        (lambda conn: conn.hset("rq:worker:host.1:jobs", "a", "x"), "rq:worker:host.1:jobs: names a, which"),
        (lambda conn: conn.hset("rq:job:c", "status", "queued"), "rq:job:c: a record in no set"),
        (lambda conn: conn.hset("rq:worker:host.7", "pid", 7), "rq:worker:host.7: a worker that is not in the list"),
        (lambda conn: conn.rpush("rq:wake:q", "1", "1"), "rq:wake:q: more than one token"),
        (lambda conn: conn.set("rq:events:said:n", "1"), "rq:events:said:n: no end"),
        (lambda conn: conn.set("rq:what", "1"), "rq:what: unknown"),
    ],
    ids=["a lease", "an index", "a record", "a worker", "tokens", "a nonce", "an unknown key"],
)
def test_the_checker_finds_left_over_keys(ended: redis.Redis, damage: Callable[[redis.Redis], object], said: str) -> None:
    ended.delete("rq:wake:q")
    damage(ended)
    (found,) = leftovers(ended)
    assert found.startswith(said)


def test_a_dead_worker_in_the_list_is_found(ended: redis.Redis) -> None:
    ended.hset("rq:worker:host.1", "beat_ms", now_ms(ended) - 60_000)
    ended.sadd("rq:workers", "rq:worker:host.2")
    assert dead_entries(ended) == ["rq:worker:host.1", "rq:worker:host.2"]


def test_runs_are_counted_by_job_and_word(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("ran a 1\nran b 2\nend a 1\n")
    two.write_text("ran a 3\n")
    assert runs_seen(one, two, tmp_path / "none", word="ran") == {"a": 2, "b": 1}
