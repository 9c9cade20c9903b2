"""Unique keys: one job has a key until it is accepted, starts or ends, and for a window after that."""

from __future__ import annotations

import pytest
import redis

from fusion.exceptions import ConfigurationError, DuplicateJob
from fusion.store.client.errors import fusion_errors
from fusion.store.layout.records import ClaimFilter
from fusion.store.write.broker import Broker
from fusion.store.write.queue_calls import met_in
from tests.kit.hands import LEASE, Hand, everything, expire_lease, fields_of, may_reap, new, put, status_of
from tests.store.unique_hands import end_window, flaws, lone, offer, owner, refused, window


def test_the_second_job_of_a_key_is_not_accepted_and_the_call_says_what_it_met(conn: redis.Redis, broker: Broker) -> None:
    assert offer(broker, "a") is None
    before = everything(conn)
    met = met_in(broker.enqueue("q", [lone("b")], "n"))["b"]
    assert (met.other, met.skipped) == ("a", True)
    assert met.fields["status"] == b"queued"
    assert met.fields["data"] == b'["tasks.sms.sendSMS",null,[],{}]'
    assert everything(conn) == before, "nothing is written"
    assert offer(broker, "c", key="other") is None
    assert flaws(conn) == []


def test_raise_refuses_it_and_names_the_other(conn: redis.Redis, broker: Broker) -> None:
    assert refused(broker, "a") is None
    before = everything(conn)
    error = refused(broker, "b")
    assert error is not None
    assert (error.job_id, error.duplicate_of, error.unique_key, error.status) == ("b", "a", "k", "queued")
    assert str(error) == "job 'b' is a duplicate: job 'a' has the unique key 'k' and is queued [FUS-108]"
    assert everything(conn) == before


@pytest.mark.parametrize("way", ["finished", "failed", "canceled", "deleted", "emptied", "expired"])
def test_the_key_is_free_once_its_job_has_ended_whatever_ended_it(
    conn: redis.Redis, broker: Broker, hand: Hand, way: str
) -> None:
    broker.enqueue("q", [lone("a", ttl=60.0 if way == "expired" else None)], "n")
    if way in ("finished", "failed"):
        claimed = hand.take()
        assert offer(broker, "b") == "a", "it runs"
        hand.tell(claimed, way, reason="r")
    elif way == "canceled":
        broker.cancel("a")
    elif way == "deleted":
        broker.delete(["a"])
    elif way == "emptied":
        broker.empty("q")
    else:
        conn.hset("rq:job:a", "expires_at", 1)
        conn.zadd("rq:expiring", {"a": 1})
        broker.expire()
    assert (owner(conn), conn.exists("rq:uniques")) == (None, 0)
    assert offer(broker, "b") is None
    assert flaws(conn) == []


@pytest.mark.parametrize("kind", ["retry", "release", "lost", "held", "later"])
def test_a_job_that_is_to_run_again_keeps_its_key(conn: redis.Redis, broker: Broker, hand: Hand, kind: str) -> None:
    offer(broker, "a")
    hand.tell(hand.take(), kind, reason="r", delay=60.0, fields={"task": "tasks.x"} if kind == "held" else {})
    assert offer(broker, "b") == "a"
    assert flaws(conn) == []


