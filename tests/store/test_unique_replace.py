"""`on_duplicate="replace"`: the newest of those that wait takes the others' place, and a time that begins anew has an end (debounce)."""

from __future__ import annotations

import secrets

import pytest
import redis

from fusion.exceptions import QueueFull
from fusion.store.layout.records import Met, Room
from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from fusion.store.write.queue_calls import met_in
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, events_of, everything, fields_of, new, now_ms, promote_all, put, status_of
from tests.store.limits_hands import faults, holders
from tests.store.unique_hands import flaws, lone, offer, owner


def replace(broker: Broker, job_id: str, queue: str = "q", **more: object) -> Met | None:
    at = broker.enqueue(queue, [lone(job_id, on_duplicate="replace", **more)], secrets.token_hex(6))
    return met_in(at).get(job_id)


@pytest.fixture
def hand(broker: Broker) -> Hand:
    return Hand(broker, "q", "p")


def due(conn: redis.Redis, job_id: str) -> float:
    """In how many seconds it is due."""
    return round((conn.zscore("rq:scheduler:scheduled_jobs", job_id) or 0) - now_ms(conn) / 1000)


def test_the_newer_takes_the_place_of_the_one_that_waits(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    put(broker, "q", "first")
    assert replace(broker, "a") is None
    put(broker, "q", "behind")
    assert replace(broker, "b") == Met("a", False, "queued")
    found = fields_of(conn, "a")
    assert (found["status"], found["reason"], found["replaced_by"]) == ("canceled", "replaced", "b")
    assert fields_of(conn, "b")["replaces"] == "a"
    assert (owner(conn), flaws(conn)) == ("b", [])
    assert [(event["event"], event.get("reason")) for event in events_of(conn, "a")] == [
        ("queued", None),
        ("canceled", "replaced"),
    ]
    assert conn.hget("rq:totals:q", "canceled:1") == b"1"
    check_conservation(conn, ["a", "b", "first", "behind"])
    assert drain(hand, 1) == ["first", "b", "behind"], "nobody is moved back by newer arguments"


def test_one_of_another_queue_or_priority_arrives_anew(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    replace(broker, "a")
    put(broker, "q", "low", priority=0)
    replace(broker, "b", priority=0)
    assert Inspector(conn).waiting("q", 0, 9) == ["low", "b"]
    replace(broker, "c", "p")
    assert (Inspector(conn).waiting("q", 0, 9), Inspector(conn).waiting("p", 0, 9)) == (["low"], ["c"])
    assert check_conservation(conn, ["a", "b", "c"]) == {"a": "canceled", "b": "canceled", "c": "queued"}


def test_one_that_runs_is_met_as_by_skip(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    replace(broker, "a")
    claimed = hand.take()
    before = everything(conn)
    met = replace(broker, "b")
    assert met is not None
    assert (met.other, met.skipped, met.fields["status"]) == ("a", True, b"started")
    assert everything(conn) == before
    hand.tell(claimed)
    assert replace(broker, "b") is None


def test_a_window_that_lasts_is_met_as_by_skip_but_for_one_of_an_enqueue(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    replace(broker, "a", unique_until="start", unique_window=60_000)
    hand.tell(hand.take(), "release", reason="r")
    assert (replace(broker, "b") or Met("", False)).skipped, "it has run, and waits to run again"
    replace(broker, "c", key="k2", unique_until="accept", unique_window=60_000)
    assert replace(broker, "d", key="k2", unique_until="accept", unique_window=60_000) == Met("c", False, "queued")
    assert (status_of(conn, "c"), owner(conn, "k2")) == ("canceled", "d")
    hand.turn(slots=[0, 0])
    assert (replace(broker, "e", key="k2", unique_until="accept", unique_window=60_000) or Met("", False)).skipped


def test_a_resend_answers_as_the_first_time(conn: redis.Redis, broker: Broker) -> None:
    replace(broker, "a")
    first = broker.enqueue("q", [lone("b", on_duplicate="replace")], "n")
    before = everything(conn)
    again = broker.enqueue("q", [lone("b", on_duplicate="replace")], "n")
    assert (again, met_in(again)) == (first, met_in(first))
    assert everything(conn) == before
    assert [event["event"] for event in events_of(conn, "a")] == ["queued", "canceled"]


def test_the_newest_of_one_call_stays(conn: redis.Redis, broker: Broker) -> None:
    at = broker.enqueue("q", [lone(one, on_duplicate="replace") for one in "abc"] + [new("d")], "n")
    assert {job_id: met.other for job_id, met in met_in(at).items()} == {"b": "a", "c": "b"}
    assert check_conservation(conn, "abcd") == {"a": "canceled", "b": "canceled", "c": "queued", "d": "queued"}
    assert flaws(conn) == []


def test_a_time_to_wait_for_begins_anew_and_ends_after_max_delay(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    for n in range(3):
        replace(broker, f"j{n}", delay=60.0, max_delay=100_000)
        assert due(conn, f"j{n}") == 60
    since = int(fields_of(conn, "j2")["unique_since"])
    assert since == int(fields_of(conn, "j0")["unique_since"]), "of the first of the series"
    conn.hset("rq:job:j2", "unique_since", since - 70_000)
    assert replace(broker, "late", delay=60.0, max_delay=100_000) == Met("j2", False, "scheduled")
    assert due(conn, "late") == 30
    conn.hset("rq:job:late", "unique_since", since - 100_001)
    assert replace(broker, "now", delay=60.0, max_delay=100_000) == Met("late", False, "queued")
    assert [job.id for job in hand.turn(slots=[0, 0]).jobs] == ["now"]
    assert conn.zcard("rq:scheduler:scheduled_jobs") == 0


def test_a_new_series_begins_when_the_last_one_has_run(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    replace(broker, "a", delay=60.0, max_delay=90_000, unique_until="start")
    conn.hset("rq:job:a", "unique_since", 1)
    promote_all(broker, conn)
    hand.tell(hand.take())
    assert replace(broker, "b", delay=60.0, max_delay=90_000, unique_until="start") is None
    assert due(conn, "b") == 60


def test_a_blocked_job_is_replaced_in_its_line(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    limited = {"ties": "ku", "concurrency_key": "l", "max_concurrent": 1}
    for one, key in (("x", "kx"), ("a", "k"), ("y", "ky")):
        replace(broker, one, key=key, **limited)
    assert status_of(conn, "a") == "blocked"
    assert replace(broker, "b", **limited) == Met("a", False, "blocked")
    assert (faults(conn), flaws(conn), conn.zscore("rq:blocked:q", "a")) == ([], [], None)
    order = []
    for _ in range(3):
        claimed = hand.take()
        order.append(claimed.id)
        hand.tell(claimed)
    assert order == ["x", "b", "y"]


def test_it_is_not_discarded_for_the_slot_of_the_one_that_it_replaces(conn: redis.Redis, broker: Broker) -> None:
    limited = {"ties": "kdu", "concurrency_key": "l", "max_concurrent": 1, "on_conflict": "discard"}
    replace(broker, "a", **limited)
    assert replace(broker, "b", **limited) == Met("a", False, "queued")
    assert (holders(conn, "l"), owner(conn), faults(conn), flaws(conn)) == (["b"], "b", [], [])


def test_a_replaced_job_makes_room_in_a_full_queue(conn: redis.Redis, broker: Broker) -> None:
    broker.set_gate("q", {"max_length": 1})
    replace(broker, "a")
    assert replace(broker, "b") == Met("a", False, "queued")
    with pytest.raises(QueueFull):
        replace(broker, "c", key="other")
    assert offer(broker, "d") == "b", "a duplicate needs none"
    with pytest.raises(QueueFull):
        broker.enqueue("p", [lone("e", key="x"), lone("f", key="y")], "n", room=Room(1))


def test_no_url_is_told_of_a_job_that_was_replaced_and_its_ttl_is_forgotten(conn: redis.Redis, broker: Broker) -> None:
    replace(broker, "a", ttl=60.0, callback_url="https://x/", hooks=1)
    replace(broker, "b")
    assert conn.zcard("rq:queue:_callbacks") == 0
    assert conn.zcard("rq:expiring") == 0


def test_a_queue_that_is_broken_leaves_the_key_to_the_other(conn: redis.Redis, broker: Broker) -> None:
    replace(broker, "a")
    conn.set("rq:queue:p", "theirs")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        replace(broker, "b", "p")
    assert (owner(conn), status_of(conn, "a")) == ("a", "queued")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        replace(broker, "c", "p", key="other")
    assert (owner(conn, "other"), flaws(conn)) == (None, [])
