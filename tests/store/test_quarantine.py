"""Jobs set aside, caps of the terminal sets, and the order of the failed one."""

from __future__ import annotations

import pytest
import redis

from fusion.store.read.inspector import Inspector
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, everything, fields_of, outcome, put, status_of


def fail(hand: Hand, count: int) -> None:
    for claimed in hand.claim(count):
        hand.tell(claimed, "failed", reason="E: x")


def test_it_stays_failed_and_only_who_asks_gets_it(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b", "waiting")
    fail(hand, 2)
    assert broker.quarantine(["a", "waiting", "nobody"], "bug 815") == ["ok", "queued", "missing"]
    assert fields_of(conn, "a")["quarantined"] == "bug 815"
    before = everything(conn)
    assert broker.requeue(["a"], "n1", quarantined=False) == ["quarantined"]
    assert everything(conn) == before
    assert broker.requeue(["a", "b"], "n2", quarantined=False) == ["quarantined", "ok"]
    assert broker.requeue(["a"], "n3") == ["ok"]
    assert "quarantined" not in fields_of(conn, "a")
    assert fields_of(conn, "a")["requeued"] == "1"
    assert check_conservation(conn, ["a", "b"]) == {"a": "queued", "b": "queued"}


def test_one_broken_job_stops_no_other(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "bad", "c")
    put(broker, "broken", "homeless")
    fail(hand, 3)
    fail(Hand(broker, "broken", name="host.2"), 1)
    conn.delete("rq:job:bad", "rq:queue:broken")
    conn.set("rq:job:bad", "no hash")
    conn.set("rq:queue:broken", "no queue")
    wrong = broker.quarantine(["bad", "a"], "r")
    assert wrong[0].startswith("error: WRONGTYPE")
    assert wrong[1] == "ok"
    answers = broker.requeue(["a", "bad", "homeless", "c"], "n")
    assert [answers[0], answers[3]] == ["ok", "ok"]
    assert all(answer.startswith("error: WRONGTYPE") for answer in answers[1:3])
    assert status_of(conn, "homeless") == "failed"
    assert conn.zscore("rq:queue:failed", "homeless") is not None


def test_an_error_of_the_whole_server_is_raised(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    put(broker, "q", "a")
    fail(hand, 1)
    conn.config_set("maxmemory", 1)
    try:
        for call in (lambda: broker.requeue(["a"], "n"), lambda: broker.quarantine(["a"], "r")):
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                call()
    finally:
        conn.config_set("maxmemory", 0)
    assert check_conservation(conn, ["a"]) == {"a": "failed"}


def test_the_order_of_failing_inside_one_call(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    names = [f"j{n}" for n in range(9, -1, -1)]
    put(broker, "q", *names)
    hand.turn(*(outcome(claimed, "failed", reason="r") for claimed in hand.claim(10)))
    assert Inspector(conn).members("failed", "", 0, -1) == names


def aged(conn: redis.Redis, *job_ids: str) -> None:
    for job_id in job_ids:
        conn.hset(f"rq:job:{job_id}", "ended_at", "2020-01-01T00:00:00.000000Z")


@pytest.mark.parametrize(
    ("state", "key"), [("failed", "rq:queue:failed"), ("finished", "rq:finished:q"), ("canceled", "rq:canceled:q")]
)
def test_over_the_cap_the_oldest_go_and_are_counted(conn: redis.Redis, state: str, key: str) -> None:
    broker = Broker(conn, FleetConstants(failed_max=3, finished_max=3, canceled_max=3))
    hand = Hand(broker, "q")
    names = [f"j{n}" for n in range(9)]
    put(broker, "q", *names)
    for claimed in [] if state == "canceled" else hand.claim(9):
        hand.tell(claimed, state, reason="r")
    for name in names if state == "canceled" else []:
        broker.cancel(name)
    assert not broker.clean()
    assert conn.zcard(key) == 9, "all of them ended within the last minute"
    aged(conn, *names[:4])
    assert [broker.clean(2), broker.clean(2), broker.clean(2)] == [True, True, False], "bounded, and no spinning over the young"
    assert [*check_conservation(conn, names[4:]).values()] == [state] * 5
    assert not conn.exists(*(f"rq:job:{name}" for name in names[:4]))
    aged(conn, *names)
    assert not broker.clean()
    assert Inspector(conn).members(state, "q", 0, -1) == names[6:]
    assert Inspector(conn).totals().dropped == {state: 6}
    before = everything(conn)
    assert not broker.clean()
    assert everything(conn) == before


def test_the_entry_of_an_earlier_life_is_no_dropped_job(conn: redis.Redis) -> None:
    broker = Broker(conn, FleetConstants(failed_max=1))
    put(broker, "q", "alive", "alive2")
    conn.zadd("rq:queue:failed", {"alive": 9e9, "gone": 9.1e9, "alive2": 9.2e9})
    assert not broker.clean()
    assert conn.zrange("rq:queue:failed", 0, -1) == [b"alive2"]
    conn.delete("rq:queue:failed")
    assert Inspector(conn).totals().dropped == {}
    assert check_conservation(conn, ["alive"]) == {"alive": "queued"}
