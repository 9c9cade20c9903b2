"""The queue between master and workers: order, and an id never twice."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from fusion.inprocess import JobQueue, JobState, ReadyJob
from fusion.inprocess.job import ActiveRun, Outcome
from fusion.inprocess.job_queue import Refusal
from tests.inprocess.hands import HandClock


def job(job_id: Any) -> ReadyJob:
    return ReadyJob(job_id, f"job {job_id}", int)


def taken(queue: JobQueue) -> ActiveRun:
    run = queue.get(0)
    assert run is not None
    return run


def end(queue: JobQueue, run: ActiveRun, error: str | None = None) -> None:
    assert queue.decide(run, Outcome(error=error))
    queue.settled(run)


def test_jobs_come_in_the_order_of_arrival() -> None:
    queue = JobQueue()
    assert [queue.put(job(n)) for n in (3, 1, 2)] == [None, None, None]
    assert queue.queued_ids() == (3, 1, 2)
    assert [taken(queue).job.id for _ in range(3)] == [3, 1, 2]
    assert queue.get(0) is None


def test_an_id_is_queued_or_active_or_completed_a_short_while_ago_but_never_twice() -> None:
    clock = HandClock()
    queue = JobQueue(clock=clock)
    queue.put(job(1))
    assert (queue.put(job(1)), queue.state(1)) == (Refusal.QUEUED, JobState.QUEUED)
    run = taken(queue)
    assert (queue.put(job(1)), queue.state(1)) == (Refusal.ACTIVE, JobState.ACTIVE)
    end(queue, run)
    clock.advance(29.9)
    assert (queue.put(job(1)), queue.state(1)) == (Refusal.RECENT, JobState.COMPLETE)
    clock.advance(0.1)
    assert queue.put(job(1)) is None
    assert queue.queued_ids() == (1,)


def test_a_failed_job_is_pending_again_at_once() -> None:
    queue = JobQueue()
    queue.put(job(1))
    end(queue, taken(queue), error="ValueError")
    assert queue.state(1) is JobState.PENDING
    assert queue.put(job(1)) is None


def test_a_job_completed_during_a_long_fetch_is_not_queued_again() -> None:
    clock = HandClock()
    queue = JobQueue(clock=clock)
    queue.put(job(1))
    run = taken(queue)
    asked_at = clock.now()
    clock.advance(5)
    end(queue, run)
    clock.advance(3600)
    assert queue.put(job(1), as_of=asked_at) is Refusal.RECENT
    assert queue.put(job(1), as_of=clock.now()) is None


def test_the_first_of_result_and_timeout_decides() -> None:
    queue = JobQueue()
    queue.put(job(1))
    run = taken(queue)
    assert queue.decide(run, Outcome.failed("too late"))
    assert not queue.decide(run, Outcome(result=42))
    assert (run.outcome and run.outcome.error) == "too late"


def test_a_run_that_was_settled_is_settled_once() -> None:
    queue = JobQueue()
    queue.put(job(1))
    first = taken(queue)
    end(queue, first, error="once")
    queue.put(job(1))
    second = taken(queue)
    queue.settled(first)
    assert queue.active() == (second,)


def test_paused_it_hands_out_nothing_and_takes_in_all() -> None:
    queue = JobQueue()
    queue.pause()
    assert queue.put(job(1)) is None
    assert queue.get(0) is None
    queue.pause(False)
    assert taken(queue).job.id == 1


def test_timeouts_of_jobs() -> None:
    clock = HandClock()
    queue = JobQueue(job_timeout=60, clock=clock)
    for timeout in (None, 5, 0):
        queue.put(ReadyJob(timeout, "a job", int, timeout))
    assert [taken(queue).deadline - clock.now() for _ in range(3)] == [60, 5, float("inf")]


class Counted:
    """An id that counts how often it is compared."""

    compared = 0

    def __init__(self, n: int) -> None:
        self.n = n

    def __hash__(self) -> int:
        return self.n

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return isinstance(other, Counted) and other.n == self.n


def test_a_duplicate_among_ten_thousand_is_found_by_one_look() -> None:
    queue = JobQueue()
    for n in range(10_000):
        queue.put(job(Counted(n)))
    Counted.compared = 0
    assert queue.put(job(Counted(9_999))) is Refusal.QUEUED
    assert queue.put(job(Counted(10_000))) is None
    assert Counted.compared < 10


def test_many_threads_take_each_job_once() -> None:
    queue = JobQueue()
    found: list[int] = []
    done = threading.Event()

    def take() -> None:
        while (run := queue.get(leave=done.is_set)) is not None:
            found.append(run.job.id)  # type: ignore[arg-type]
            end(queue, run)

    takers = [threading.Thread(target=take) for _ in range(8)]
    for taker in takers:
        taker.start()
    for n in range(2000):
        queue.put(job(n))
        queue.put(job(n))
    while len(found) < 2000:
        done.wait(0.01)
    done.set()
    queue.wake_all()
    for taker in takers:
        taker.join(10)
    assert sorted(found) == list(range(2000))
    assert not any(taker.is_alive() for taker in takers)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ((1, None, int), "the name of job 1 is of type NoneType; use a str"),
        ((1, "x", 5), "run of job 'x' is of type int; use a function without arguments"),
        (([], "x", int), "unhashable type: 'list'"),
        ((1, "x", int, -1), "the timeout of job 'x' is -1; use seconds, or 0 for any time"),
        ((1, "x", int, float("nan")), "the timeout of job 'x' is nan; use seconds, or 0 for any time"),
    ],
)
def test_an_invalid_job_is_refused(fields: tuple[Any, ...], says: str) -> None:
    with pytest.raises((TypeError, ValueError)) as error:
        ReadyJob(*fields)
    assert str(error.value) == says
