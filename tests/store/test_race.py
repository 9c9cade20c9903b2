"""Several brokers at once, in processes of their own."""

from __future__ import annotations

import multiprocessing
from collections import Counter

import pytest
import redis

from fusion.store.client.connections import connect
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, events_of, ids, new, outcome, put
from tests.kit.promises import claim, promise

JOBS = 5000


def _work(url: str, name: str, slots: int) -> list[str]:
    """Claim and finish until there is nothing left."""
    conn = connect(url)
    hand = Hand(Broker(conn), "q", "r", name=name)
    order: list[str] = []
    turn = hand.turn(slots=[0] * slots)
    while turn.jobs or turn.again:
        order += ids(turn.jobs)
        turn = hand.turn(*(outcome(claimed) for claimed in turn.jobs), slots=[0] * slots)
    conn.close()
    return order


def _produce(url: str, name: str) -> list[str]:
    conn = connect(url)
    broker = Broker(conn, FleetConstants(events_cap=1_000_000))
    names = [f"{name}-{i}" for i in range(500)]
    for at in range(0, 500, 20):
        broker.enqueue("q", [new(job_id) for job_id in names[at : at + 20]], f"{name}{at}")
    conn.close()
    return names


@claim("P5")
@pytest.mark.long
def test_each_of_5000_jobs_is_claimed_exactly_once(conn: redis.Redis, redis_url: str) -> None:
    broker = Broker(conn)
    names = [f"j{i:04d}" for i in range(JOBS)]
    for at in range(0, JOBS, 500):
        put(broker, "qr"[at // 500 % 2], *names[at : at + 500])
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        first, second = pool.starmap(_work, [(redis_url, "w.1", 3), (redis_url, "w.2", 7)])
    assert first
    assert second
    with promise("P5"):
        assert Counter(first + second) == Counter(names)
    for order in (first, second):
        for parity in (0, 1):
            mine = [job_id for job_id in order if int(job_id[1:]) // 500 % 2 == parity]
            with promise("P10"):
                assert mine == sorted(mine), "as seen by either"
    assert set(check_conservation(conn, names).values()) == {"finished"}
    done = [int(value) for value in (conn.hget(f"rq:worker:w.{n}", "successful_job_count") for n in (1, 2))]
    assert done == [len(first), len(second)]


@pytest.mark.long
def test_producers_at_once(conn: redis.Redis, redis_url: str) -> None:
    """Every job gets a place and an event number of its own, and each producer's own order is kept."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        produced = pool.starmap(_produce, [(redis_url, "a"), (redis_url, "b")])
    scores = conn.zrevrange("rq:queue:q", 0, -1, withscores=True)
    assert len({score for _, score in scores}) == 1000
    order = [member.decode() for member, _ in scores]
    for names in produced:
        assert [job_id for job_id in order if job_id in set(names)] == names
    assert [int(event["n"]) for event in events_of(conn)] == list(range(1, 1001))
