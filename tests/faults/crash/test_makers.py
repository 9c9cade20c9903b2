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
from tests.store.batch_hands import add, batch_faults, batch_of
from tests.store.kin_hands import a_fleet, of_kin, settle

NOOP, ECHO = "tests.jobs.basic.noop", "tests.jobs.basic.echo"
CHAIN = f"from fusion import *; chain(*(signature('{NOOP}').set(queue=name) for name in 'abca')).enqueue()"
BATCH = "from fusion import *; Batch(id='b', queue='a', on_complete={}, on_success={}).open()"
ONE_QUEUE = BATCH.format(f"'{NOOP}'", f"'{ECHO}'")
TWO_QUEUES = BATCH.format(f"'{NOOP}'", f"signature('{ECHO}').set(queue='b')")
#: The same with ids that whoever does it again has as well.
CHAIN_AGAIN = f"from fusion import *; chain(*(signature('{NOOP}').set(queue=name, job_id=f'job-{{n}}') for n, name in enumerate('abca'))).enqueue()"
BATCH_AGAIN = BATCH.format(f"signature('{NOOP}').set(job_id='one')", f"signature('{ECHO}').set(job_id='two', queue='b')")


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


def time_is_over(conn: redis.Redis, broker: Broker) -> None:
    """That of a batch which nobody has closed."""
    conn.hset("rq:batch:b", "open_until", 1)
    conn.zadd("rq:batches:due", {"b": 1})
    broker.tend_batches()
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


@pytest.mark.parametrize(
    ("program", "place"),
    [(BATCH_AGAIN, place) for place in ("enqueue.after=kill@1", "enqueue.after=kill@2", "release_graph.before=kill@1")]
    + [(CHAIN_AGAIN, place) for place in ("enqueue.after=kill@1", "release_graph.before=kill@1")],
    ids=["batch-1", "batch-2", "batch-whole", "chain-1", "chain-whole"],
)
def test_a_call_repeated_soon_after_a_kill_has_the_same_ids(
    conn: redis.Redis, broker: Broker, zygote: Zygote, program: str, place: str
) -> None:
    may_reap(conn)
    assert zygote.run(("-c", program), place).code == -signal.SIGKILL
    if program is CHAIN_AGAIN:  # nothing was heard of it for three seconds
        (token,) = conn.zrange("rq:graphs", 0, -1)
        conn.zincrby("rq:graphs", -3000, token)
    with a_fleet(broker):
        again = zygote.run(("-c", program))
    assert again.code == 0, again.output
    if program is BATCH_AGAIN:
        broker.close_batch("b")
    found = [("a", "noop"), ("b", "echo")] if program is BATCH_AGAIN else [(queue, "noop") for queue in "abca"]
    ran = run_all(broker)
    assert (sorted(ran) if program is BATCH_AGAIN else ran) == found
    a_minute_later(conn, broker)
    assert run_all(broker, "host.2") == [] and batch_faults(conn) == []
    check_ended(conn, memberships(conn))


@pytest.mark.parametrize("program", [BATCH_AGAIN, TWO_QUEUES], ids=["its-ids", "any-ids"])
@pytest.mark.parametrize("place", ["enqueue.before=kill@1", "enqueue.after=kill@1", "enqueue.after=kill@2"])
def test_a_batch_whose_time_is_over_before_what_follows_had_come_was_never_there(
    conn: redis.Redis, broker: Broker, zygote: Zygote, program: str, place: str
) -> None:
    may_reap(conn)
    assert zygote.run(("-c", program), place).code == -signal.SIGKILL
    time_is_over(conn, broker)
    assert run_all(broker) == [] and [*conn.scan_iter("rq:batch*")] == []
    assert not memberships(conn) and of_kin(conn) == set()
    again = zygote.run(("-c", program))
    assert again.code == 0, again.output
    broker.close_batch("b")
    assert sorted(run_all(broker, "host.2")) == [("a", "noop"), ("b", "echo")]
    assert batch_faults(conn) == []
    check_ended(conn, memberships(conn))


def test_an_expired_batch_has_no_follow_up_that_was_not_written(conn: redis.Redis, broker: Broker, zygote: Zygote) -> None:
    may_reap(conn)
    assert zygote.run(("-c", BATCH_AGAIN), "enqueue.after=kill@1").code == -signal.SIGKILL
    add(broker, "b", "m", queue="c")
    time_is_over(conn, broker)
    assert [queue for queue, _ in run_all(broker)] == ["c"]
    found = batch_of(conn, "b")
    assert (found["closed_by"], found["over"], found["finished"]) == ("open_for", "1", "1")
    assert conn.zscore("rq:deferred:a", "one") is not None, "the rest may come yet"
    again = zygote.run(("-c", BATCH_AGAIN))
    assert "there is a batch 'b' already" in again.output
    a_minute_later(conn, broker)
    assert run_all(broker, "host.2") == [] and set(memberships(conn)) == {"m"}
    assert conn.zscore("rq:releasing", "u one") is None and batch_faults(conn) == []
    check_ended(conn, memberships(conn))
