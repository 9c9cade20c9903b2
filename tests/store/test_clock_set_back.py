"""The clock of the Redis host is set back an hour: who died before is dead, and who lives goes on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fusion.store.redis_server.binary import ServerBinary
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker
from fusion.store.write.event_broker import EventBroker
from tests.events.hands import BACKLOG, beat
from tests.faults.rig.clock import SetClockRedis, why_not
from tests.kit.hands import Hand, put, status_of
from tests.kit.waiting import eventually

pytestmark = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")

HOUR = 3600
LEASE = 1.0


@pytest.fixture
def server(server_binary: ServerBinary) -> Iterator[SetClockRedis]:
    """Its clock is an hour ahead."""
    server = SetClockRedis(server_binary)
    try:
        server.set(HOUR)
        yield server
    finally:
        server.close()


def test_a_dead_worker_is_buried_a_lease_later_and_the_living_stay(server: SetClockRedis) -> None:
    broker = Broker(server.conn)
    put(broker, "q", "a", "b")
    dead, living = Hand(broker, "q", name="dead", lease=LEASE), Hand(broker, "q", name="living", lease=LEASE)
    dead.take()
    kept = living.take()
    broker.reap(LEASE, 0)
    server.set(0)
    buried: list[str] = []

    def recovered() -> bool:
        living.extend(kept)
        broker.reap(LEASE, 0)
        buried.extend(name for name, _ in broker.prune(LEASE))
        return server.conn.smembers("rq:workers") == {b"rq:worker:living"} and status_of(server.conn, "a") == "queued"

    eventually(recovered, 5 * LEASE, why="the dead one is buried and its job given back")
    assert buried == ["dead"]
    assert status_of(server.conn, "b") == "started"


def test_a_dead_workers_name_is_free_a_lease_later(server: SetClockRedis) -> None:
    broker = Broker(server.conn)
    Hand(broker, "q", name="mine", lease=LEASE)
    server.set(0)
    assert not broker.register("mine", "other", LEASE, 420, {}), "it may live"
    eventually(lambda: broker.register("mine", "other", LEASE, 420, {}), 5 * LEASE, why="the name is free")


def test_a_dead_schedulers_name_is_free_and_its_version_speaks_no_more(server: SetClockRedis) -> None:
    broker = CronBroker(server.conn)
    assert broker.scheduler_beat("mine", "i", LEASE, 420, {"app": "a", "version": "2"})
    server.set(0)
    assert not broker.scheduler_beat("mine", "other", LEASE, 420, {})
    assert broker.scheduler_beat("newer", "n", LEASE, 420, {"app": "a", "version": "1"})
    assert server.conn.zscore("rq:schedulers", "mine") <= server.now() * 1000, "a minute later it leaves the list"
    eventually(
        lambda: broker.cron_put("e", "p", "s", "r", app="a", version="1") == "new", 5 * LEASE, why="the lower version may speak"
    )
    assert broker.scheduler_beat("mine", "other", LEASE, 420, {})


def test_a_dead_relay_leaves_what_it_held_to_others(server: SetClockRedis) -> None:
    events = EventBroker(server.conn)
    put(Broker(server.conn), "q", "a")
    assert beat(events, "dead", "s", lease=LEASE)
    assert events.events_read("s", "dead", 10)[0]
    server.set(0)
    assert not events.relay_beat("dead", "other", LEASE, 420, ("s",), BACKLOG, {})
    assert beat(events, "heir", "s", lease=LEASE)
    assert server.conn.zscore("rq:relays", "dead") <= server.now() * 1000
    eventually(lambda: events.events_read("s", "heir", 10, dead=True)[0], 5 * LEASE, why="its events are another's")


def test_an_abandoned_sink_does_not_keep_events_for_an_hour_more(server: SetClockRedis) -> None:
    events = EventBroker(server.conn)
    assert beat(events, "dead", "s", lease=LEASE)
    put(Broker(server.conn), "q", "a", "b")
    events.events_read("s", "dead", 1)
    server.set(0)
    events.events_trim(1)
    assert int(server.conn.hget("rq:sink:s", "served_ms") or 0) <= server.now() * 1000
