"""Batches among real workers."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from fusion import Batch, Job
from tests.faults.rig.conservation import check_ended, leftovers, memberships
from tests.jobs.batched import total
from tests.kit.waiting import eventually
from tests.kit.workers import Workers
from tests.store.batch_hands import batch_faults

ENV = {"FUSION_TASKS": "tests.jobs.batched,tests.jobs.basic"}


def test_jobs_add_jobs_and_batches_to_their_own(workers: Workers, conn: redis.Redis) -> None:
    with Batch(queue="q", connection=conn) as batch:
        first = batch.enqueue("tests.jobs.batched.spread", 2, 2)
        nested = batch.enqueue("tests.jobs.batched.inner", 3)
        batch.enqueue("tests.jobs.basic.boom")
    workers.start("q", "--slots", "2", env=ENV)
    info = batch.wait(30)
    assert (info.status, info.total, info.finished, info.outcomes["failed"]) == ("complete", 18, 17, 1)
    first.refresh()
    assert first.result == batch.id
    nested.refresh()
    inner = Batch.fetch(nested.result, conn)
    assert [r.result for r in inner.results()] == [0, 1, 2]
    assert inner.info().parent == batch.id
    assert batch_faults(conn) == []
    check_ended(conn, memberships(conn))
    eventually(lambda: leftovers(conn) == [], 10, why="what has ended is struck off its parents a moment later")


@pytest.mark.long
def test_a_batch_whose_producer_died_is_closed_by_a_worker(workers: Workers, conn: redis.Redis) -> None:
    batch = Batch(queue="q", connection=conn, open_for=0.3).open()
    batch.enqueue("tests.jobs.basic.noop")
    workers.start("q", env=ENV)
    eventually(lambda: batch.status == "success", why="nobody else closes it")
    assert batch.info().abandoned


@pytest.mark.long
def test_callbacks_read_what_the_jobs_returned_and_success_follows_a_requeue(
    workers: Workers, conn: redis.Redis, tmp_path: Path
) -> None:
    mended = tmp_path / "mended"
    calls = {"on_complete": total.s("complete"), "on_success": total.s("success").set(priority="high")}
    with Batch(queue="q", connection=conn, **calls) as batch:
        for n in range(3):
            batch.enqueue("tests.jobs.basic.echo", n)
        flaky = batch.enqueue("tests.jobs.batched.when_there", str(mended))
    workers.start("q", "--slots", "2", env=ENV)
    info = batch.wait(30)
    assert info.status == "complete"
    complete, success = Job.fetch(info.on_complete, conn), Job.fetch(info.on_success, conn)
    complete.wait(30)
    assert complete.result == ["complete", "complete", [0, 1, 2, None]]
    assert success.get_status() == "deferred"
    mended.touch()
    flaky.requeue()
    success.wait(30)
    assert success.result == ["success", "success", [0, 1, 2, "there"]]
    assert batch_faults(conn) == []
    check_ended(conn, memberships(conn))
