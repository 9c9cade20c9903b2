"""5,000 names of queues: no call holds up the server for long, and a worker of a wildcard pays for those that have work alone."""

from __future__ import annotations

import pytest
import redis

from fusion.runtime.served_queues import ServedQueues
from fusion.store.write.broker import Broker
from tests.budgets import figures
from tests.budgets.test_script_calls import Counted
from tests.kit.hands import LEASE, Hand, expire_lease, may_reap, outcome, put
from tests.kit.length import long_case
from tests.kit.slowest import slow_calls

NAMES = [f"tenant-{n:04}" for n in range(5000)]


@pytest.fixture
def broker(conn: redis.Redis) -> Broker:
    return Broker(conn, server_version=(7,))


def add_names(conn: redis.Redis) -> None:
    conn.sadd("rq:queues", *(f"rq:queue:{name}" for name in NAMES))


@pytest.fixture
def names(conn: redis.Redis) -> None:
    add_names(conn)


def whole_pass(broker: Broker) -> None:
    while broker.clean():
        pass


def whole_survey(broker: Broker, served_queues: ServedQueues) -> None:
    while served_queues.refresh(broker.survey, 0):
        pass


@pytest.mark.parametrize("state", ["empty", long_case("finished"), "waiting"])
def test_no_script_is_slow(broker: Broker, conn: redis.Redis, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare() -> None:
        add_names(conn)
        if state != "empty":
            for name in NAMES:
                put(broker, name, f"j-{name}")

    def experiment() -> None:
        hand, served_queues = Hand(broker, *NAMES[:3]), ServedQueues(["tenant-*", "*"])
        whole_survey(broker, served_queues)
        if state == "finished":
            while held := hand.turn(slots=[0] * 50, queues=served_queues.turn).jobs:
                hand.turn(*map(outcome, held))
        whole_survey(broker, served_queues)
        whole_pass(broker)
        broker.suspend()
        broker.resume()
        may_reap(conn)
        broker.reap(LEASE, 0)
        hand.turn(slots=[0], queues=served_queues.turn)

    assert (
        slow_calls(conn, monkeypatch, prepare, experiment, figures.SCRIPT_MS, "survey", "clean", "resume", "reap", "turn") == {}
    )


def test_jobs_of_a_dead_worker_are_found_among_all_queues(broker: Broker, conn: redis.Redis, names: None) -> None:
    put(broker, NAMES[77], "a")
    Hand(broker, NAMES[77]).take()
    may_reap(conn)
    expire_lease(conn, NAMES[77], "a")
    with Counted(conn) as counted:
        assert broker.reap(LEASE, 0) == (1, False)
    assert counted.calls < 40, "it looks at queues that have leases alone"


#: Two events each: as one in sixteen trims the stream, both kinds have as many that do.
_TURNS = 24


@pytest.mark.parametrize("busy", figures.WILDCARD_CALLS)
def test_a_wildcard_costs_little_more_than_a_name(broker: Broker, conn: redis.Redis, names: None, busy: int) -> None:
    """What the server does for a job, with this many of the queues having work."""
    for name in NAMES[:busy]:
        put(broker, name, *(f"{name}-{n}" for n in range(2 * (_TURNS + 3) if busy == 1 else 9)))
    put(broker, "named", *(f"n-{n}" for n in range(_TURNS + 3)))
    per_job = {}
    for kind, served_queues in (("exact", ServedQueues(["named"])), ("wildcard", ServedQueues(["tenant-*"]))):
        whole_survey(broker, served_queues)
        hand = Hand(broker, *served_queues.turn, name=kind)
        held = hand.claim(1)
        held = hand.turn(*map(outcome, held), slots=[0]).jobs
        calls = 0
        for _ in range(_TURNS):
            served_queues.served(held[0].queue)
            beat = conn.hget(f"rq:worker:{kind}", "beat_ms")
            with Counted(conn) as counted:
                held = hand.turn(outcome(held[0], fields={"result": "1"}), slots=[0], queues=served_queues.turn).jobs
            # a turn that is a second after the last writes a sign of life, with one call: a busy machine has more of these
            calls += counted.calls - (conn.hget(f"rq:worker:{kind}", "beat_ms") != beat)
        per_job[kind] = calls / _TURNS
    assert per_job["exact"] < figures.NAMED_TURN_CALLS
    assert per_job["wildcard"] <= per_job["exact"] + figures.WILDCARD_CALLS[busy]
