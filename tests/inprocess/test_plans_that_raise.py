"""Plans that raise in each of their calls, and that give what they should not."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest

from fusion.inprocess import JobState, ReadyJob
from tests.inprocess.hands import HandClock, Troubled, managed
from tests.kit.waiting import eventually

LOCKED = sqlite3.OperationalError("database is locked")
#: An error of a plan, and one that ends threads.
ERRORS = [LOCKED, SystemExit(1)]


def test_a_fetch_that_raises_is_made_again_after_growing_pauses() -> None:
    plan, clock = Troubled(), HandClock()
    plan.raising["fetch_ready"] = LOCKED
    plan.add("job", int)
    with managed(plan, clock=clock) as (manager, witness):
        for n, pause in enumerate((1, 2, 4, 8), 1):
            witness.await_kind("plan_failed", n)
            if pause < 8:
                clock.advance(pause - 0.1)
                assert plan.calls["fetch_ready"] == n
                clock.advance(0.1)
        assert witness.texts("plan_failed")[-1] == (
            "Master could not fetch jobs: sqlite3.OperationalError: database is locked; it tries again in 8 s"
        )
        assert manager.stats().master_thread_alive
        plan.raising.clear()
        clock.advance(8)
        witness.await_kind("finished")


def test_a_master_that_dies_is_started_again_after_growing_pauses() -> None:
    plan, clock = Troubled(), HandClock()
    plan.raising["fetch_ready"] = SystemExit("no more")
    plan.add("job", int)
    with managed(plan, clock=clock) as (manager, witness):
        for n, pause in enumerate((1, 2, 4), 1):
            witness.await_kind("thread_died", n)
            eventually(lambda: not manager.stats().master_thread_alive)
            assert witness.texts("thread_died") == ["FATAL: Master dies: SystemExit: no more"] * n
            if pause == 4:
                plan.raising.clear()
            eventually(lambda n=n: plan.calls["fetch_ready"] == n)
            advance_until(clock, lambda n=n: plan.calls["fetch_ready"] == n + 1)
        witness.await_kind("finished")
        assert manager.stats().master_thread_alive


def advance_until(clock: HandClock, check: Any) -> None:
    """Turn the clock until something has happened: whoever is to do it may not have begun to wait."""

    def step() -> bool:
        clock.advance(0.5)
        return bool(check())

    eventually(step)


def test_jobs_fetched_before_an_error_are_queued() -> None:
    class Halfway(Troubled):
        def fetch_ready(self) -> Iterator[ReadyJob]:
            yield from super().fetch_ready()
            raise LOCKED

    plan = Halfway()
    plan.add("job", int)
    with managed(plan) as (_, witness):
        witness.await_kind("finished")
        assert witness.texts("fetched") == ["👑 Master fetched 1 jobs from database"]
        witness.await_kind("plan_failed")


def test_a_question_that_raises_for_one_job_keeps_no_other_waiting() -> None:
    class Picky(Troubled):
        def is_currently_running(self, job_id: Any) -> bool:
            if job_id == broken:
                raise LOCKED
            return super().is_currently_running(job_id)

    plan = Picky()
    broken = plan.add("broken", int)
    plan.add("sound", int)
    with managed(plan) as (_, witness):
        (event,) = witness.await_kind("finished")
        assert event.job_name == "sound"
        assert "Job 'broken' is left out of this fetch: sqlite3.OperationalError: database is locked" in witness.texts(
            "plan_failed"
        )


def test_an_id_that_cannot_be_compared_keeps_no_other_waiting() -> None:
    class Odd:
        def __hash__(self) -> int:
            return 7

        def __eq__(self, other: object) -> bool:
            raise ValueError("ids of two kinds")

    class Twice(Troubled):
        def fetch_ready(self) -> Any:
            return [ReadyJob(Odd(), "odd", int), ReadyJob(Odd(), "odder", int), *super().fetch_ready()]

    plan = Twice()
    plan.add("sound", int)
    with managed(plan, workers=1) as (_, witness):
        eventually(lambda: "sound" in [event.job_name for event in witness.of("finished")])
        assert any("'odder' is left out of this fetch: ValueError" in text for text in witness.texts("plan_failed"))


def test_a_row_that_raises_keeps_no_row_behind_it_waiting() -> None:
    class Rows:
        """Rows of which the first can't be read."""

        def __init__(self, jobs: Any) -> None:
            self._jobs, self._raised = iter(jobs), False

        def __iter__(self) -> Any:
            return self

        def __next__(self) -> ReadyJob:
            if not self._raised:
                self._raised = True
                raise LOCKED
            return next(self._jobs)

    class Halfway(Troubled):
        def fetch_ready(self) -> Any:
            return Rows(super().fetch_ready())

    plan = Halfway()
    plan.add("sound", int)
    with managed(plan) as (_, witness):
        witness.await_kind("finished")
        assert "database is locked" in witness.await_kind("plan_failed")[0].text


def test_a_fetch_ignores_invalid_and_repeated_jobs() -> None:
    class Odd(Troubled):
        def fetch_ready(self) -> Any:
            jobs = super().fetch_ready()
            return [None, *jobs, {"id": 1}, *jobs, "text"]

    plan = Odd()
    plan.add("job", int)
    with managed(plan) as (_, witness):
        witness.await_kind("finished")
        assert witness.texts("plan_failed")[0] == (
            "fetch_ready of the plan gave an object of type NoneType, which is left out; use fusion.inprocess.ReadyJob"
        )
        assert len(witness.of("plan_failed")) == 3
        assert witness.texts("duplicate") == ["Job 'job' already in queue"] or plan.calls["mark_running"] == 1
    assert plan.calls["mark_running"] == 1


