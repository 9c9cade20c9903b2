"""Jobs with more than a hundred parents, which no one call looks at all: put back, canceled and deleted."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest
import redis

from fusion import Job, Queue
from fusion.exceptions import DuplicateJob
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, fields_of, status_of
from tests.store.kin_hands import of_kin, settle

TASK = "tests.jobs.basic.noop"
COUNT = 330


@pytest.fixture
def hand(broker: Broker) -> Hand:
    return Hand(broker, "parents")


@pytest.fixture
def names(conn: redis.Redis, broker: Broker) -> list[str]:
    """Parents, of a queue of their own, in which they run in this order; `c` in queue `q` waits for them."""
    made = [Queue.prepare_data(TASK, job_id=f"p{nth}") for nth in range(COUNT)]
    Queue("parents").enqueue_many(made)
    Queue("q").enqueue(TASK, job_id="c", depends_on=made)
    settle(broker)
    return [data.new.id for data in made]


def end(broker: Broker, hand: Hand, count: int, failing: Iterable[int] = ()) -> None:
    """The next parents finish, and those of these places fail."""
    failing = set(failing)
    for nth, job in enumerate(hand.claim(count)):
        assert hand.tell(job, "failed", reason="r") if nth in failing else hand.tell(job)
    settle(broker)


def left(conn: redis.Redis) -> set[str]:
    return of_kin(conn) | {raw.decode() for raw in conn.scan_iter("rq:job:*:parents")}


def test_a_requeued_job_waits_for_all_parents_that_have_not_ended(
    conn: redis.Redis, broker: Broker, hand: Hand, names: list[str]
) -> None:
    end(broker, hand, 50, failing=[7])
    assert fields_of(conn, "c")["reason"] == "its parent p7 was failed"
    for _ in range(2):
        assert broker.requeue(["c"], "n") == ["ok"], "sent twice"
    settle(broker)
    assert conn.smembers("rq:job:c:dependencies") == {name.encode() for name in names[50:]}
    assert check_conservation(conn, ["c"]) == {"c": "deferred"}
    end(broker, hand, 200, failing=[150])
    assert fields_of(conn, "c")["reason"] == "its parent p200 was failed", "of one that its record does not name"
    assert broker.requeue(["c"], "m") == ["ok"]
    settle(broker)
    end(broker, hand, 79)
    assert status_of(conn, "c") == "deferred"
    end(broker, hand, 1)
    assert status_of(conn, "c") == "queued"
    other = Hand(broker, "q", name="host.2")
    other.tell(other.take())
    settle(broker)
    assert left(conn) == {"rq:job:c:parents"}, "for another life"
    assert all(score < math.inf for _, score in conn.zrange("rq:finished:parents", 0, -1, withscores=True))
    check_conservation(conn, [*names, "c"])


def test_one_whose_parents_have_all_ended_runs_when_it_is_put_back(
    conn: redis.Redis, broker: Broker, hand: Hand, names: list[str]
) -> None:
    end(broker, hand, COUNT, failing=[0, 250])
    assert status_of(conn, "c") == "failed"
    assert broker.requeue(["c"], "n") == ["ok"]
    settle(broker)
    assert status_of(conn, "c") == "queued"
    assert conn.zscore("rq:finished:parents", "p300") == math.inf, "its result is read"
    broker.cancel("c")
    settle(broker)
    assert conn.zscore("rq:finished:parents", "p300") != math.inf and conn.zscore("rq:queue:failed", "p250") != math.inf
    assert left(conn) == {"rq:job:c:parents"}
    Job.fetch("c").delete()
    settle(broker)
    assert left(conn) == set()


@pytest.mark.parametrize("when", ["waiting", "failed", "put back", "put back, and walked", "finished"])
def test_a_deleted_job_leaves_all_its_parents(conn: redis.Redis, broker: Broker, hand: Hand, names: list[str], when: str) -> None:
    end(broker, hand, COUNT if when == "finished" else 150, failing=[] if when in ("waiting", "finished") else [120])
    assert status_of(conn, "c") == {"waiting": "deferred", "finished": "queued"}.get(when, "failed")
    if when == "finished":
        other = Hand(broker, "q", name="host.2")
        other.tell(other.take())
    elif when.startswith("put back"):
        assert broker.requeue(["c"], "n") == ["ok"]
        if when.endswith("walked"):
            settle(broker)
        assert status_of(conn, "c") == "deferred"
    Job.fetch("c").delete()
    settle(broker)
    assert left(conn) == set()
    assert all(score < math.inf for _, score in conn.zrange("rq:finished:parents", 0, -1, withscores=True))
    check_conservation(conn, names)


def test_the_next_job_of_its_id_waits_for_all_of_its_own(conn: redis.Redis, broker: Broker, hand: Hand, names: list[str]) -> None:
    end(broker, hand, 50, failing=[7])
    assert status_of(conn, "c") == "failed"
    others = [Queue.prepare_data(TASK, job_id=f"o{nth}") for nth in range(COUNT)]
    Queue("others").enqueue_many(others)
    Queue("q").enqueue(TASK, job_id="c", depends_on=others)
    settle(broker)
    assert conn.smembers("rq:job:c:dependencies") == {data.new.id.encode() for data in others}
    end(broker, hand, 280)
    assert status_of(conn, "c") == "deferred"


def test_its_id_is_free_again_once_it_has_left_them(conn: redis.Redis, broker: Broker, names: list[str]) -> None:
    broker.delete(["c"])
    with pytest.raises(DuplicateJob, match="try again in a moment"):
        Queue("q").enqueue(TASK, job_id="c")
    settle(broker)
    Queue("q").enqueue(TASK, job_id="c")
    assert status_of(conn, "c") == "queued"
    assert not left(conn)
