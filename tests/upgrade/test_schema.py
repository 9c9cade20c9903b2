"""The key that says which layout the data have: which processes write it, read it and are refused, and when it moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from fusion import Job, Queue, __version__
from fusion.exceptions import SchemaMismatch
from fusion.store.layout import schema
from fusion.store.layout.schema import Schema
from fusion.store.read.inspector import Inspector
from fusion.store.scripting.constants import FleetConstants
from fusion.store.scripting.host import ScriptHost
from fusion.store.scripting.scripts import load
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker
from fusion.store.write.event_broker import EventBroker
from fusion.store.write.schema_broker import Older, SchemaBroker
from tests.cli.conftest import Invoke
from tests.kit import guarded
from tests.kit.hands import LEASE, Hand, everything, put, wire
from tests.kit.servers import SpawnedServer
from tests.store.test_scripts import NAMES, REPEATED, scenario

NOOP = "tests.jobs.basic.noop"
#: The layout of this version, and the one that a newer one would have.
THIS, NEXT = schema.VERSION, schema.VERSION + 1


def schema_of(conn: redis.Redis, prefix: str = "rq:") -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in conn.hgetall(f"{prefix}schema").items()}


def need(conn: redis.Redis, *, reader: int = 1, writer: int = 1, version: int = NEXT) -> None:
    """As if a newer version had moved the key."""
    conn.hset("rq:schema", mapping={"version": version, "min_reader": reader, "min_writer": writer, "fusion": "9.9"})


def known_to(host: ScriptHost, layout: int) -> None:
    """Have `host` be one of a version that knows this layout."""
    host._constants = replace(host._constants, schema=layout)


def _worker(conn: redis.Redis) -> Any:
    return Broker(conn).register("host.1", "i", LEASE, 420, {})


def _scheduler(conn: redis.Redis) -> Any:
    return CronBroker(conn).scheduler_beat("host.2", "i", LEASE, 420, {})


def _relay(conn: redis.Redis) -> Any:
    return EventBroker(conn).relay_beat("host.3", "i", LEASE, 420, [], 0, {})


ENTRANCES = {"worker": _worker, "scheduler": _scheduler, "relay": _relay}


# -- who writes it


@pytest.mark.parametrize("kind", ENTRANCES)
def test_the_first_process_of_a_fleet_writes_it(conn: redis.Redis, kind: str) -> None:
    ENTRANCES[kind](conn)
    found = schema_of(conn)
    assert found.pop("at").endswith("Z")
    assert found.pop("by").startswith("host.")
    assert found == {"version": str(THIS), "min_reader": "2", "min_writer": "2", "fusion": __version__}


@pytest.mark.parametrize("kind", ENTRANCES)
@pytest.mark.parametrize("key", ["rq:workers", "rq:queues", "rq:seq", "rq:cron:due"])
def test_where_data_are_they_are_of_the_layout_of_data_without_a_key(conn: redis.Redis, kind: str, key: str) -> None:
    """Whoever wrote them knows no key."""
    put = {"rq:seq": lambda: conn.incr(key), "rq:cron:due": lambda: conn.zadd(key, {"x": 1})}
    put.get(key, lambda: conn.sadd(key, "rq:queue:old"))()
    ENTRANCES[kind](conn)
    assert {schema_of(conn)[name] for name in ("version", "min_reader", "min_writer")} == {str(schema.FIRST)}


@pytest.mark.parametrize("kind", ENTRANCES)
def test_what_is_there_stays(conn: redis.Redis, kind: str) -> None:
    ENTRANCES["worker"](conn)
    conn.hset("rq:schema", mapping={"version": 7, "by": "somebody", "a later field": "x"})
    before = schema_of(conn)
    ENTRANCES[kind](conn)
    assert schema_of(conn) == before


def test_the_first_write_to_an_empty_prefix_writes_it(conn: redis.Redis) -> None:
    Queue("q", conn).enqueue(NOOP)
    found = schema_of(conn)
    assert found.pop("at").endswith("Z")
    assert found == {"version": str(THIS), "min_reader": "2", "min_writer": "2", "fusion": __version__, "by": "enqueue"}


def test_the_first_entry_of_cron_writes_it(conn: redis.Redis) -> None:
    CronBroker(conn).cron_put("e", '{"every":60}', "{}", "r")
    assert (schema_of(conn)["version"], schema_of(conn)["by"]) == (str(THIS), "cron_put")


def test_producers_write_none_where_data_are_and_those_who_only_look_never(conn: redis.Redis, invoke: Invoke) -> None:
    conn.sadd("rq:queues", "rq:queue:old")
    Queue("q", conn).enqueue(NOOP)
    Inspector(conn).queues(["q"])
    assert not conn.exists("rq:schema")
    conn.flushall()
    for command in (["info"], ["schema"], ["events", "stats"]):
        invoke(*command)
    assert not conn.exists("rq:schema")


def test_each_prefix_has_its_own(conn: redis.Redis) -> None:
    guarded.allow_prefix(conn, "other:")
    need(conn, reader=NEXT, writer=NEXT)
    guarded.allow_prefix(conn, "other:")
    other = Broker(conn, FleetConstants(prefix="other:"))
    put(other, "q", "a")
    assert [job.id for job in Hand(other, "q").claim()] == ["a"]
    assert schema_of(conn, "other:")["version"] == str(THIS)


def test_it_comes_back_after_flushall(conn: redis.Redis, broker: Broker) -> None:
    hand = Hand(broker, "q")
    conn.flushall()
    assert hand.turn(slots=[0]).status == "unregistered"
    assert not conn.exists("rq:schema")
    broker.register(hand.name, hand.incarnation, LEASE, 420, {})
    assert schema_of(conn)["version"] == str(THIS)


def test_a_replica_tells_it_and_is_not_written_to(spawn: Callable[..., SpawnedServer], invoke: Invoke) -> None:
    server = spawn()
    client = server.client()
    _worker(client)
    client.replicaof("127.0.0.1", 1)  # nobody is there: read-only, with the data it has
    before = schema_of(client)
    assert f"Data: schema {THIS}" in invoke("schema", "-u", server.url).output
    assert "READONLY" in invoke("schema", "--raise", "-u", server.url, code=1).stderr
    with pytest.raises(redis.ReadOnlyError):
        _worker(client)
    assert schema_of(client) == before
    client.close()


# -- who is turned away

#: Called only by processes that are in their list: nobody there can become too old, since the key does not move meanwhile.
OF_MEMBERS = {"turn", "deregister", "reap", "prune", "promote", "expire", "clean", "survey", "ring", "cron_due", "cron_tick", "cron_fault"} | {
    "endpoint_gone", "scheduler_leave", "relay_leave", "events_trim", "note_history", "sample",
    "release", "report", "follow", "write_logs",
}  # fmt: skip
#: What is said of a job, and what changes no job.
SAYS = {"log_event"}
#: What changes nothing.
LOOKS = {"walk_graph", "count_members"}
_ASK_BOTH = {"register", "extend", "hold_probation", "scheduler_beat", "relay_beat", "events_read", "events_ack", "schema_raise"}


def test_every_script_that_others_call_asks() -> None:
    asking = {name for name in NAMES if "FUSION_SCHEMA" in load(name).body}
    assert asking | OF_MEMBERS | SAYS | LOOKS == set(NAMES)
    assert not asking & (OF_MEMBERS | SAYS | LOOKS)


def _changes(conn: redis.Redis) -> int:
    return int(conn.info("persistence")["rdb_changes_since_last_save"])


def test_a_process_that_is_too_old_changes_nothing(conn: redis.Redis) -> None:
    calls = scenario(conn)
    need(conn, writer=NEXT)
    before, changes = everything(conn, clocks=True), _changes(conn)
    free = OF_MEMBERS | SAYS
    turned_away = [name for name in REPEATED if not any(name == one or name.startswith(f"{one}_") for one in free)]
    assert {"enqueue", "enqueue_later", "cancel_running", "suspend", "pause", "cron_put", "register"} <= set(turned_away)
    for name in turned_away:
        with pytest.raises(SchemaMismatch) as caught:
            calls[name]()
        assert (caught.value.version, caught.value.needed) == (NEXT, NEXT)
        assert _changes(conn) == changes, name
    assert everything(conn, clocks=True) == before


def test_a_new_layout_for_the_fleet_alone_leaves_producers_alone(conn: redis.Redis) -> None:
    calls = scenario(conn)
    need(conn, reader=NEXT, writer=1)
    asked = set()
    for name in REPEATED:
        try:
            calls[name]()
        except SchemaMismatch:
            asked.add(name)
    assert asked == _ASK_BOTH


def test_a_producer_gets_an_error_that_says_what_to_do(conn: redis.Redis) -> None:
    Queue("q", conn).enqueue(NOOP, job_id="before")
    need(conn, writer=NEXT, version=NEXT + 1)
    before = everything(conn, clocks=True)
    with pytest.raises(SchemaMismatch) as caught:
        Queue("q", conn).enqueue(NOOP)
    text = str(caught.value)
    assert text == (
        f"the data in Redis are of schema {NEXT + 1} (Fusion 9.9) and need a process that knows schema {NEXT};"
        f" this is Fusion {__version__}, which knows schema {schema.VERSION}: upgrade it [FUS-104]"
    )
    for change in (Job.fetch("before", conn).cancel, Queue("q", conn).pause, Queue("q", conn).resume, Queue("q", conn).empty):
        with pytest.raises(SchemaMismatch):
            change()
    assert everything(conn, clocks=True) == before
    need(conn, writer=1, version=NEXT + 1)
    Queue("q", conn).enqueue(NOOP)


def test_asking_costs_a_producer_no_round_trip(conn: redis.Redis) -> None:
    queue = Queue("q", conn)
    queue.enqueue(NOOP)
    with wire(conn) as sent:
        for _ in range(3):
            queue.enqueue(NOOP)
    assert sent == ["EVALSHA"] * 3


@pytest.mark.parametrize("garbage", ["", "two", "1e400", "-1", "\u0662"])
def test_a_number_that_is_none_counts_as_no_number(conn: redis.Redis, broker: Broker, garbage: str) -> None:
    conn.hset("rq:schema", mapping={"version": garbage, "min_writer": garbage, "min_reader": garbage})
    if garbage == "1e400":  # to Lua that is a number, and as high as they come
        with pytest.raises(SchemaMismatch):
            put(broker, "q", "a")
        return
    put(broker, "q", "a")
    assert [job.id for job in Hand(broker, "q").claim()] == ["a"]
    assert SchemaBroker(conn).stored().version == schema.FIRST


def test_a_damaged_key_turns_all_away_and_says_how_to_mend_it(conn: redis.Redis, broker: Broker) -> None:
    conn.set("rq:schema", "x")
    for call in (lambda: put(broker, "q", "a"), lambda: Hand(broker, "q")):
        with pytest.raises(SchemaMismatch, match=r"damaged.*delete it"):
            call()
    conn.delete("rq:schema")
    put(broker, "q", "a")
    Hand(broker, "q")


# -- when it moves


@pytest.fixture
def mover(conn: redis.Redis) -> Iterator[SchemaBroker]:
    """One of a version that knows the next layout."""
    found = SchemaBroker(conn)
    known_to(found, NEXT)
    return found


def test_it_moves_when_nobody_would_become_too_old(conn: redis.Redis, mover: SchemaBroker) -> None:
    _worker(conn)
    _scheduler(conn)
    _relay(conn)
    to = Schema(NEXT, min_reader=NEXT, min_writer=1)
    before = everything(conn, clocks=True)
    assert mover.schema_raise("me", to) == [
        Older("worker", "host.1", THIS),
        Older("scheduler", "host.2", THIS),
        Older("relay", "host.3", THIS),
    ]
    assert everything(conn, clocks=True) == before
    Broker(conn).deregister("host.1", "i")
    CronBroker(conn).scheduler_leave("host.2", "i")
    assert mover.schema_raise("me", to) == [Older("relay", "host.3", THIS)]
    EventBroker(conn).relay_leave("host.3", "i")
    assert mover.schema_raise("me", to) == []
    found = mover.stored()
    assert (found.version, found.min_reader, found.min_writer, found.by) == (NEXT, NEXT, 1, "me")
    for enter in ENTRANCES.values():
        with pytest.raises(SchemaMismatch):
            enter(conn)


def test_processes_of_the_new_version_are_no_obstacle(conn: redis.Redis, mover: SchemaBroker) -> None:
    broker = Broker(conn)
    known_to(broker, NEXT)
    hand = Hand(broker, "q")
    assert mover.schema_raise("me", Schema(NEXT, NEXT, NEXT)) == []
    assert hand.extend() == (True, [])


def test_a_step_that_asks_nothing_of_older_ones_is_free(conn: redis.Redis, mover: SchemaBroker) -> None:
    _worker(conn)
    assert mover.schema_raise("me", Schema(NEXT, 1, 1)) == []
    _worker(conn)
    assert schema_of(conn)["version"] == str(NEXT)


def test_a_silent_process_counts_until_it_is_buried(conn: redis.Redis, broker: Broker, mover: SchemaBroker) -> None:
    """It may only be stopped; back again, nobody would tell it."""
    silent = Hand(broker, "q")
    conn.hset("rq:worker:host.1", "beat_ms", 1)
    conn.hset("rq:reap", mapping={"last": conn.time()[0] * 1000, "hold": 0})
    assert mover.schema_raise("me", Schema(NEXT, NEXT, NEXT)) == [Older("worker", "host.1", THIS)]
    assert [name for name, _ in broker.prune(LEASE)] == ["host.1"]
    assert mover.schema_raise("me", Schema(NEXT, NEXT, NEXT)) == []
    put_back = silent.turn(slots=[0])
    assert put_back.status == "unregistered", "and it has to enter again, which is where it is turned away"
    with pytest.raises(SchemaMismatch):
        Hand(broker, "q")


def test_an_entry_of_which_only_the_name_is_left_is_no_obstacle(conn: redis.Redis, mover: SchemaBroker) -> None:
    _worker(conn)
    conn.delete("rq:worker:host.1")
    conn.set("rq:worker:host.5", "no hash")
    conn.sadd("rq:workers", "rq:worker:host.5")
    assert mover.schema_raise("me", Schema(NEXT, NEXT, NEXT)) == []


def test_it_never_moves_back(conn: redis.Redis, mover: SchemaBroker) -> None:
    mover.schema_raise("me", Schema(NEXT + 1, NEXT, NEXT))
    before = schema_of(conn)
    assert mover.schema_raise("you", Schema(NEXT, 1, 1)) == []
    assert schema_of(conn) == before
    with pytest.raises(SchemaMismatch):
        SchemaBroker(conn).schema_raise("an older one")
