"""Jobs of a task that takes many in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import redis

import fusion
from fusion import Job, Queue
from fusion.kernel.signing import Keyring, as_claimed
from tests.faults.rig.conservation import check_conservation
from tests.jobs import gathering
from tests.kit.hands import events_of
from tests.kit.promises import claim
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, lines, status_of
from tests.kit.workers import Workers

ENV = {"FUSION_TASKS": "tests.jobs.gathering", "FUSION_TIMEOUT_GRACE": "0.5"}


@pytest.fixture
def queue(conn: redis.Redis) -> Queue:
    return Queue("g", conn)


def enqueue(queue: Queue, task: Any, *args: Any, **options: Any) -> Job:
    return queue.enqueue_call(task, args, **options)


def test_jobs_that_follow_one_another_go_to_one_call(workers: Workers, queue: Queue, conn: redis.Redis, tmp_path: Path) -> None:
    """Each has its own outcome: a result, an exception, or none, and then it runs again alone. A class closes the call, a callback is of one."""
    seen = str(tmp_path / "seen")
    jobs = [enqueue(queue, gathering.send, n, seen, on_success=gathering.called) for n in (1, 2, 3)]
    raises = enqueue(queue, gathering.send, "no", seen, retry=None)
    silent = enqueue(queue, gathering.send, None, seen)
    low = enqueue(queue, gathering.send, 9, seen, priority="low")
    workers.burst("g", env=ENV)
    assert [job.result[:2] for job in jobs] == [[2, 5], [4, 5], [6, 5]] and len({job.result[2] for job in jobs}) == 1
    assert sorted(lines(Path(seen))) == sorted(f"called:{job.id} {job.id} {job.result[2]}" for job in jobs)
    assert "ValueError: no" in field(conn, raises.id, "exc_info")
    assert silent.result[:2] == [None, 1] and field(conn, silent.id, "attempts") == ""
    assert low.result[:2] == [18, 1]
    abandoned = [event for event in events_of(conn) if event["event"] == "abandoned"]
    assert [(event["job_id"], event["blame"]) for event in abandoned] == [(silent.id, "shared")]
    check_conservation(conn, [job.id for job in (*jobs, silent, low)])


def test_another_function_closes_the_call_and_high_does_not_wait(workers: Workers, queue: Queue, conn: redis.Redis) -> None:
    jobs = [
        enqueue(queue, task, n) for n, task in enumerate([gathering.send] * 2 + [gathering.send_async] * 3 + [gathering.send])
    ]
    worker = workers.start("g", env=ENV)
    eventually(lambda: {status_of(conn, job.id) for job in jobs} == {"finished"}, why="all have run")
    assert [job.result[1] if isinstance(job.result, list) else job.result for job in jobs] == [2, 2, 3, 3, 3, 1]
    conn.hset(f"rq:job:{(waits := enqueue(queue, gathering.send, 1, enqueue_in=0.5)).id}", "gather", "10 60")
    conn.hset(f"rq:job:{(high := enqueue(queue, gathering.send, 1, enqueue_in=0.5, priority='high')).id}", "gather", "10 60")
    eventually(lambda: status_of(conn, high.id) == "finished", why="it does not wait")
    eventually(lambda: status_of(conn, waits.id) in ("started", "finished"), why="it has its turn")
    worker.stop()
    assert field(conn, waits.id, "attempts") == field(conn, waits.id, "lost") == ""


@pytest.mark.parametrize("mode", [(), ("--horses", "2"), ("--executor", "asyncio"), ("--executor", "thread")], ids=str)
def test_jobs_that_arrive_within_the_wait_join_the_batch_and_a_stop_returns_all(
    workers: Workers, queue: Queue, conn: redis.Redis, mode: tuple[str, ...]
) -> None:
    worker = workers.start("g", *mode, env=ENV)
    first = enqueue(queue, gathering.send, 1)
    eventually(lambda: status_of(conn, first.id) == "started", why="it waits")
    jobs = [first, *(enqueue(queue, gathering.send, n) for n in (2, 3))]
    eventually(lambda: {status_of(conn, job.id) for job in jobs} == {"finished"}, why="they have run")
    assert [job.result[:2] for job in jobs] == [[2, 3], [4, 3], [6, 3]]
    back = [enqueue(queue, gathering.send, n, enqueue_in=0.3) for n in range(4)]
    for job in back:
        conn.hset(f"rq:job:{job.id}", "gather", "10 60")
    eventually(lambda: {status_of(conn, job.id) for job in back} == {"started"}, why="they wait")
    worker.stop()
    assert [(status_of(conn, job.id), field(conn, job.id, "lost"), field(conn, job.id, "attempts")) for job in back] == [
        ("queued", "", "")
    ] * 4
    check_conservation(conn, [job.id for job in jobs])


@claim("P5")
@pytest.mark.parametrize("mode", [(), ("--executor", "asyncio")], ids=str)
@pytest.mark.parametrize("how", ["die", "hang"])
def test_jobs_without_a_result_run_alone_after_their_process_dies_or_is_late(
    workers: Workers, queue: Queue, conn: redis.Redis, tmp_path: Path, how: str, mode: tuple[str, ...]
) -> None:
    """And alone answers for what it does. Who was answered for before has its result."""
    seen = str(tmp_path / "seen")
    first, second, bad, last = (enqueue(queue, gathering.dies, word, seen, timeout=1, retry=None) for word in ("", "", how, ""))
    workers.start("g", *mode, env=ENV)
    eventually(lambda: status_of(conn, bad.id) == "failed" and status_of(conn, last.id) == "finished", 30, why="all have ended")
    assert [job.result for job in (first, second, last)] == [4, 4, 1]
    assert ("JobTimeoutException" if how == "hang" else "SIGSEGV") in field(conn, bad.id, "exc_info")
    sizes = [line.split()[:2] for line in lines(Path(seen))]
    assert sizes.count(["1", bad.id]) >= 1 and sizes.count(["4", bad.id]) == 1 and ["1", first.id] not in sizes
    check_conservation(conn, [job.id for job in (first, second, last)])


def test_one_that_is_stopped_ends_the_call_and_the_others_run_again(
    workers: Workers, queue: Queue, conn: redis.Redis, tmp_path: Path
) -> None:
    seen = tmp_path / "seen"
    jobs = [enqueue(queue, gathering.dies, word, str(seen)) for word in ("", "hang", "")]
    workers.start("g", env=ENV)
    eventually(lambda: status_of(conn, jobs[0].id) == "finished", why="the first is answered")
    assert jobs[1].stop() == "pending"
    eventually(lambda: [status_of(conn, job.id) for job in jobs[1:]] == ["stopped", "finished"], why="they have ended")
    assert jobs[2].result == 1 and field(conn, jobs[2].id, "attempts") == ""


def test_the_signature_covers_whether_a_job_may_share_a_call() -> None:
    keys = Keyring(["k1:0123456789abcdefghijklmnopqrstuvwxyz"])
    fields = {"data": "[[1],{}]", "timeout": 180, "gather": "10 0.3"}
    claimed = as_claimed({**fields, "priority": 1, "signature": keys.sign("j", "g", 1, fields)})
    assert keys.flaw("j", "g", claimed) == ""
    assert "altered" in keys.flaw("j", "g", {**claimed, b"gather": b"1000 60"})
    del claimed[b"gather"]
    assert "altered" in keys.flaw("j", "g", claimed)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"batch_wait": "1s"}, TypeError),
        ({"batch": 0}, ValueError),
        ({"batch": 2000}, ValueError),
        ({"batch": 2, "batch_wait": "2h"}, ValueError),
    ],
)
def test_figures_that_are_none_are_refused(options: dict[str, Any], error: type[Exception]) -> None:
    def task(jobs: list[Any]) -> Any:
        yield

    with pytest.raises(error, match="batch"):
        fusion.job("g", **options)(task)
    with pytest.raises(TypeError, match="yield"):
        fusion.job("g", batch=2)(len)
