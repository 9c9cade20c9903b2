"""What a change of one job does to many that wait for it: no call of it holds up the server for long."""

from __future__ import annotations

import secrets
from collections.abc import Callable

import pytest
import redis

from fusion.enqueue.graph import Graph
from fusion.store.layout.records import NewJob
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, new, status_of
from tests.kit.length import long_case
from tests.kit.slowest import slow_calls
from tests.store.kin_hands import child, settle

CHILDREN = 75
PARENTS = [f"p{n}" for n in range(8)]


@pytest.fixture
def broker(conn: redis.Redis) -> Broker:
    return Broker(conn, server_version=(7,))


def plain(n: int) -> NewJob:
    return child(f"c{n}", "p0")


def of_many(n: int) -> NewJob:
    """All its parents but one have finished."""
    return child(f"c{n}", *PARENTS)


def keyed(n: int) -> NewJob:
    """In a batch, with a slot of its own key, and a time to live."""
    return child(f"c{n}", "p0", ties="bkp", batch="b", concurrency_key=f"k{n}", max_concurrent="1", ttl=60)


@pytest.mark.parametrize("kind", [keyed, long_case(plain), long_case(of_many)])
@pytest.mark.parametrize("how", ["finished", "failed", "given up"])
def test_no_call_is_long(
    broker: Broker, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch, kind: Callable[[int], NewJob], how: str
) -> None:
    hands: list[Hand] = []

    def prepare() -> None:
        broker.open_batch("b", "n", 3600, 3600, {})
        hands[:] = [Hand(broker, "q")]
        broker.enqueue("q", [new(name) for name in reversed(PARENTS)], "n")
        for name in PARENTS[:0:-1]:
            claimed = hands[0].take()
            assert claimed.id == name and hands[0].tell(claimed) == "ok"
        jobs = [kind(n) for n in range(CHILDREN)]
        if how == "given up":
            graph = Graph.of(jobs)
            for nth, part in enumerate(graph.parts):
                broker.enqueue_part("q", part, graph.token, nth)
            broker.drop_graph(graph.token)
        else:
            for first in range(0, CHILDREN, 30):
                broker.enqueue("q", jobs[first : first + 30], secrets.token_hex(4))
            assert hands[0].tell(hands[0].take(), how, reason="r") == "ok"

    def experiment() -> None:
        settle(broker)
        expected = {"finished": "queued", "failed": "failed", "given up": None}[how]
        assert {status_of(conn, f"c{n}") for n in range(CHILDREN)} == {expected}

    assert slow_calls(conn, monkeypatch, prepare, experiment, 5.0, "release") == {}
