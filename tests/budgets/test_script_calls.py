"""What the server does inside a script: its thread is everybody's."""

from __future__ import annotations

from dataclasses import replace

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.budgets import figures
from tests.kit.hands import Hand, new, outcome, put

#: Of the client, not of the script.
_NOT_IN_SCRIPTS = {"evalsha", "eval", "info", "config|resetstat", "script|load", "acl|whoami", "auth", "hello", "client|setinfo"}
TURNS = 20


class Counted:
    """The server's count of commands run by scripts, between the two ends of a `with`."""

    def __init__(self, conn: redis.Redis) -> None:
        self._conn = conn
        self.calls = 0

    def __enter__(self) -> Counted:
        self._conn.config_resetstat()
        return self

    def __exit__(self, *exc: object) -> None:
        stats = {name.removeprefix("cmdstat_"): one["calls"] for name, one in self._conn.info("commandstats").items()}
        assert stats.get("evalsha"), "a script has run"
        self.calls = sum(calls for name, calls in stats.items() if name not in _NOT_IN_SCRIPTS)


@pytest.fixture
def broker(conn: redis.Redis) -> Broker:
    return Broker(conn, server_version=(7,))


@pytest.mark.parametrize("batch", figures.TURN_CALLS)
def test_a_turn(broker: Broker, conn: redis.Redis, batch: int) -> None:
    hand = Hand(broker, "q")
    broker.enqueue("q", [replace(new(job_id), nonce=job_id) for job_id in (f"j{n}" for n in range(batch * (TURNS + 3)))])
    held = hand.claim(batch)
    held = hand.turn(*map(outcome, held), slots=[0] * batch).jobs
    with Counted(conn) as counted:
        for _ in range(TURNS):
            held = hand.turn(*(outcome(job, fields={"result": "1"}) for job in held), slots=[0] * batch).jobs
            assert len(held) == batch
    # a turn that is a second after the last writes a sign of life, one call
    assert counted.calls / (TURNS * batch) <= figures.TURN_CALLS[batch] + 1 / batch
    assert counted.calls / (TURNS * batch) > figures.TURN_CALLS[batch] * 0.8, "less: write the new figure down"


def test_a_turn_that_finds_nothing(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "q")
    hand.claim()
    with Counted(conn) as counted:
        assert hand.claim() == []
    assert counted.calls <= figures.IDLE_TURN_CALLS + 1


@pytest.mark.parametrize("count", figures.EXTEND_CALLS)
def test_renewing_leases(broker: Broker, conn: redis.Redis, count: int) -> None:
    hand = Hand(broker, "q")
    put(broker, "q", *(f"j{n}" for n in range(count)))
    held = hand.claim(count)
    hand.extend(*held)
    with Counted(conn) as counted:
        hand.extend(*held)
    assert counted.calls == figures.EXTEND_CALLS[count]


@pytest.mark.parametrize("count", figures.ENQUEUE_CALLS)
def test_an_enqueue(broker: Broker, conn: redis.Redis, count: int) -> None:
    def plain(*ids: str) -> None:
        """As a producer sends jobs without options: the id made for a job is its call's mark, too."""
        broker.enqueue("q", [replace(new(job_id), nonce=job_id) for job_id in ids])

    plain("first")
    with Counted(conn) as counted:
        plain(*(f"j{n}" for n in range(count)))
    assert counted.calls == pytest.approx(figures.ENQUEUE_CALLS[count] * count)


@pytest.mark.parametrize("count", figures.PROMOTE_CALLS)
def test_promoting(broker: Broker, conn: redis.Redis, count: int) -> None:
    def due(*names: str) -> None:
        put(broker, "q", *names, delay=1000.0)
        conn.zadd("rq:scheduler:scheduled_jobs", dict.fromkeys(names, 1))

    due("first")
    broker.promote()
    due(*(f"j{n}" for n in range(count)))
    with Counted(conn) as counted:
        assert broker.promote()[0] == count
    assert counted.calls == pytest.approx(figures.PROMOTE_CALLS[count] * count)
