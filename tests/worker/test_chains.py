"""Chains: each job is given what the one before it returned."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from fusion import Job, Queue, chain, signature
from fusion.exceptions import OptionError, UnknownOption
from tests.faults.rig.conservation import check_ended, leftovers, memberships
from tests.jobs.batched import joined, total
from tests.kit.waiting import eventually
from tests.kit.workers import Workers
from tests.store.batch_hands import batch_faults

ENV = {"FUSION_TASKS": "tests.jobs.batched,tests.jobs.basic"}
ADD, ECHO, BOOM = "tests.jobs.basic.add", "tests.jobs.basic.echo", "tests.jobs.basic.boom"


def results(jobs: list[Job]) -> list[Any]:
    """What they returned, once all have ended."""
    for job in jobs:
        job.wait(20)
    return [job.result for job in jobs]


def test_each_is_given_what_the_one_before_it_returned(workers: Workers, conn: redis.Redis) -> None:
    sums = chain(signature(ADD, 1, 2), signature(ADD, 10), signature(ADD, b=100)).enqueue("q", conn)
    large = chain(signature(ECHO, "x" * 2000), joined.s("y"), joined.si("z", "!")).enqueue(Queue("other", conn), result_ttl=0)
    nothing = chain("tests.jobs.basic.noop", ECHO).enqueue("q", conn, priority="high")
    assert [job.get_status() for job in sums] == ["queued", "deferred", "deferred"]
    assert [job.origin for job in large] == ["other", "q", "q"]
    workers.start("q", "other", env=ENV)
    assert results(sums) == [3, 13, 113]
    assert results(nothing) == [None, None] and nothing[1].get_status() == "finished"
    assert [job.wait(20) for job in large] == ["finished"] * 3
    check_ended(conn, memberships(conn))
    eventually(lambda: leftovers(conn) == [], 10, why="what has ended is struck off its parents a moment later")


def test_what_comes_after_a_failure_fails_and_goes_on_when_it_is_put_back(workers: Workers, conn: redis.Redis) -> None:
    jobs = chain(signature(ADD, 1, 2), BOOM, signature(ECHO)).enqueue("q", conn)
    retried = chain(signature(ADD, 1, "x"), signature(ECHO)).enqueue("q", conn)
    workers.start("q", env=ENV)
    assert [job.wait(20) for job in jobs] == ["finished", "failed", "failed"]
    assert [job.wait(20) for job in retried] == ["failed", "failed"]
    assert "was failed" in str(Job.fetch(jobs[2].id, conn).exc_info)
    check_ended(conn, memberships(conn))


@pytest.mark.long
def test_the_steps_are_signed(workers: Workers, conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    from fusion.settings import use_settings

    keys = {"FUSION_SECRET_KEYS": "a:" + "0123456789abcdefghijklmnopqrstuvwxyzABCD"}
    monkeypatch.setenv("FUSION_SECRET_KEYS", keys["FUSION_SECRET_KEYS"])
    use_settings(None)
    sums = chain(signature(ADD, 1, 2), signature(ADD, 10)).enqueue("q", conn)
    struck = chain(signature(ADD, 1, 2), signature(ADD, 10)).enqueue("q", conn)
    conn.hdel(f"rq:job:{struck[1].id}", "takes")
    workers.start("q", env={**ENV, **keys})
    assert results(sums) == [3, 13]
    assert struck[1].wait(20) == "failed" and struck[1].error_class == "fusion.exceptions.BadSignature"


@pytest.mark.long
def test_a_chain_in_a_batch_and_a_batch_in_a_chain(workers: Workers, conn: redis.Redis) -> None:
    from fusion import Batch

    with Batch(queue="q", connection=conn, on_success=total.s("done")) as batch:
        chain(signature(ADD, 1, 2), signature(ADD, 10)).enqueue("q", conn, batch=batch)
    workers.start("q", env=ENV)
    batch.wait(20)
    assert [result.result for result in batch.results()] == [3, 13]
    assert results([Job.fetch(batch.info().on_success, conn)])[0] == ["done", "success", [3, 13]]
    assert batch_faults(conn) == []


def test_what_is_refused(conn: redis.Redis) -> None:
    with pytest.raises(ValueError, match="one call"):
        chain()
    with pytest.raises(OptionError, match="depends_on"):
        chain(signature(ECHO, 1), signature(ECHO).set(depends_on="a")).enqueue("q", conn)
    with pytest.raises(UnknownOption):
        joined.s(nobody=1)
    assert conn.dbsize() == 0
    assert repr(chain(joined.s("a"), ECHO)) == "chain(joined, tests.jobs.basic.echo)"


@pytest.mark.long
def test_a_burst_runs_a_chain_to_its_end(workers: Workers, conn: redis.Redis) -> None:
    """What the last job released is work of the burst, too."""
    jobs = chain(signature(ADD, 0, 1), *(signature(ADD, 1) for _ in range(29))).enqueue("q", conn)
    assert workers.start("q", "--burst", ready=False, env=ENV).wait(30) == 0
    assert [job.get_status() for job in jobs] == ["finished"] * 30
    assert Job.fetch(jobs[-1].id, conn).result == 30
