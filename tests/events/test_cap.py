"""How many events are kept, for whom, and that what is lost at the cap is counted."""

from __future__ import annotations

import pytest
import redis

from fusion.store.read.event_inspector import EventInspector
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from fusion.store.write.event_broker import EventBroker
from tests.events.hands import ack, beat, drain, numbers, reader, silence, sink_of
from tests.kit.hands import new, put
from tests.kit.promises import claim

#: Redis drops whole nodes of the stream.
NODE = 100
#: One event in 16 trims.
TRIM_EVERY = 16


def _events(broker: Broker, count: int, prefix: str = "j") -> None:
    for first in range(0, count, 500):
        broker.enqueue("q", [new(f"{prefix}{i}") for i in range(first, min(first + 500, count))], f"{prefix}{first}")


# -- how many are kept


def test_without_a_sink_each_process_trims_to_its_own_cap(conn: redis.Redis) -> None:
    _events(Broker(conn, FleetConstants(events_cap=500)), 2000)
    assert 500 <= conn.xlen("rq:events") <= 500 + NODE
    assert EventInspector(conn).stream().cap is None


def test_a_producer_with_other_settings_never_trims_what_a_sink_needs(conn: redis.Redis, events: EventBroker) -> None:
    beat(events)
    _events(Broker(conn, FleetConstants(events_cap=100)), 1000)
    assert conn.xlen("rq:events") == 1000
    assert EventInspector(conn).stream().cap == 1_000_000


def test_the_relay_asks_in_the_call_that_is_made_anyway(conn: redis.Redis, events: EventBroker) -> None:
    """A call reads the epoch from the numbering's hash. A call that trims also reads how many entries to keep."""
    broker = Broker(conn)
    put(broker, "q", "first")
    conn.config_resetstat()
    beat(events)
    put(broker, "q", "a", "b")
    stats = conn.info("commandstats")
    assert stats["cmdstat_hmget"]["calls"] == 1 + 2, "the relay's own, the layout's for both calls"
    assert stats["cmdstat_hget"]["calls"] == 1


def test_a_week_after_the_last_relay_the_stream_is_short_again(conn: redis.Redis, events: EventBroker) -> None:
    broker = Broker(conn, FleetConstants(events_cap=500))
    beat(events)
    _events(broker, 1000)
    assert conn.xlen("rq:events") == 1000
    conn.hincrby("rq:events:meta", "cap_until", -7 * 24 * 3600 - 1)
    put(broker, "q", *(f"{n}-more" for n in range(TRIM_EVERY)))
    assert conn.xlen("rq:events") <= 500 + NODE


@pytest.mark.parametrize("cap", ["", "many", "-1"])
def test_a_cap_that_is_none_loses_no_event(conn: redis.Redis, broker: Broker, events: EventBroker, cap: str) -> None:
    beat(events)
    conn.hset("rq:events:meta", "cap", cap)
    put(broker, "q", "a")
    assert conn.xlen("rq:events") == 1


# -- what the cap dropped


@claim("P12")
def test_the_cap_drops_and_counts(conn: redis.Redis, events: EventBroker) -> None:
    """P12: no event is missing that is not counted."""
    broker = Broker(conn, FleetConstants(events_cap=500))
    beat(events, backlog=500)
    found = reader(events)
    beat(events, backlog=500)
    _events(broker, 10)
    assert drain(found) == list(range(1, 11))
    _events(broker, 3000, "k")
    before = sink_of(conn)
    got = drain(found)
    after = sink_of(conn)
    assert got[-1] == 3010
    assert got == list(range(got[0], 3011))
    assert after.dropped == got[0] - 11 > 2000
    assert after.delivered + after.dropped == 3010
    assert (before.dropped, before.behind) == (after.dropped, len(got)), "told before anybody had read on"
    assert (after.behind, after.oldest) == (0, 0.0)


def test_events_lost_with_a_dead_relay_are_counted(conn: redis.Redis, events: EventBroker) -> None:
    """A relay held it, died, and meanwhile the cap took it."""
    broker = Broker(conn)
    _events(broker, 20)
    reader(events, "dead").read(10, 0)
    conn.xtrim("rq:events", maxlen=15, approximate=False)
    silence(conn, "dead", 99)
    other = reader(events, "other")
    assert drain(other) == list(range(6, 21))
    assert (sink_of(conn).dropped, sink_of(conn).delivered) == (5, 15)


def test_events_trimmed_by_hand_count_as_dropped(conn: redis.Redis, broker: Broker, events: EventBroker) -> None:
    _events(broker, 10)
    reader(events).read(6, 0)
    conn.xtrim("rq:events", maxlen=2, approximate=False)
    assert drain(reader(events)) == [9, 10]
    assert sink_of(conn).dropped == 8


def test_a_live_relay_delivers_its_events_after_the_stream_lost_them(
    conn: redis.Redis, broker: Broker, events: EventBroker
) -> None:
    _events(broker, 10)
    found = reader(events)
    got = found.read(6, 0)
    conn.xtrim("rq:events", maxlen=2, approximate=False)
    assert ack(found, got) == (6, 0)
    assert drain(found) == [9, 10]
    assert (sink_of(conn).dropped, sink_of(conn).delivered) == (2, 8)


def test_with_two_relays_a_gap_is_counted_once(conn: redis.Redis, broker: Broker, events: EventBroker) -> None:
    _events(broker, 4)
    one, two = reader(events, "one"), reader(events, "two")
    ack(one, one.read(2, 0))
    ack(two, two.read(2, 0))
    _events(broker, 10, "k")
    conn.xtrim("rq:events", maxlen=4, approximate=False)
    assert numbers(two.read(2, 0)) + numbers(one.read(2, 0)) == [11, 12, 13, 14]
    assert sink_of(conn).dropped == 6


