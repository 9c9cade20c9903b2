"""SIGKILL of a producer between any two of the calls by which a chain over several queues, or a batch and what is to follow it, come into being:
all of it is there or nothing, and whoever does it again has it once."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.faults.crash.zygote import Zygote
from tests.faults.rig.conservation import check_ended, leftovers, memberships
from tests.kit.hands import Hand, fields_of, may_reap
from tests.store.batch_hands import batch_faults
from tests.store.kin_hands import of_kin, settle

NOOP, ECHO = "tests.jobs.basic.noop", "tests.jobs.basic.echo"
CHAIN = f"from fusion import *; chain(*(signature('{NOOP}').set(queue=name) for name in 'abca')).enqueue()"
BATCH = "from fusion import *; Batch(id='b', queue='a', on_complete={}, on_success={}).open()"
ONE_QUEUE = BATCH.format(f"'{NOOP}'", f"'{ECHO}'")
TWO_QUEUES = BATCH.format(f"'{NOOP}'", f"signature('{ECHO}').set(queue='b')")


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    found = Zygote()
    yield found
    found.close()


def places(script: str, times: int) -> list[str]:
    """Before and after each of the calls of a script."""
    return [f"{script}.{when}=kill@{nth}" for nth in range(1, times + 1) for when in ("before", "after")]


def a_minute_later(conn: redis.Redis, broker: Broker) -> None:
    """Graphs that nobody goes on with are given up."""
    for token in conn.zrange("rq:graphs", 0, -1):
        conn.zadd("rq:graphs", {token: 1})
    broker.promote()
    settle(broker)


def run_all(broker: Broker, name: str = "host.1") -> list[tuple[str, str]]:
    """The queue and the function of each job that a worker of all queues runs."""
    hand, found = Hand(broker, "a", "b", "c", name=name), list[tuple[str, str]]()
    settle(broker)
    while claimed := hand.claim(5):
        for job in claimed:
            found.append((job.queue, fields_of(broker.connection, job.id)["func"].rpartition(".")[2]))
            assert hand.tell(job) == "ok"
        settle(broker)
    return found


@pytest.mark.parametrize("place", [*places("enqueue", 4), *places("release_graph", 1)])
def test_a_chain_over_several_queues(conn: redis.Redis, broker: Broker, zygote: Zygote, place: str) -> None:
    may_reap(conn)
    assert zygote.run(("-c", CHAIN), place).code == -signal.SIGKILL
    a_minute_later(conn, broker)
    whole = [(queue, "noop") for queue in "abca"]
    assert run_all(broker) == (whole if place == "release_graph.after=kill@1" else [])
    check_ended(conn, memberships(conn))
    assert of_kin(conn) == set() and (leftovers(conn) == [])
    again = zygote.run(("-c", CHAIN))
    assert again.code == 0, again.output
    assert run_all(broker, "host.2") == whole


@pytest.mark.parametrize(
    ("program", "place"),
    [(ONE_QUEUE, place) for place in (*places("open_batch", 1), *places("enqueue", 1))]
    + [(TWO_QUEUES, place) for place in (*places("enqueue", 2), *places("release_graph", 1))],
)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "a minute later"])
def test_a_batch_and_what_is_to_follow_it(
    conn: redis.Redis, broker: Broker, zygote: Zygote, program: str, place: str, late: bool
) -> None:
    may_reap(conn)
    assert zygote.run(("-c", program), place).code == -signal.SIGKILL
    if late:
        a_minute_later(conn, broker)
    again = zygote.run(("-c", program))
    was_whole = place == ("enqueue.after=kill@1" if program is ONE_QUEUE else "release_graph.after=kill@1")
    assert ("there is a batch 'b' already" in again.output) is was_whole, again.output
    assert again.code == int(was_whole)
    a_minute_later(conn, broker)
    assert conn.zcard("rq:deferred:a") + conn.zcard("rq:deferred:b") == 2
    broker.close_batch("b")
    assert sorted(run_all(broker)) == sorted([("a", "noop"), ("b" if program is TWO_QUEUES else "a", "echo")])
    assert batch_faults(conn) == []
    check_ended(conn, memberships(conn))
