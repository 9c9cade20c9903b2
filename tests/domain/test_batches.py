"""`Batch` as programs use it; what it counts is tried at the store."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from fusion import Batch, Queue, signature
from fusion.exceptions import BatchClosed, DuplicateJob, NoSuchBatchError, OptionError
from fusion.store.scripting.host import Steps
from fusion.store.write.broker import Broker
from fusion.store.write.queue_calls import QueueCalls
from tests.kit.hands import Hand, may_reap, status_of
from tests.store.batch_hands import batch_faults
from tests.store.kin_hands import settle

NOOP = "tests.jobs.basic.noop"


@pytest.fixture
def hand(conn: redis.Redis) -> Hand:
    may_reap(conn)
    return Hand(Broker(conn), "q", "p")


def test_a_batch_as_a_block(conn: redis.Redis, hand: Hand) -> None:
    with Batch("mails", queue="q", connection=conn) as batch:
        one = batch.enqueue(NOOP, 1, priority="high")
        two = Queue("p", conn).enqueue(NOOP, batch=batch)
        (three,) = batch.add("p", [Queue.prepare_data(NOOP)])
        assert batch.status == "open"
    assert [one.origin, two.origin, three.origin] == ["q", "p", "p"]
    info = batch.info()
    assert (info.status, info.total, info.open, info.name) == ("running", 3, 3, "mails")
    for claimed in hand.claim(3):
        hand.tell(claimed, fields={"result": f'"{claimed.id}"'})
    found = batch.wait(1)
    assert (found.status, found.finished) == ("success", 3)
    assert [(r.job_id, r.status, r.result) for r in batch.results()] == [(j.id, "finished", j.id) for j in (one, two, three)]
    assert [r.job_id for r in batch.results(1, 1)] == [two.id]
    assert Batch.fetch(batch.id, conn).name == "mails"


def test_a_block_that_raises_cancels_its_batch(conn: redis.Redis) -> None:
    batch = Batch(queue="q", connection=conn)

    def produce() -> None:
        with batch:
            batch.enqueue(NOOP, job_id="a")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        produce()
    assert status_of(conn, "a") == "canceled"
    assert batch.status == "canceled"
    with pytest.raises(BatchClosed):
        batch.enqueue(NOOP)
    assert batch_faults(conn) == []


def test_another_goes_on_with_a_batch_whose_opener_died_before_what_follows_had_come(
    conn: redis.Redis, hand: Hand, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, other = (
        Batch(name, id="b", queue="q", on_complete=NOOP, on_success=NOOP, connection=conn) for name in ("slow", "other")
    )
    slow._nonce = "n"
    slow._open()
    with pytest.raises(ValueError, match="already"):
        Batch(id="b", parent="p", connection=conn).open()
    other.enqueue(NOOP, job_id="a")
    other.open()
    other.open()
    with pytest.raises(ValueError, match="already"):
        Batch(id="b", connection=conn).open()
    with pytest.raises(ValueError, match="already"):
        slow.open()
    monkeypatch.setattr(slow, "_open", lambda: None)  # as if it had been asked before the other
    with pytest.raises(ValueError, match="already"):
        slow.open()
    assert other.info().name == "other" and batch_faults(conn) == []
    other.close()
    while found := hand.claim(5):
        for claimed in found:
            hand.tell(claimed)
        settle(hand.broker)
    assert conn.zcard("rq:finished:q") == 3
    with pytest.raises(ValueError, match="already"):
        Batch(id="b", connection=conn).open()


def test_a_late_callback_of_a_dead_opener_is_refused(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Batch(id="b", queue="q", on_success=NOOP, connection=conn)
    slow._nonce = "n"
    slow._open()
    other = Batch(id="b", queue="q", on_complete=NOOP, connection=conn).open()
    monkeypatch.setattr(slow, "_open", lambda: None)  # as if it had been asked before the other
    with pytest.raises(ValueError, match="already"):
        slow.open()
    assert conn.zcard("rq:deferred:q") == 1
    other.close()
    assert other.status == "success" and batch_faults(conn) == []


@pytest.mark.parametrize("meanwhile", ["another-opens-it", "its-time-is-over", "its-time-is-over-with-jobs-in-it"])
def test_an_opener_that_was_away_before_its_last_call_has_what_follows_once_or_is_refused(
    conn: redis.Redis, hand: Hand, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    broker, release_steps = hand.broker, QueueCalls.release_steps
    slow, other = (
        Batch(id="b", queue="q", on_complete=NOOP, on_success=signature(NOOP).set(queue="p"), connection=conn) for _ in range(2)
    )

    def time_is_over() -> None:
        if meanwhile.endswith("with-jobs-in-it"):
            slow.enqueue(NOOP, job_id="m")
        conn.hset("rq:batch:b", "open_until", 1)
        conn.zadd("rq:batches:due", {"b": 1})
        broker.tend_batches()

    what = iter([other.open if meanwhile == "another-opens-it" else time_is_over])

    def away(self: QueueCalls, *args: Any) -> Steps[None]:
        if do := next(what, None):
            do()
            settle(broker)
        yield from release_steps(self, *args)

    monkeypatch.setattr(QueueCalls, "release_steps", away)
    if meanwhile == "another-opens-it":
        with pytest.raises(ValueError, match="already"):
            slow.open()
        other.close()
    elif meanwhile == "its-time-is-over":
        with pytest.raises(NoSuchBatchError):
            slow.open()
    else:
        slow.open()
    ran = []
    settle(broker)
    while found := hand.claim(5):
        for claimed in found:
            ran.append(claimed.id)
            hand.tell(claimed)
        settle(broker)
    ours = {"another-opens-it": other, "its-time-is-over-with-jobs-in-it": slow}.get(meanwhile)
    assert len(ran) == {"another-opens-it": 2, "its-time-is-over": 0}.get(meanwhile, 3)
    if ours is not None:
        assert {ours.info().on_complete, ours.info().on_success} <= set(ran)
    assert conn.zcard("rq:deferred:q") + conn.zcard("rq:deferred:p") == 0 and batch_faults(conn) == []


def test_how_each_member_ended(conn: redis.Redis, hand: Hand) -> None:
    batch = Batch(queue="q", connection=conn).open()
    jobs = [batch.enqueue(NOOP) for _ in range(4)]
    for claimed, kind in zip(hand.claim(2), ("finished", "failed"), strict=True):
        hand.tell(claimed, kind, reason="r")
    jobs[2].cancel()
    assert [r.status for r in batch.results()] == ["finished", "failed", "canceled", "open"]
    with pytest.raises(TimeoutError, match="1 of 4"):
        batch.wait(0.01)
    jobs[3].delete()
    batch.close()
    batch.close()
    assert batch.wait(1).status == "complete"
    assert batch.info().outcomes == {"failed": 1, "canceled": 1, "stopped": 0, "deleted": 1}
    jobs[1].requeue()
    assert batch.status == "running"


def test_a_cancel_reaches_the_batches_inside(conn: redis.Redis, hand: Hand) -> None:
    outer = Batch(queue="q", connection=conn).open()
    inner = Batch(queue="q", connection=conn, parent=outer).open()
    Batch(queue="q", connection=conn, parent=inner).open().enqueue(NOOP)
    outer.enqueue(NOOP)
    running = hand.take()
    for _ in range(120):
        inner.enqueue(NOOP)
    assert outer.cancel() == (121, 1)
    assert batch_faults(conn) == []
    assert outer.status == "canceled" and outer.info().open == 1 and outer.info().ended_at is None
    assert outer.batches() == [inner]
    hand.tell(running, "release")
    assert outer.info().ended_at is not None
    assert batch_faults(conn) == []


def test_invalid_batches_are_refused(conn: redis.Redis) -> None:
    for bad in ("no spaces", "", "x" * 129, 5):
        with pytest.raises(OptionError):
            Batch(id=bad)  # type: ignore[arg-type]
        with pytest.raises(OptionError):
            Queue("q", conn).enqueue(NOOP, batch=bad)
    for times in ({"open_for": 0}, {"keep": "soon"}):
        with pytest.raises(OptionError):
            Batch(**times)  # type: ignore[arg-type]
    with pytest.raises(NoSuchBatchError):
        Queue("q", conn).enqueue(NOOP, batch="nobody")
    for call in (
        Batch.fetch,
        lambda id, conn: Batch(id=id, connection=conn).close(),
        lambda id, conn: Batch(id=id, connection=conn).cancel(),
    ):
        with pytest.raises(NoSuchBatchError):
            call("nobody", conn)
    Batch(id="b", connection=conn).open()
    with pytest.raises(ValueError, match="already"):
        Batch(id="b", connection=conn).open()
    data = Queue.prepare_data(NOOP, batch="b", job_id="a")
    Queue("q", conn).enqueue_many([data])
    Queue("q", conn).enqueue_many([data])
    with pytest.raises(DuplicateJob):
        Queue("q", conn).enqueue(NOOP, batch="b", job_id="a")
    Batch(id="c", connection=conn).open()
    with pytest.raises(OptionError, match="another batch"):
        Batch(id="c", connection=conn).add("q", [data])
    assert Batch(id="b", connection=conn).info().total == 1
    assert conn.zcard("rq:queue:q") == 1


def test_a_sixth_inside_one_another_is_refused(conn: redis.Redis) -> None:
    parent = None
    for _ in range(5):
        parent = Batch(parent=parent, connection=conn).open()
    with pytest.raises(ValueError, match="five deep"):
        Batch(parent=parent, connection=conn).open()


def test_with_a_concurrency_key_and_a_schedule(conn: redis.Redis, hand: Hand) -> None:
    with Batch(queue="q", connection=conn) as batch:
        for _ in range(2):
            batch.enqueue(NOOP, max_concurrent=1)
        batch.enqueue(NOOP, enqueue_in=60)
    for _ in range(2):
        (claimed,) = hand.claim(2)
        hand.tell(claimed)
    assert (batch.info().open, batch.info().finished) == (1, 2)