def test_events_before_a_new_sink_do_not_count_as_dropped(conn: redis.Redis, events: EventBroker) -> None:
    _events(Broker(conn, FleetConstants(events_cap=500)), 2000)
    got = drain(reader(events))
    assert got[-1] == 2000
    assert sink_of(conn).dropped == 0


def test_a_new_numbering_is_no_gap(conn: redis.Redis, broker: Broker, events: EventBroker) -> None:
    _events(broker, 3)
    found = reader(events)
    assert drain(found) == [1, 2, 3]
    conn.delete("rq:events:meta")
    conn.hset("rq:events:meta", "n", 100)
    _events(broker, 2, "k")
    assert drain(found) == [101, 102]
    assert sink_of(conn).dropped == 0


# -- trimming


def test_events_that_all_sinks_have_are_trimmed_to_the_kept_number(conn: redis.Redis, events: EventBroker) -> None:
    beat(events)
    _events(Broker(conn), 3000)
    a, b = reader(events, sink="a"), reader(events, sink="b")
    drain(a)
    b.read(1, 0)
    assert events.events_trim(1000) == 0, "one sink holds the first"
    drain(reader(events, sink="b"))
    dropped = events.events_trim(1000)
    assert 2000 - NODE <= dropped <= 2000
    assert conn.xlen("rq:events") == 3000 - dropped
    assert events.events_trim(1000) == 0
    assert (sink_of(conn, "a").dropped, sink_of(conn, "b").dropped) == (0, 0)


def test_nothing_that_a_sink_has_yet_to_get_is_trimmed(conn: redis.Redis, events: EventBroker) -> None:
    beat(events)
    _events(Broker(conn), 2000)
    found = reader(events)
    for _ in range(7):
        ack(found, found.read(111, 0))
        while events.events_trim(10):
            pass
    held = found.read(100, 0)
    while events.events_trim(10):
        pass
    assert ack(found, held) == (100, 0)
    assert drain(found) == list(range(878, 2001))
    assert sink_of(conn).dropped == 0


def test_without_sinks_nothing_is_trimmed(conn: redis.Redis, broker: Broker, events: EventBroker) -> None:
    assert events.events_trim(10) == 0
    _events(broker, 300)
    assert events.events_trim(10) == 0


def test_a_sink_that_nobody_serves_any_more_holds_nothing_up(conn: redis.Redis, events: EventBroker) -> None:
    beat(events, "r", "a", "gone")
    _events(Broker(conn), 1000)
    drain(reader(events, sink="a"))
    reader(events, sink="gone").read(1, 0)
    assert events.events_trim(100) == 0
    conn.hincrby("rq:sink:gone", "served_ms", -7 * 24 * 3600 * 1000 - 1)
    assert events.events_trim(100) >= 900 - NODE
    back = drain(reader(events, sink="gone"))
    assert sink_of(conn, "gone").dropped + len(back) == 1000


def test_a_forgotten_sink_holds_nothing_up(conn: redis.Redis, events: EventBroker) -> None:
    beat(events, "r", "a", "gone")
    _events(Broker(conn), 500)
    drain(reader(events, sink="a"))
    reader(events, sink="gone").read(1, 0)
    admin = EventBroker(conn)
    assert admin.forget("gone")
    assert not admin.forget("gone")
    assert events.events_trim(100) > 0
    assert conn.hexists("rq:events:meta", "cap")
    assert admin.forget("a")
    assert conn.hkeys("rq:events:meta") == [b"epoch", b"n"]
    assert not conn.exists("rq:sink:a", "rq:sink:gone")


# -- how far a sink is


def test_how_far_a_sink_is_to_the_event(conn: redis.Redis, broker: Broker, events: EventBroker) -> None:
    """Exact, whatever the server's version."""
    _events(broker, 100)
    one, two = reader(events, "one"), reader(events, "two")
    first, second = one.read(30, 0), two.read(20, 0)
    assert (sink_of(conn).behind, sink_of(conn).delivered) == (100, 0)
    ack(two, second)
    assert sink_of(conn).behind == 80, "the earlier ones are still under way"
    ack(one, first[:10])
    assert sink_of(conn).behind == 70
    assert sink_of(conn).oldest > 0
    ack(one, first[10:])
    drain(one)
    assert (sink_of(conn).behind, sink_of(conn).oldest) == (0, 0.0)


def test_a_sink_nobody_has_read_for_yet_is_behind_by_all_there_is(conn: redis.Redis, events: EventBroker) -> None:
    _events(Broker(conn, FleetConstants(events_cap=500)), 2000)
    conn.xgroup_create("rq:events", "s", "0")
    assert sink_of(conn).behind == conn.xlen("rq:events")
    assert sink_of(conn).served is None


def test_without_a_stream_there_are_no_sinks(inspector: EventInspector) -> None:
    assert inspector.sinks() == []
    assert inspector.relays() == []
    assert (inspector.stream().length, inspector.stream().first) == (0, None)
    assert inspector.tail(10) == []


def test_the_tail_of_one_job(conn: redis.Redis, broker: Broker, inspector: EventInspector) -> None:
    put(broker, "q", "a")
    _events(broker, 1500)
    broker.cancel("a")
    assert [entry.fields["event"] for entry in inspector.tail(5, "a")] == ["queued", "canceled"]
    assert [entry.fields["event"] for entry in inspector.tail(1, "a")] == ["canceled"]
    assert [entry.fields["n"] for entry in inspector.tail(3)] == ["1500", "1501", "1502"]
    assert len(inspector.tail(10_000)) == 1502
    assert inspector.tail(0) == []