def test_a_plan_that_returns_none_is_reported() -> None:
    class Nothing(Troubled):
        def fetch_ready(self) -> Any:
            return None

    with managed(Nothing()) as (_, witness):
        (event,) = witness.await_kind("plan_failed")
        assert "'NoneType' object is not iterable" in event.text


def test_a_question_whether_a_job_runs_that_raises_is_a_fetch_that_failed() -> None:
    plan, clock = Troubled(), HandClock()
    plan.raising["is_currently_running"] = LOCKED
    plan.add("job", int)
    with managed(plan, clock=clock) as (manager, witness):
        witness.await_kind("plan_failed")
        assert manager.stats().queue_size == 0
        plan.raising.clear()
        clock.advance(1)
        witness.await_kind("finished")


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_claim_that_raises_is_taken_back_and_the_job_is_not_run(error: BaseException) -> None:
    plan, ran = Troubled(), list[int]()
    plan.raising["mark_running"] = error
    job_id = plan.add("job", lambda: ran.append(1))
    with managed(plan) as (manager, witness):
        witness.await_kind("pending")
        assert (ran, plan.state(job_id), plan.calls["mark_pending"]) == ([], JobState.PENDING, 1)
        plan.raising.clear()
        eventually(lambda: manager.stats().active_jobs == 0)
        manager.wake()
        witness.await_kind("finished")
    assert ran == [1]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("call", ["mark_complete", "mark_pending"])
def test_an_outcome_that_the_plan_refuses_is_kept_and_sent_again(call: str, error: BaseException) -> None:
    plan, clock, ran = Troubled(), HandClock(), list[int]()
    plan.raising[call] = error

    def job() -> str:
        ran.append(1)
        if call == "mark_pending":
            raise ValueError("wrong")
        return "dear"

    job_id = plan.add("job", job)
    with managed(plan, clock=clock) as (manager, witness):
        for n, pause in enumerate((1, 2, 4), 1):
            witness.await_kind("plan_failed", n)
            assert plan.calls[call] == n
            manager.wake()
            witness.await_kind("statistics", n + 1)
            assert manager.stats().active_job_ids == (job_id,)
            if pause == 4:
                plan.raising.clear()
            clock.advance(pause)
        witness.await_kind("finished" if call == "mark_complete" else "pending")
        name = type(error).__qualname__ if isinstance(error, SystemExit) else "sqlite3.OperationalError"
        assert witness.texts("plan_failed")[0] == (
            f"FATAL: {call} of the plan raised for job 'job' ({job_id}): {name}: {error}. The job stays active, its outcome is kept, "
            "and Worker-1 tries again in 1 s"
        ).replace("Worker-1", witness.of("plan_failed")[0].worker)
        eventually(lambda: manager.stats().active_jobs == 0)
    assert ran == [1]
    assert plan.state(job_id) is (JobState.COMPLETE if call == "mark_complete" else JobState.PENDING)
    assert plan.result(job_id) == ("dear" if call == "mark_complete" else None)


def test_a_stop_waits_for_an_outcome_that_the_plan_does_not_take_and_tries_every_second() -> None:
    plan, clock = Troubled(), HandClock()
    plan.raising["mark_complete"] = LOCKED
    job_id = plan.add("job", lambda: "dear")
    with managed(plan, clock=clock) as (manager, witness):
        for n in range(1, 7):  # the next pause is 64 s
            witness.await_kind("plan_failed", n)
            clock.advance(2.0 ** (n - 1))
        witness.await_kind("plan_failed", 7)
        assert manager.stop(0) is False
        plan.raising.clear()
        clock.advance(1)
        witness.await_kind("finished")
        assert manager.stop()
    assert plan.result(job_id) == "dear"


def test_a_hanging_fetch_does_not_hold_up_a_stop() -> None:
    import threading

    class Hanging(Troubled):
        go_on = threading.Event()

        def fetch_ready(self) -> Any:
            self._called("fetch_ready")
            assert self.go_on.wait(30)
            return []

    plan = Hanging()
    with managed(plan) as (manager, witness):
        eventually(lambda: plan.calls["fetch_ready"])
        assert manager.stop(0.01) is False
        assert witness.texts("overdue") == ["FATAL: not stopped in time: the master, in a call of the plan"]
        plan.go_on.set()
        assert manager.stop()


def test_names_and_errors_of_any_kind_stay_on_one_line() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    def odd() -> None:
        raise Odd

    def lines() -> None:
        raise ValueError("one\ntwo\x1b[31m\udcff\0")

    async def later() -> None: ...

    plan = Troubled()
    ids = [plan.add("evil\n\x1b[2J'name", odd), plan.add("lines", lines), plan.add("later", later)]
    with managed(plan) as (_, witness):
        witness.await_kind("pending", 3)
    assert all(text.isprintable() for text in witness.texts())
    assert "no text" not in plan.error(ids[0])
    assert "gave a coroutine, which nobody runs; wrap it: lambda: asyncio.run(...)" in plan.error(ids[2])
    for job_id in ids:
        assert plan.error(job_id).encode("utf-8")
        assert "\0" not in plan.error(job_id)
