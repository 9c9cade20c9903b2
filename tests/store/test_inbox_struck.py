"""Jobs that are withdrawn while their ids stand in the inbox of a LIST queue, which is not searched for them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from tests.budgets.test_script_calls import Counted
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import DATA, Hand, drain, ids, outcome, put, status_of

INBOX = "rq:queue:scheduler"
WAYS: dict[str, Callable[[Broker, str], object]] = {
    "cancel": lambda broker, job_id: broker.cancel(job_id),
    "delete": lambda broker, job_id: broker.delete([job_id]),
}
way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


@pytest.fixture
def hand(broker: Broker) -> Hand:
    return Hand(broker, "scheduler")


@way
def test_a_long_inbox_is_not_searched(
    broker: Broker, conn: redis.Redis, hand: Hand, way: Callable[[Broker, str], object]
) -> None:
    conn.rpush(INBOX, *(f"x{n}" for n in range(50_000)))
    put(broker, "scheduler", "a")
    conn.hset("rq:job:x40000", mapping={"data": DATA, "status": "queued", "origin": "scheduler"})
    conn.config_resetstat()
    for job_id in ("a", "x40000"):
        way(broker, job_id)
    stats = conn.info("commandstats")
    assert not {"cmdstat_lrem", "cmdstat_lpos", "cmdstat_lrange"} & set(stats)
    assert status_of(conn, "a") in (None, "canceled")


@way
def test_it_does_not_run_and_no_trace_is_left(
    broker: Broker, conn: redis.Redis, hand: Hand, way: Callable[[Broker, str], object]
) -> None:
    names = [f"j{n:02}" for n in range(60)]
    put(broker, "scheduler", *names)
    for name in names[::3]:
        way(broker, name)
    conn.delete(*(f"rq:job:{name}" for name in names[::3]))  # canceled ones are over, too
    assert Inspector(conn).count("scheduler") == 40
    left = [name for name in names if name not in names[::3]]
    assert Inspector(conn).waiting("scheduler", 0, -1) == left
    assert drain(hand, 7) == left
    assert not conn.exists("rq:inbox:scheduler")
    assert conn.zcard("rq:queue:failed") == 0


@way
@pytest.mark.parametrize("pushed", [False, True], ids=["ours", "an outsider's"])
def test_a_new_life_runs_at_its_own_place_and_once(
    broker: Broker, conn: redis.Redis, hand: Hand, way: Callable[[Broker, str], object], pushed: bool
) -> None:
    put(broker, "scheduler", "first", "a", *(f"m{n:02}" for n in range(50)))
    way(broker, "a")
    if pushed:
        conn.delete("rq:job:a", "rq:canceled:scheduler")
        conn.hset("rq:job:a", "data", DATA)
        conn.rpush(INBOX, "a")
    else:
        put(broker, "scheduler", "a")
    put(broker, "scheduler", "last")
    order = drain(hand, 3)
    assert order == ["first", *(f"m{n:02}" for n in range(50)), "a", "last"]
    assert not conn.exists("rq:inbox:scheduler", INBOX)
    assert check_conservation(conn, ["a"]) == {"a": "started"}


@pytest.mark.parametrize("forgotten", [False, True])
def test_its_second_entry_is_passed_over_when_the_job_has_run(
    broker: Broker, conn: redis.Redis, hand: Hand, forgotten: bool
) -> None:
    put(broker, "scheduler", "a", "b")
    broker.delete(["a"])
    put(broker, "scheduler", "a")
    jobs = hand.claim(2)
    assert ids(jobs) == ["b", "a"]
    hand.turn(*map(outcome, jobs))
    if forgotten:
        conn.delete("rq:job:a", "rq:finished:scheduler")
    put(broker, "scheduler", "c")
    assert drain(hand) == ["c"]
    assert conn.zcard("rq:queue:failed") == 0
    assert not conn.exists("rq:inbox:scheduler", INBOX)


def test_requeued_it_runs_behind_what_waits(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "scheduler", "a", "b", "c")
    broker.cancel("a")
    assert broker.requeue(["a"], "n") == ["ok"]
    assert drain(hand, 1) == ["b", "c", "a"]


def test_withdrawn_twice(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "scheduler", "a", "b")
    broker.delete(["a"])
    put(broker, "scheduler", "a", "c")
    broker.delete(["a"])
    put(broker, "scheduler", "a")
    assert drain(hand, 1) == ["b", "c", "a"]
    assert not conn.exists("rq:inbox:scheduler", INBOX)


@pytest.mark.parametrize("taken", [1, 5, 25])
def test_an_older_worker_that_takes_ids_out_loses_no_job(broker: Broker, conn: redis.Redis, hand: Hand, taken: int) -> None:
    """It counts nothing: positions are wrong by as many, and a new life may look like the old one."""
    put(broker, "scheduler", *(f"m{n:02}" for n in range(30)), "a")
    broker.delete(["a"])
    put(broker, "scheduler", "a", "last")
    gone = [raw.decode() for raw in conn.lpop(INBOX, taken)]
    assert sorted(drain(hand, 3)) == sorted({f"m{n:02}" for n in range(30)} - set(gone) | {"a", "last"})


def test_emptying_counts_too(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "scheduler", *(f"m{n:02}" for n in range(30)))
    broker.delete(["m25"])
    assert broker.empty("scheduler", 20) == (20, True)
    put(broker, "scheduler", "m25")
    assert drain(hand, 1) == [*(f"m{n:02}" for n in range(20, 25)), *(f"m{n:02}" for n in range(26, 30)), "m25"]


def test_a_turn_that_takes_over_pays_little(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "scheduler", *(f"m{n:02}" for n in range(20)))
    with Counted(conn) as counted:
        hand.claim()
    assert counted.calls < 20 * 8 + 40