def test_a_lost_job_keeps_its_key_and_a_poison_pill_gives_it_up(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    offer(broker, "a", on_lost="fail")
    hand.take()
    may_reap(conn)
    expire_lease(conn, "q", "a")
    broker.reap(LEASE, 0)
    assert status_of(conn, "a") == "failed"
    assert (owner(conn), flaws(conn)) == (None, [])


def test_until_start_one_waits_while_others_run(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    offer(broker, "a", unique_until="start")
    assert offer(broker, "b", unique_until="start") == "a"
    first = hand.take()
    assert owner(conn) is None
    assert offer(broker, "b", unique_until="start") is None
    hand.tell(first, "retry", reason="r", delay=60.0)
    assert owner(conn) == "b", "what was given up at the start is not taken again"
    conn.zadd("rq:scheduler:scheduled_jobs", {"a": 1}, xx=True)
    broker.promote()
    hand.tell(hand.take())
    assert owner(conn) == "b" or status_of(conn, "b") != "queued"
    assert flaws(conn) == []


def test_a_window_after_the_end_of_a_job_that_finished(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    offer(broker, "a", unique_window=60_000)
    hand.tell(hand.take())
    assert 50 < (window(conn) or 0) <= 60
    assert offer(broker, "b") == "a"
    assert conn.zcard("rq:uniques") == 0, "it goes by itself"
    assert flaws(conn) == []
    end_window(conn)
    assert offer(broker, "b") is None


@pytest.mark.parametrize("way", ["failed", "canceled", "deleted"])
def test_a_job_that_did_not_finish_leaves_no_unique_window(conn: redis.Redis, broker: Broker, hand: Hand, way: str) -> None:
    offer(broker, "a", unique_window=60_000)
    if way == "failed":
        hand.tell(hand.take(), "failed", reason="r")
    elif way == "canceled":
        broker.cancel("a")
    else:
        broker.delete(["a"])
    assert owner(conn) is None


def test_a_window_after_the_start_does_not_begin_anew(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    offer(broker, "a", unique_until="start", unique_window=60_000)
    assert window(conn) is None
    claimed = hand.take()
    assert window(conn) is not None
    conn.pexpire("rq:unique:k", 30_000)
    hand.tell(claimed, "release", reason="r")
    hand.tell(hand.take())
    assert 0 < (window(conn) or 0) <= 30
    assert offer(broker, "b") == "a"


def test_until_accept_no_other_is_accepted_in_a_time(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    offer(broker, "a", unique_until="accept", unique_window=60_000)
    assert 50 < (window(conn) or 0) <= 60
    hand.tell(hand.take(), "failed", reason="r")
    assert offer(broker, "b") == "a"
    broker.delete(["a"])
    met = met_in(broker.enqueue("q", [lone("b")], "n"))["b"]
    assert (met.other, met.fields) == ("a", {}), "it is gone, and its window is not over"
    end_window(conn)
    assert offer(broker, "b") is None
    assert "ties" not in fields_of(conn, "a")


def test_a_resend_of_what_was_accepted_is_no_duplicate_of_itself(conn: redis.Redis, broker: Broker) -> None:
    at = broker.enqueue("q", [lone("a"), lone("b")], "n")
    assert {job_id: met.other for job_id, met in met_in(at).items()} == {"b": "a"}
    again = broker.enqueue("q", [lone("a"), lone("b")], "n")
    assert (again, {job_id: met.other for job_id, met in met_in(again).items()}) == (at, {"b": "a"})
    assert conn.zcard("rq:queue:q") == 1


def test_jobs_of_one_call_meet_each_other(conn: redis.Redis, broker: Broker) -> None:
    met = met_in(broker.enqueue("q", [lone("a"), lone("b"), lone("c", key="other"), new("d")], "n"))
    assert {job_id: (one.other, one.skipped) for job_id, one in met.items()} == {"b": ("a", True)}
    before = everything(conn)
    with pytest.raises(DuplicateJob) as caught:
        broker.enqueue("q", [lone("e", key="third"), lone("f", key="third", on_duplicate="raise")], "n")
    assert (caught.value.job_id, caught.value.duplicate_of) == ("f", "e")
    assert everything(conn) == before, "all or nothing"


def test_an_ended_or_missing_job_does_not_keep_its_unique_key(conn: redis.Redis, broker: Broker) -> None:
    offer(broker, "a")
    conn.delete("rq:job:a")
    assert offer(broker, "b") is None
    broker.cancel("b")
    conn.set("rq:unique:k", "b")
    assert offer(broker, "c") is None
    assert owner(conn) == "c"


def test_the_audit_takes_away_what_is_held_by_nobody_and_counts_it(conn: redis.Redis, broker: Broker) -> None:
    for n in range(5):
        offer(broker, f"j{n}", key=f"k{n}")
    conn.delete("rq:job:j0", "rq:unique:k1")
    conn.pexpire("rq:unique:k2", 60_000)
    broker.clean()
    assert {key.decode() for key in conn.zrange("rq:uniques", 0, -1)} == {"k3", "k4"}
    assert owner(conn, "k0") is None
    assert window(conn, "k2") is not None
    assert conn.get("rq:uniques:audit") == b"3"
    broker.clean()
    assert conn.get("rq:uniques:audit") == b"3"


def test_a_requeued_job_takes_its_key_again_or_is_told_who_has_it(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    offer(broker, "a")
    hand.tell(hand.take(), "failed", reason="r")
    assert broker.requeue(["a"], "n1") == ["ok"]
    assert owner(conn) == "a"
    broker.cancel("a")
    offer(broker, "b")
    before = everything(conn)
    assert broker.requeue(["a"], "n2") == ["duplicate b"]
    assert everything(conn) == before
    broker.cancel("b")
    assert broker.requeue(["a", "b"], "n3") == ["ok", "duplicate a"]
    assert broker.requeue(["a"], "n3") == ["ok"], "a resend"
    assert flaws(conn) == []


def test_a_job_in_a_window_is_not_passed_by_a_requeued_one(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    offer(broker, "a")
    broker.cancel("a")
    offer(broker, "b", unique_window=60_000)
    hand.tell(hand.take())
    assert broker.requeue(["a"], "n") == ["duplicate b"]


def test_a_job_that_was_given_up_at_its_start_takes_its_key_again_when_it_is_requeued(
    conn: redis.Redis, broker: Broker, hand: Hand
) -> None:
    offer(broker, "a", unique_until="start", unique_window=60_000)
    hand.tell(hand.take(), "failed", reason="r")
    assert window(conn) is not None
    assert broker.requeue(["a"], "n") == ["ok"]
    assert (owner(conn), window(conn)) == ("a", None)
    assert flaws(conn) == []


def test_an_id_that_lives_again_is_a_duplicate_of_its_own_window(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    offer(broker, "a", unique_window=60_000)
    hand.tell(hand.take())
    assert offer(broker, "a") == "a"
    assert status_of(conn, "a") == "finished"


def test_an_id_that_lives_meets_itself_by_its_key(conn: redis.Redis, broker: Broker) -> None:
    offer(broker, "a")
    assert offer(broker, "a") == "a", "who wanted it skipped gets no error for its id"
    with pytest.raises(DuplicateJob):
        offer(broker, "a", key="other")


def test_a_key_with_a_limit_beside_it(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    limited = {"concurrency_key": "l", "max_concurrent": 1}
    offer(broker, "a", ties="ku", **limited)
    assert offer(broker, "b", ties="kdu", key="k2", on_conflict="discard", **limited) is None
    assert (status_of(conn, "b"), owner(conn, "k2")) == ("canceled", None)
    hand.tell(hand.take())
    assert (conn.zcard("rq:limits:held:l"), owner(conn)) == (0, None)
    assert flaws(conn) == []


def test_jobs_with_a_unique_key_alone_are_claimed_ahead(broker: Broker) -> None:
    for n in range(3):
        offer(broker, f"j{n}", key=f"k{n}")
    hand = Hand(broker, "q")
    assert [job.id for job in hand.turn(slots=[0, 0], ahead=1, claim_filter=ClaimFilter()).jobs] == ["j0", "j1"]


def test_a_broken_unique_key_is_named_and_nothing_is_written(conn: redis.Redis, broker: Broker) -> None:
    for key in ("rq:unique:k", "rq:uniques"):
        conn.hset(key, "x", 1)
        before = everything(conn)
        with pytest.raises(ConfigurationError, match=f"the unique key k is broken at {key}, which"), fusion_errors(conn):
            offer(broker, "a")
        assert everything(conn) == before
        conn.delete(key)
    offer(broker, "a")
    conn.delete("rq:unique:k")
    conn.hset("rq:unique:k", "x", 1)
    assert broker.cancel("a") == "canceled", "no end fails for it"


def test_a_duplicate_needs_no_room_and_many_big_ones_are_told_without_their_arguments(conn: redis.Redis, broker: Broker) -> None:
    data = b'["tasks.sms.sendSMS",null,["' + b"x" * 300_000 + b'"],{}]'
    broker.enqueue("q", [lone(f"a{n}", key=f"k{n}", data=data, serializer="json") for n in range(6)], "n")
    met = met_in(broker.enqueue("q", [lone(f"b{n}", key=f"k{n}") for n in range(6)], "n2"))
    assert sum("data" in one.fields for one in met.values()) == 4
    assert all(one.fields["status"] == b"queued" for one in met.values())


def test_a_plain_job_beside_it_leaves_the_keys_alone(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    put(broker, "q", "plain")
    hand.tell(hand.take())
    assert not conn.exists("rq:uniques")
