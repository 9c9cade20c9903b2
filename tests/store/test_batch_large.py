"""A batch of 50,000 with others in it: each script is short, whatever is sent twice, and what is to follow follows once."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from fusion import Batch, Queue
from fusion.job import Job
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, events_of, may_reap, outcome
from tests.kit.length import soaked
from tests.kit.servers import SpawnedServer
from tests.store.batch_hands import batch_faults

NOOP = "tests.jobs.basic.noop"
MANY, INNER, EACH = soaked(15_000, 50_000), 20, 50
#: Microseconds that a script may take. Wall time: on a busy machine a few wait for their turn.
LONGEST, SPARED = 5000, 0.002


@pytest.mark.long
@pytest.mark.timeout(900)
def test_tens_of_thousands(spawn: Callable[..., SpawnedServer]) -> None:
    conn = spawn().client()
    conn.config_set("slowlog-log-slower-than", LONGEST)
    conn.config_set("slowlog-max-len", 10_000)
    may_reap(conn)
    broker = Broker(conn)
    with Batch("large", queue="q", connection=conn, on_complete=NOOP, on_success=NOOP) as batch:
        for _ in range(INNER):
            with Batch(parent=batch, queue="q", connection=conn) as inner:
                inner.add("q", [Queue.prepare_data(NOOP) for _ in range(EACH)])
        batch.add("q", (Queue.prepare_data(NOOP) for _ in range(MANY)))
    assert batch.info().total == MANY + INNER
    conn.slowlog_reset()  # of accepting 500 jobs at once nobody says how long it takes
    hand, turns = Hand(broker, "q"), 0
    jobs = hand.claim(20)
    while jobs:
        told = [outcome(job, "failed" if turns == 7 else "finished", reason="r", fields={"result": "1"}) for job in jobs]
        hand.token += 1
        for _ in range(2 if turns % 50 == 0 else 1):
            found = hand.turn(*told, slots=[0] * 20, token=hand.token)
        jobs, turns = found.jobs, turns + 1
        if turns % 500 == 0:
            info = batch.info()
            assert 0 < info.open < MANY
    broker.release()
    info = batch.info()
    assert (info.status, info.open, info.outcomes["failed"]) == ("complete", 0, 2), "the twenty were of two of the inner ones"
    failed = [one.decode() for one in conn.zrange("rq:queue:failed", 0, -1)]
    assert broker.requeue(failed, "n") == ["ok"] * len(failed) == broker.requeue(failed, "n")
    while jobs := hand.claim(20):
        hand.turn(*(outcome(job) for job in jobs))
        broker.release()
    assert batch.status == "success"
    assert sum(result.status == "finished" for result in batch.results()) == MANY
    for job_id in (info.on_complete, info.on_success):
        assert sum(event["event"] == "queued" for event in events_of(conn, job_id)) == 1
        assert Job.fetch(str(job_id), conn).is_finished
    looked = 0
    while broker.tend_batches()[0]:
        looked += 1
    assert looked >= MANY / 50, "their times begin, fifty at a time"
    assert conn.zcount("rq:finished:q", "+inf", "+inf") == 0
    assert batch_faults(conn) == []

    other = Batch("canceled", queue="q", connection=conn).open()
    other.add("q", (Queue.prepare_data(NOOP) for _ in range(10_000)))
    assert other.cancel() == (10_000, 0)
    conn.hset(f"rq:batch:{other.id}", "forget_ms", 1)
    conn.zadd("rq:batches:due", {other.id: 1})
    broker.tend_batches()
    assert conn.exists(f"rq:batch:{other.id}") == 0
    took = sorted(entry["duration"] for entry in conn.slowlog_get(10_000) if b"enqueue" not in entry["command"])
    if os.getloadavg()[0] < (os.cpu_count() or 1):  # else they are those that waited for their turn
        assert len(took) <= SPARED * (turns + looked + 200), took
