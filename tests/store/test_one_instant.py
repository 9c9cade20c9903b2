"""Jobs that are due at one instant arrive in the order in which they were enqueued."""

from __future__ import annotations

import secrets

import pytest
import redis

from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, new, now_ms, outcome, put

SCHEDULED = "rq:scheduler:scheduled_jobs"


def _names(count: int) -> list[str]:
    """Random, as the ids are that Fusion makes."""
    return [secrets.token_hex(8) for _ in range(count)]


def _come(conn: redis.Redis) -> None:
    """Their time has come: that of all, in the order and at the distances that their scores have."""
    found = conn.zrange(SCHEDULED, 0, -1, withscores=True)
    back = float(int(found[-1][1])) - 1.0
    conn.zadd(SCHEDULED, {job_id: score - back for job_id, score in found})


def _soon(conn: redis.Redis) -> float:
    return (now_ms(conn) + 60_000) / 1000


def _promote(broker: Broker, batch: int) -> list[int]:
    moved = []
    while count := broker.promote(batch)[0]:
        moved.append(count)
    return moved


@pytest.mark.parametrize("chunk", [1, 7, 120, 500])
@pytest.mark.parametrize("batch", [3, 100, 1000])
def test_any_number_in_any_batches(broker: Broker, conn: redis.Redis, chunk: int, batch: int) -> None:
    """More than share a score, and than a batch of promotion; one enqueue each, or many at once."""
    due, names = _soon(conn), _names(400 if chunk > 1 else 150)
    for start in range(0, len(names), chunk):
        broker.enqueue("q", [new(job_id, due=due) for job_id in names[start : start + chunk]], secrets.token_hex(4))
    assert {int(score * 1000 + 0.001) for _, score in conn.zrange(SCHEDULED, 0, -1, withscores=True)} == {round(due * 1000)}
    _come(conn)
    assert sum(_promote(broker, batch)) == len(names)
    assert drain(Hand(broker, "q")) == names
    assert set(check_conservation(conn, names).values()) == {"started"}


def test_a_worker_between_two_batches_gets_the_first_ones(broker: Broker, conn: redis.Redis) -> None:
    due, names = _soon(conn), _names(300)
    broker.enqueue("q", [new(job_id, due=due) for job_id in names], "n")
    _come(conn)
    hand, order = Hand(broker, "q"), list[str]()
    while broker.promote(40)[0]:
        order += drain(hand)
    assert order == names


def test_by_class_and_each_queue_for_itself(broker: Broker, conn: redis.Redis) -> None:
    due, names = _soon(conn), _names(300)
    for i, job_id in enumerate(names):
        broker.enqueue("ab"[i % 2], [new(job_id, i % 3, due=due)], job_id)
    _come(conn)
    _promote(broker, 50)
    for queue in "ab":
        mine = [(i, job_id) for i, job_id in enumerate(names) if "ab"[i % 2] == queue]
        assert drain(Hand(broker, queue, name=queue)) == [
            job_id for i, job_id in sorted(mine, key=lambda one: (-(one[0] % 3), one[0]))
        ]


def test_rescheduled_to_one_instant(broker: Broker, conn: redis.Redis) -> None:
    due, names = _soon(conn), _names(40)
    for i, job_id in enumerate(names):
        broker.enqueue("q", [new(job_id, due=due + i)], job_id)
    for job_id in sorted(names):
        assert broker.reschedule(job_id, due + 90) == "ok"
    before = conn.zrange(SCHEDULED, 0, -1, withscores=True)
    assert broker.reschedule(names[0], due + 90) == "ok"
    assert conn.zrange(SCHEDULED, 0, -1, withscores=True) == before, "the time that it has already"
    _come(conn)
    _promote(broker, 7)
    assert drain(Hand(broker, "q")) == names


def test_requeued_with_a_delay(broker: Broker, conn: redis.Redis) -> None:
    """A new arrival each, in the order in which they are named."""
    hand, names = Hand(broker, "q"), _names(130)
    put(broker, "q", *sorted(names))
    for _ in range(0, len(names), 50):
        hand.turn(*(outcome(job, "failed", reason="r") for job in hand.claim(50)))
    assert broker.requeue(names, "n", delay=60.0) == ["ok"] * len(names)
    _come(conn)
    _promote(broker, 30)
    assert drain(hand) == names


