"""A queue bounds how many jobs wait in it, and for how long: the script that enqueues decides, whichever process calls it."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

import pytest
import redis

from fusion.exceptions import DuplicateJob, QueueFull
from fusion.store.client.connections import connect
from fusion.store.layout.records import Room
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.kit.hands import (
    Hand,
    drain,
    everything,
    expire_lease,
    fields_of,
    may_reap,
    new,
    now_ms,
    outcome,
    promote_all,
    put,
    status_of,
    wire,
)
from tests.kit.servers import SpawnedServer
from tests.store.cron_hands import Cron


@pytest.fixture
def bounded(broker: Broker) -> Broker:
    """Three may wait in `q`."""
    broker.set_gate("q", {"max_length": 3})
    return broker


def test_one_too_many_is_refused_and_nothing_is_written(bounded: Broker, conn: redis.Redis) -> None:
    put(bounded, "q", "a", "b")
    before = everything(conn)
    with pytest.raises(QueueFull) as told:
        put(bounded, "q", "c", "d")
    assert (told.value.queue, told.value.length, told.value.limit, told.value.wanted) == ("q", 2, 3, 2)
    assert everything(conn) == before
    put(bounded, "q", "c")
    put(bounded, "other", "d")
    with pytest.raises(QueueFull, match=r"queue 'q' is full: 3 of 3 wait \(max_queue_length\)\. Try again .*set_max_length"):
        put(bounded, "q", "e")
    assert drain(Hand(bounded, "q")) == ["a", "b", "c"]
    put(bounded, "q", "e")


def test_the_first_enqueue_ever_is_refused_too_and_begins_nothing(conn: redis.Redis) -> None:
    with pytest.raises(QueueFull):
        Broker(conn).enqueue("q", [new("a"), new("b")], "n", room=Room(1))
    assert list(conn.scan_iter()) == []


@pytest.mark.parametrize(
    ("setting", "queue", "call", "limit"),
    [
        (5, None, None, 5),
        (None, 5, None, 5),
        (None, None, 5, 5),
        (5, 7, None, 7),
        (5, 3, None, 3),
        (9, 5, 7, 5),
        (9, 7, 5, 5),
        (5, None, 7, 5),
        (7, None, 5, 5),
        (None, None, None, None),
    ],
)
def test_which_number_holds(
    conn: redis.Redis, setting: int | None, queue: int | None, call: int | None, limit: int | None
) -> None:
    """The queue's own in place of the setting; the call's if that is less."""
    broker = Broker(conn, FleetConstants(max_queue_length=setting or 0))
    broker.set_gate("q", {"max_length": queue})
    room = Room(call) if call else None
    for nth in range(limit or 12):
        broker.enqueue("q", [new(f"j{nth}")], "n", room=room)
    if limit:
        with pytest.raises(QueueFull) as told:
            broker.enqueue("q", [new("more")], "n", room=room)
        assert told.value.limit == limit


def test_blocked_jobs_count(bounded: Broker, conn: redis.Redis) -> None:
    put(bounded, "q", "a", "b", "c")
    hand = Hand(bounded, "q")
    hand.turn(outcome(hand.take(), "held", fields={"task": "shop.f"}))
    assert status_of(conn, "a") == "blocked"
    with pytest.raises(QueueFull) as told:
        put(bounded, "q", "d")
    assert told.value.length == 3


def test_jobs_that_run_or_wait_for_a_time_do_not_count(bounded: Broker, conn: redis.Redis) -> None:
    put(bounded, "q", "a", "b", "c")
    Hand(bounded, "q").take()
    put(bounded, "q", "d")
    for nth in range(5):
        put(bounded, "q", f"later{nth}", delay=60.0)
    with pytest.raises(QueueFull) as told:
        put(bounded, "q", "now", "later", delay=0.0)
    assert (told.value.length, told.value.wanted) == (3, 2)


def test_the_inbox_of_a_list_queue_counts_without_what_is_struck(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("scheduler", {"max_length": 3})
    put(broker, "scheduler", "a", "b", "c")
    with pytest.raises(QueueFull):
        put(broker, "scheduler", "d")
    broker.cancel("b")
    put(broker, "scheduler", "d")
    with pytest.raises(QueueFull) as told:
        put(broker, "scheduler", "e")
    assert told.value.length == 3


# -- who is never refused


def test_only_an_enqueue_is_ever_refused(bounded: Broker, conn: redis.Redis) -> None:
    put(bounded, "q", "failed", "retried", "lost")
    put(bounded, "q", "released", "due", delay=1.0)
    hand = Hand(bounded, "q")
    failed, retried, lost = hand.claim(3)
    hand.tell(failed, "failed", reason="r")
    put(bounded, "q", "x", "y", "z")
    promote_all(bounded, conn)  # due jobs
    released = hand.take()
    assert hand.tell(released, "release") == "ok"
    assert hand.tell(retried, "retry", delay=0.0, reason="r") == "ok"
    promote_all(bounded, conn)
    assert bounded.requeue(["failed"], "n") == ["ok"]
    expire_lease(conn, "q", lost.id)
    may_reap(conn)
    bounded.reap(30.0, 0)
    assert conn.zcard("rq:queue:q") == 8
    cron = Cron(conn, "entry", queue="q")
    assert cron.run("n")[0] == "ok"
    assert cron.tick(cron.now - 60)[0] == "ok"
    with pytest.raises(QueueFull):
        put(bounded, "q", "more")


# -- again


def test_a_resend_is_answered_as_accepted_although_the_queue_is_full(bounded: Broker, conn: redis.Redis) -> None:
    at = bounded.enqueue("q", [new("a"), new("b"), new("c")], "n")
    assert bounded.enqueue("q", [new("a"), new("b"), new("c")], "n") == at
    assert bounded.enqueue("q", [new("b")], "n", room=Room(1, 5)) == at
    bounded.set_gate("q", {"max_length": 1})
    assert bounded.enqueue("q", [new("c")], "n") == at


def test_a_partly_accepted_chunk_needs_room_only_for_the_rest(bounded: Broker, conn: redis.Redis) -> None:
    bounded.enqueue("q", [new("a"), new("b")], "n")
    bounded.enqueue("q", [new("a"), new("b"), new("c")], "n")
    assert conn.zcard("rq:queue:q") == 3


def test_a_taken_id_is_named_before_a_full_queue(bounded: Broker, conn: redis.Redis) -> None:
    put(bounded, "q", "a", "b", "c")
    with pytest.raises(DuplicateJob):
        put(bounded, "q", "a")


def test_a_new_life_of_an_ended_job_needs_room_as_well(bounded: Broker, conn: redis.Redis) -> None:
    put(bounded, "q", "a")
    hand = Hand(bounded, "q")
    hand.tell(hand.take())
    put(bounded, "q", "b", "c", "d")
    before = everything(conn)
    with pytest.raises(QueueFull):
        put(bounded, "q", "a")
    assert everything(conn) == before


def test_those_to_come_need_room_too(bounded: Broker, conn: redis.Redis) -> None:
    with pytest.raises(QueueFull) as told:
        bounded.enqueue("q", [new("a")], "n", room=Room(None, 3))
    assert told.value.wanted == 4
    assert conn.exists("rq:queue:q") == 0
    bounded.enqueue("q", [new("a")], "n", room=Room(None, 2))
    # those that go with jobs for a time are for now
    with pytest.raises(QueueFull) as told:
        bounded.enqueue("q", [new("t", delay=9.0)], "n", room=Room(None, 3))
    assert told.value.wanted == 3


def test_twenty_producers_at_once_never_exceed_the_limit_by_one(conn: redis.Redis, redis_url: str) -> None:
    Broker(conn).set_gate("q", {"max_length": 50})
    seen, accepted, refusals = list[int](), list[str](), set[tuple[int, int]]()
    start = threading.Barrier(21)

    def produce(number: int) -> None:
        client = connect(redis_url)
        broker = Broker(client)
        start.wait()
        for nth in range(20):
            job_id = f"p{number}-{nth}"
            try:
                broker.enqueue("q", [new(job_id)], secrets.token_hex(6))
            except QueueFull as full:
                refusals.add((full.length, full.limit))
            else:
                accepted.append(job_id)
                seen.append(client.zcard("rq:queue:q"))
        client.close()

    threads = [threading.Thread(target=produce, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    start.wait()
    for thread in threads:
        thread.join(60)
    assert max(seen) == 50
    assert refusals == {(50, 50)}
    assert len(accepted) == len(drain(Hand(Broker(conn), "q"))) == 50


def test_a_call_is_one_command_as_ever(bounded: Broker, conn: redis.Redis) -> None:
    put(bounded, "q", "a")
    with wire(conn) as sent:
        put(bounded, "q", "b")
        with pytest.raises(QueueFull):
            bounded.enqueue("q", [new("c"), new("d")], "n")
    assert sent == ["EVALSHA", "EVALSHA"]


@pytest.mark.parametrize("junk", ["max_length=many", "max_length=", "max_length=0", "max_length=-4", "no text", ""])
def test_garbage_bounds_nothing(broker: Broker, conn: redis.Redis, junk: str) -> None:
    conn.hset("rq:gates", "q", junk)
    put(broker, "q", "a", "b")
    assert conn.zcard("rq:queue:q") == 2


def test_a_key_of_another_type_bounds_nothing(broker: Broker, conn: redis.Redis) -> None:
    conn.set("rq:gates", "junk")
    put(broker, "q", "a", "b")
    assert conn.zcard("rq:queue:q") == 2


def test_at_maxmemory_it_is_full_or_refused_and_nothing_is_written(spawn: Callable[..., SpawnedServer]) -> None:
    conn = spawn("--maxmemory-policy", "noeviction").client()
    broker = Broker(conn)
    broker.set_gate("q", {"max_length": 2})
    put(broker, "q", "a")  # the script is known
    before = everything(conn, clocks=True)
    conn.config_set("maxmemory", 1)
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        broker.enqueue("q", [new("b")], "n")
    with pytest.raises(QueueFull):
        broker.enqueue("q", [new("b"), new("c")], "n")
    assert everything(conn, clocks=True) == before
    broker.set_gate("q", {"max_length": None})  # a person may change it all the same
    broker.pause("q", by="me")
    assert broker.unpause("q")
    conn.config_set("maxmemory", 0)


# -- how long they may wait


def lives_for(conn: redis.Redis, job_id: str) -> float:
    """Seconds from now until it expires."""
    return (float(fields_of(conn, job_id)["expires_at"]) - now_ms(conn)) / 1000


def test_a_job_without_a_ttl_expires_after_its_queues_time(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"timeout": 60_000})
    put(broker, "q", "a")
    put(broker, "q", "own", ttl=5.0)
    put(broker, "q", "later", delay=100.0)
    put(broker, "other", "free")
    assert 55 < lives_for(conn, "a") <= 60
    assert lives_for(conn, "own") <= 5
    assert 155 < lives_for(conn, "later") <= 160
    assert "expires_at" not in fields_of(conn, "free")
    assert "ttl" not in fields_of(conn, "a"), "it is signed, and its producer gave none"
    assert {j.decode() for j in conn.zrange("rq:expiring", 0, -1)} == {"a", "own", "later"}


@pytest.mark.parametrize(
    ("setting", "queue", "holds"), [(60.0, None, 60), (60.0, 30_000, 30), (60.0, 90_000, 90), (0.0, None, None)]
)
def test_which_time_holds(conn: redis.Redis, setting: float, queue: int | None, holds: float | None) -> None:
    broker = Broker(conn, FleetConstants(queue_timeout=setting))
    broker.set_gate("q", {"timeout": queue})
    put(broker, "q", "a")
    if holds is None:
        assert "expires_at" not in fields_of(conn, "a")
    else:
        assert holds - 5 < lives_for(conn, "a") <= holds


def test_a_job_that_waited_too_long_is_expired(conn: redis.Redis) -> None:
    broker = Broker(conn, FleetConstants(queue_timeout=0.001))
    put(broker, "q", "a")
    broker.set_gate("q", {"timeout": 60_000})
    put(broker, "q", "b")
    start = now_ms(conn)
    while now_ms(conn) <= start + 2:
        pass
    broker.expire()
    assert fields_of(conn, "a")["status"] == "canceled"
    assert drain(Hand(broker, "q")) == ["b"]


def test_a_requeue_is_an_arrival(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"timeout": 60_000})
    put(broker, "q", "a", "b", "c")
    hand = Hand(broker, "q")
    for claimed in hand.claim(3):
        hand.tell(claimed, "failed", reason="r")
    broker.set_gate("q", {"timeout": 600_000})
    broker.requeue(["a"], "n")
    broker.requeue(["b"], "n", delay=100.0)
    assert 595 < lives_for(conn, "a") <= 600
    assert 695 < lives_for(conn, "b") <= 700
    broker.set_gate("q", {"timeout": None})
    broker.requeue(["c"], "n")
    assert not {"expires_at", "queue_timeout"} & set(fields_of(conn, "c"))


def test_it_moves_along_with_another_time(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"timeout": 60_000})
    put(broker, "q", "a", delay=10.0)
    broker.reschedule("a", now_ms(conn) / 1000 + 1000)
    assert 1055 < lives_for(conn, "a") <= 1060


def test_a_ticks_job_has_it_too(broker: Broker, conn: redis.Redis) -> None:
    broker.set_gate("q", {"timeout": 60_000})
    cron = Cron(conn, "entry", queue="q")
    _, job_id = cron.run("n")
    assert 55 < lives_for(conn, job_id) <= 60
