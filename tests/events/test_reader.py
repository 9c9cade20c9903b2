"""A sink's events: each to one relay, until it is acknowledged; nothing is lost with a relay that dies."""

from __future__ import annotations

import json
import threading
import time

import pytest
import redis
from redis.exceptions import ConnectionError as RedisConnectionError

from fusion.events.document import from_document
from fusion.store.read.event_inspector import EventInspector
from fusion.store.stream.reader import EventReader
from fusion.store.write.broker import Broker
from fusion.store.write.event_broker import EventBroker, Mark
from tests.events.hands import ack, beat, drain, numbers, reader, silence, sink_of
from tests.kit.hands import Hand, put


def _some(broker: Broker, count: int, prefix: str = "j") -> None:
    """This many events."""
    put(broker, "q", *(f"{prefix}{i}" for i in range(count)))


def test_the_first_look_finds_what_was_there_before(broker: Broker, events: EventBroker) -> None:
    _some(broker, 10)
    found = reader(events)
    assert numbers(found.read(4, 0)) == [1, 2, 3, 4]


def test_events_come_in_order_and_once(broker: Broker, events: EventBroker, conn: redis.Redis) -> None:
    _some(broker, 10)
    assert drain(reader(events), 3) == list(range(1, 11))
    _some(broker, 2, "k")
    assert drain(reader(events)) == [11, 12]
    assert sink_of(conn).delivered == 12


def test_each_sink_gets_all_of_them(broker: Broker, events: EventBroker) -> None:
    _some(broker, 5)
    assert drain(reader(events, sink="a")) == drain(reader(events, sink="b")) == [1, 2, 3, 4, 5]


def test_two_relays_share_a_sinks_events(broker: Broker, events: EventBroker) -> None:
    _some(broker, 6)
    one, two = reader(events, "one"), reader(events, "two")
    first, second = one.read(3, 0), two.read(500, 0)
    assert (numbers(first), numbers(second)) == ([1, 2, 3], [4, 5, 6])
    ack(one, first)
    ack(two, second)
    assert (one.read(500, 0), two.read(500, 0)) == ([], [])


def test_nothing_is_news_a_second_time(broker: Broker, events: EventBroker, conn: redis.Redis) -> None:
    _some(broker, 3)
    found = reader(events)
    got = found.read(500, 0)
    refused = {got[1].event.id: "why"}
    assert ack(found, got, refused) == (2, 1)
    assert ack(found, got, refused) == (0, 0), "the answer to the first was lost, say"
    assert (sink_of(conn).delivered, sink_of(conn).parked) == (2, 1)


def test_a_restarted_relay_first_gets_what_it_held(broker: Broker, events: EventBroker) -> None:
    _some(broker, 4)
    reader(events).read(3, 0)
    again = reader(events)
    first = again.read(2, 0)
    assert numbers(first) == [1, 2]
    ack(again, first)
    assert drain(again) == [3, 4]


def test_events_of_a_dead_relay_go_to_others(broker: Broker, events: EventBroker, conn: redis.Redis) -> None:
    _some(broker, 5)
    reader(events, "dead").read(3, 0)
    assert numbers(reader(events, "other").read(500, 0)) == [4, 5], "it may be alive"
    silence(conn, "dead", 16)
    third = reader(events, "third")
    got = third.read(2, 0)
    assert numbers(got) == [1, 2]
    ack(third, got)
    assert drain(third) == [3]
    reader(events, "fourth").read(500, 0)
    assert [group["consumers"] for group in conn.xinfo_groups("rq:events")] == [3], "of the dead nothing stays"


def test_a_relay_that_left_is_dead_at_once(broker: Broker, events: EventBroker) -> None:
    _some(broker, 2)
    reader(events, "leaves").read(500, 0)
    assert events.relay_leave("leaves", "of leaves")
    assert drain(reader(events, "other")) == [1, 2]


def test_a_sink_that_takes_its_time_is_not_robbed(broker: Broker, events: EventBroker, conn: redis.Redis) -> None:
    """However long a batch takes: the relay's heartbeat counts."""
    _some(broker, 2)
    slow = reader(events, "slow")
    got = slow.read(500, 0)
    conn.xclaim("rq:events", "s", "slow", 0, [delivery.entry for delivery in got], idle=10**9, justid=True)
    assert reader(events, "other").read(500, 0) == []
    assert ack(slow, got) == (2, 0)


def test_a_relay_given_up_too_soon_does_no_harm(broker: Broker, events: EventBroker, conn: redis.Redis) -> None:
    _some(broker, 2)
    slow = reader(events, "slow")
    got = slow.read(500, 0)
    silence(conn, "slow", 99)
    other = reader(events, "other")
    again = other.read(500, 0)
    assert numbers(again) == [1, 2]
    assert ack(slow, got) == (2, 0)
    assert ack(other, again) == (0, 0)
    assert sink_of(conn).delivered == 2