def test_retries_due_at_one_instant_go_before_those_behind_them(broker: Broker, conn: redis.Redis) -> None:
    """Each has its place; while batches of them are moved, the best placed must be among the first."""
    hand, names = Hand(broker, "q"), _names(90)
    put(broker, "q", *names)
    hand.turn(*(outcome(job, "retry", delay=60.0, reason="r") for job in hand.claim(90)[::-1]))
    assert len({score for _, score in conn.zrange(SCHEDULED, 0, -1, withscores=True)}) == 1
    _come(conn)
    order = list[str]()
    while broker.promote(20)[0]:
        order += drain(hand)
    assert order == names


def test_retries_that_gave_up_their_place_keep_their_order(broker: Broker, conn: redis.Redis) -> None:
    hand, names = Hand(broker, "q"), _names(30)
    put(broker, "q", *names)
    hand.turn(*(outcome(job, "retry", delay=60.0, reason="r", fields={"seq": ""}) for job in hand.claim(30)[::-1]))
    _come(conn)
    _promote(broker, 100)
    assert drain(hand) == names


def test_to_the_front_the_last_comes_first_as_without_a_time(broker: Broker, conn: redis.Redis) -> None:
    due, names = _soon(conn), _names(20)
    broker.enqueue("q", [new(job_id, due=due, front=True) for job_id in names], "n")
    _come(conn)
    _promote(broker, 100)
    assert drain(Hand(broker, "q")) == names[::-1]


def test_those_of_an_older_producer_have_no_number_and_are_moved(broker: Broker, conn: redis.Redis) -> None:
    """Of one score there may be any number: it wrote no other."""
    due, names = _soon(conn), _names(1200)
    for start in range(0, 1200, 400):
        broker.enqueue("q", [new(job_id, due=due) for job_id in names[start : start + 400]], str(start))
    for job_id in names:
        conn.hdel(f"rq:job:{job_id}", "arrival")
    conn.zadd(SCHEDULED, dict.fromkeys(names, 1.0))
    assert _promote(broker, 500) == [500, 500, 200]
    assert sorted(drain(Hand(broker, "q"))) == sorted(names)


def test_a_millisecond_that_is_full_goes_on_in_the_next(broker: Broker, conn: redis.Redis) -> None:
    due = _soon(conn)
    put(broker, "q", "first", due=due)
    conn.zadd(SCHEDULED, {f"x{i}": round(due * 1000) / 1000 + 0.00099955 for i in range(100)})
    put(broker, "q", "next", due=due)
    assert conn.zscore(SCHEDULED, "next") == pytest.approx(due + 0.001, abs=1e-6)


@pytest.mark.parametrize("due", [0.001, 2.0**31, 2.0**31 + 0.999, 2.0**33, 253402300799.0], ids=str)
def test_wherever_in_time(broker: Broker, conn: redis.Redis, due: float) -> None:
    """Doubles are further apart the later it is; and a past instant is one too."""
    names = _names(250)
    broker.enqueue("q", [new(job_id, due=_soon(conn)) for job_id in names], "n")
    for job_id in names:
        assert broker.reschedule(job_id, due) == "ok"
    scores = [conn.zscore(SCHEDULED, job_id) for job_id in names]
    assert scores == sorted(scores)
    assert len(set(scores)) == 3
    assert scores[-1] - due < 0.001


def test_due_times_are_shown_to_the_millisecond(broker: Broker, conn: redis.Redis) -> None:
    due, names = _soon(conn), _names(350)
    broker.enqueue("q", [new(job_id, due=due) for job_id in names], "n")
    inspector = Inspector(conn)
    assert {inspector.due_at(job_id) for job_id in names} == {moment for _, moment in inspector.scheduled(0, -1)}
    (moment,) = {moment for _, moment in inspector.scheduled(0, -1)}
    assert round(moment.timestamp() * 1000) == round(due * 1000)