def test_a_lost_reply_is_asked_for_again(broker: Broker, events: EventBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server handed them out, and nobody heard of it."""
    _some(broker, 3)
    found = reader(events)
    assert drain(found) == [1, 2, 3]
    assert found.read(500, 0) == []
    _some(broker, 2, "k")
    monkeypatch.setattr(found._details, "events", _break)
    with pytest.raises(RedisConnectionError):
        found.read(500, 0)
    monkeypatch.undo()
    assert drain(found) == [4, 5]


def _break(entries: object) -> list[object]:
    raise RedisConnectionError("reset")


def test_waiting_ends_with_the_next_event(broker: Broker, events: EventBroker, redis_url: str) -> None:
    _some(broker, 1)
    found = reader(events)
    assert drain(found) == [1]
    began = threading.Event()
    got: list[int] = []

    def wait() -> None:
        began.set()
        got.extend(numbers(found.read(500, 4.0)))

    thread = threading.Thread(target=wait)
    thread.start()
    began.wait(5)
    _some(broker, 2, "k")
    thread.join(10)
    assert got[:1] == [2]


def test_without_an_event_the_wait_ends_by_itself(broker: Broker, events: EventBroker) -> None:
    started = time.monotonic()
    assert reader(events).read(500, 0.2) == []
    assert time.monotonic() - started >= 0.2


# -- what a sink refuses


def test_a_refused_event_is_parked_whole(
    broker: Broker, events: EventBroker, conn: redis.Redis, inspector: EventInspector
) -> None:
    _some(broker, 2)
    found = reader(events)
    got = found.read(500, 0)
    ack(found, got, {got[0].event.id: "mapper_parsing_exception"})
    (parked,) = inspector.parked("s", 10)
    assert parked.why == "mapper_parsing_exception"
    assert from_document(json.loads(parked.document)) == got[0].event
    assert inspector.parked_count("s") == sink_of(conn).parked == 1


def test_parked_events_over_the_cap_make_room_and_count_as_dropped(
    broker: Broker, events: EventBroker, conn: redis.Redis
) -> None:
    _some(broker, 5)
    found = reader(events)
    got = found.read(500, 0)
    rows = [(delivery.entry, "why", "{}") for delivery in got]
    args = {"sink": "s", "parked_max": 3, "n_ids": 0, **Mark("e", "5", 1)._asdict()}
    keys = {"events": "rq:events", "sink": "rq:sink:s", "parked": "rq:events:parked:s"}
    assert events._script("events_ack")(keys, args, [part for row in rows for part in row]) == [0, 5]
    assert (sink_of(conn).parked, sink_of(conn).dropped) == (3, 2)


# -- relays


def test_a_relay_is_listed_while_it_lives(events: EventBroker, conn: redis.Redis, inspector: EventInspector) -> None:
    assert beat(events, "h.1", "a", "b")
    (found,) = inspector.relays()
    assert (found.name, found.hostname, found.pid, found.sinks, found.alive) == ("h.1", "h", 7, ("a", "b"), True)
    assert 0 < conn.ttl("rq:relay:h.1") <= 420
    silence(conn, "h.1", 16)
    assert [relay.alive for relay in inspector.relays()] == [False]
    silence(conn, "h.1", 76)
    beat(events, "h.2")
    assert [relay.name for relay in inspector.relays()] == ["h.2"]
    assert not conn.exists("rq:relay:h.1")


def test_a_name_that_a_live_relay_has_is_taken(events: EventBroker, conn: redis.Redis) -> None:
    assert beat(events, "h.1", incarnation="a")
    assert not beat(events, "h.1", incarnation="b")
    silence(conn, "h.1", 16)
    assert beat(events, "h.1", incarnation="b")
    assert not events.relay_leave("h.1", "a"), "it is another's by now"
    assert events.relay_leave("h.1", "b")
    assert not conn.exists("rq:relay:h.1", "rq:relays")


def test_whether_all_sinks_are_served(events: EventBroker, conn: redis.Redis) -> None:
    assert not events.served(["a"], 15)
    beat(events, "r", "a", "b")
    assert events.served(["a", "b"], 15)
    assert not events.served(["a", "c"], 15)
    conn.hincrby("rq:sink:b", "served_ms", -16_000)
    assert not events.served(["a", "b"], 15)


# -- what is not what it should be


def test_a_flushed_redis_is_a_new_beginning(broker: Broker, events: EventBroker, conn: redis.Redis) -> None:
    _some(broker, 5)
    found = reader(events)
    assert drain(found) == [1, 2, 3, 4, 5]
    conn.flushall()
    _some(broker, 2)
    assert drain(found) == [1, 2]
    assert (sink_of(conn).dropped, sink_of(conn).delivered) == (0, 2)


def test_entries_of_others_are_passed_on_as_they_are(events: EventBroker, conn: redis.Redis) -> None:
    conn.xadd("rq:events", {"hello": "world"})
    conn.xadd("rq:events", {b"\xff": b"\xfe", "n": "x", "elapsed_us": "soon", "at_ms": "then"})
    conn.xadd("rq:events", {"event": "retry", "elapsed_us": "inf", "delay_ms": "nan", "at_ms": "-" + "9" * 40, "n": "9" * 5000})
    conn.xadd("rq:events", {"event": "completed", "job_id": "no such", "epoch": "e", "n": "7", "worker": "w"})
    conn.xadd("rq:events", {"event": "queued"}, id=f"{2**63}-1")
    deliveries = reader(events).read(500, 0)
    assert [d.event.id for d in deliveries] == [*(d.entry for d in deliveries[:3]), "e-7", f"{2**63}-1"]
    assert [d.event.event for d in deliveries] == ["", "", "retry", "completed", "queued"]
    assert (deliveries[2].event.elapsed, deliveries[2].event.at.year, deliveries[4].event.at.year) == (None, 1970, 9999)
    assert ack(EventReader(events, "s", lambda: "r", "masked"), deliveries) == (5, 0)
    assert sink_of(conn).behind == 0


def test_a_stream_of_the_wrong_type_is_an_error(events: EventBroker, conn: redis.Redis) -> None:
    conn.set("rq:events", "junk")
    with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
        reader(events).read(500, 0)


def test_broken_keys_of_relays_and_sinks_fail_no_event(conn: redis.Redis, broker: Broker, events: EventBroker) -> None:
    conn.set("rq:relay:broken", "junk")
    conn.zadd("rq:relays", {"broken": 1})
    _some(broker, 1)
    hand = Hand(broker, "q")
    assert hand.tell(hand.take()) == "ok"
    assert drain(reader(events)) == [1, 2, 3]
