"""A manager from start to stop: the lines it logs, its times, its workers, its figures."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any
from weakref import WeakSet

import pytest

from fusion.inprocess import JobQueueManager, JobState, ManagerSettings, MemoryPlan, get_current_job
from fusion.inprocess.manager import usual_workers
from tests.inprocess.hands import HandClock, Troubled, managed, threads
from tests.kit.waiting import eventually


def complete(plan: MemoryPlan, *ids: Any) -> Callable[[], bool]:
    return lambda: all(plan.state(job_id) is JobState.COMPLETE for job_id in ids)


class Gate:
    """A job that says that it runs, and goes on when told."""

    def __init__(self) -> None:
        self.entered, self.open = threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.entered.set()
        assert self.open.wait(30)
        return "through"


def test_jobs_run_and_their_results_are_kept() -> None:
    plan = MemoryPlan()
    ids = [plan.add(f"square {n}", pow, n, 2) for n in range(20)]
    with managed(plan, workers=4) as (_, witness):
        eventually(complete(plan, *ids))
        witness.await_kind("finished", 20)
    assert [plan.result(job_id) for job_id in ids] == [n * n for n in range(20)]
    assert threads() == set()


def test_the_lines_of_the_log_word_for_word(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "fusion.inprocess")
    plan, clock, gate, ram = MemoryPlan(), HandClock(), Gate(), [10.0]
    plan.add("render", gate)
    plan.add("next", int)
    with managed(plan, workers=1, clock=clock, ram=lambda: ram[0]) as (manager, witness):
        assert gate.entered.wait(30)
        manager.wake()
        witness.await_kind("statistics", 2)
        ram[0] = 92.14
        clock.advance(5)
        witness.await_kind("throttled")
        ram[0] = 70
        clock.advance(5)
        witness.await_kind("released")
        gate.open.set()
        witness.await_kind("finished", 2)
    said = [record.getMessage() for record in caplog.records if record.name == "fusion.inprocess"]
    assert sorted(said[:5]) == [
        "👑 Master fetched 2 jobs from database",
        "👷 Worker-1 pulled job from queue",
        "📊 2 queued, 0 active" if "📊 2 queued, 0 active" in said else "📊 1 queued, 1 active",
        "📥 Added job 'next' to queue",
        "📥 Added job 'render' to queue",
    ]
    assert said[5:12] == [
        "👑 Master fetched 1 jobs from database",
        "Job 'next' already in queue",
        "📊 1 queued, 1 active; 1 already in queue",
        "🚨 MEMORY THROTTLE ACTIVE: RAM at 92.1%",
        "✅ MEMORY THROTTLE RELEASED",
        "✅ Worker-1 finished job",
        "👷 Worker-1 pulled job from queue",
    ]


def test_the_master_fetches_after_the_grace_period_then_every_minute_and_when_woken() -> None:
    plan, clock = Troubled(), HandClock()
    with managed(plan, clock=clock, master_grace_period_seconds=15) as (manager, witness):
        eventually(lambda: manager.stats().master_thread_alive)
        manager.wake()
        clock.advance(14.9)
        eventually(lambda: manager.stats().alive_workers == 2)
        assert plan.calls["fetch_ready"] == 0
        clock.advance(0.1)
        witness.await_kind("statistics")
        clock.advance(59.9)
        assert plan.calls["fetch_ready"] == 1
        clock.advance(0.1)
        witness.await_kind("statistics", 2)
        manager.wake()
        witness.await_kind("statistics", 3)
        assert plan.calls["fetch_ready"] == 3


def test_a_wake_while_a_fetch_runs_is_followed_by_another() -> None:
    plan, gate = Troubled(), Gate()
    fetch, plan.fetch_ready = plan.fetch_ready, lambda: (gate(), fetch())[1]  # type: ignore[method-assign]
    with managed(plan) as (manager, witness):
        assert gate.entered.wait(30)
        manager.wake()
        gate.open.set()
        witness.await_kind("statistics", 2)


def test_workers_start_one_by_one_and_rest_between_jobs() -> None:
    plan, clock = MemoryPlan(), HandClock()
    with managed(plan, workers=3, clock=clock, worker_stagger_seconds=1, worker_cooldown_seconds=10) as (manager, witness):
        for alive in (1, 2, 3):
            eventually(lambda alive=alive: manager.stats().alive_workers == alive)
            clock.advance(0.9)
            assert manager.stats().alive_workers == alive
            clock.advance(0.1)
        for n in range(6):
            plan.add(f"job {n}", int)
        manager.wake()
        witness.await_kind("finished", 3)
        eventually(lambda: manager.stats().alive_workers == 3)
        clock.advance(9.9)
        assert manager.stats().queue_size == 3
        clock.advance(0.1)
        witness.await_kind("finished", 6)


@pytest.mark.parametrize(("single", "count"), [(True, 5), (False, 1)])
def test_in_single_job_mode_each_job_has_a_thread_of_its_own(single: bool, count: int) -> None:
    plan, seen = MemoryPlan(), set[threading.Thread]()
    ids = [plan.add("look", lambda: seen.add(threading.current_thread())) for _ in range(5)]
    with managed(plan, workers=1, worker_single_job_mode=single):
        eventually(complete(plan, *ids))
    assert len(seen) == count
    assert {thread.name for thread in seen} == {"Worker-1"}


class Kept:
    """What a job leaves behind in its thread."""


def leaves_behind(jobs: int) -> None:
    plan, local, kept = MemoryPlan(), threading.local(), WeakSet[Kept]()

    def job() -> bool:
        clean = not hasattr(local, "kept")
        local.kept = Kept()
        kept.add(local.kept)
        return clean

    ids = [plan.add("leaves", job) for _ in range(jobs)]
    with managed(plan, workers=10) as (manager, _):
        eventually(complete(plan, *ids), timeout=120)
        eventually(lambda: not kept)
        eventually(lambda: manager.stats().alive_workers == 10)
    assert all(plan.result(job_id) for job_id in ids)


def test_single_job_mode_leaves_no_thread_local() -> None:
    leaves_behind(200)


@pytest.mark.long
def test_single_job_mode_leaves_no_thread_local_of_ten_thousand_jobs() -> None:
    leaves_behind(10_000)


def test_no_context_variable_passes_from_job_to_job() -> None:
    plan, variable = MemoryPlan(), ContextVar("variable", default="clean")

    def job() -> str:
        found = variable.get()
        variable.set("dirty")
        return found

    ids = [plan.add("job", job) for _ in range(3)]
    with managed(plan, workers=1, worker_single_job_mode=False):
        eventually(complete(plan, *ids))
    assert [plan.result(job_id) for job_id in ids] == ["clean"] * 3


def test_a_job_knows_itself() -> None:
    plan = MemoryPlan()

    def job() -> tuple[Any, ...]:
        current = get_current_job()
        assert current is not None
        current.check()
        assert current.remaining is not None
        return current.id, current.name, current.stopping, 50 < current.remaining <= 60

    job_id = plan.add("self", job, timeout=60)
    with managed(plan):
        eventually(complete(plan, job_id))
    assert plan.result(job_id) == (job_id, "self", False, True)
    assert get_current_job() is None


def test_stats_while_jobs_wait_and_run() -> None:
    plan, gate = MemoryPlan(), Gate()
    for job_id in ("a", "b", "c"):
        plan.add(job_id, gate, job_id=job_id)
    with managed(plan, workers=1) as (manager, _):
        assert gate.entered.wait(30)
        stats = eventually(lambda: found if (found := manager.stats()).queue_size == 2 else None)
        assert stats is not None
        assert (stats.active_jobs, stats.active_job_ids, stats.queued_job_ids) == (1, ("a",), ("b", "c"))
        assert (stats.total_workers, stats.alive_workers, stats.master_thread_alive) == (1, 1, True)
        assert (stats.overdue_job_ids, stats.throttled) == ((), "")
        gate.open.set()
        eventually(complete(plan, "a", "b", "c"))
    stats = manager.stats()
    assert (stats.alive_workers, stats.master_thread_alive, stats.active_jobs) == (0, False, 0)


def test_jobs_run_or_claimed_by_others_are_left_to_them() -> None:
    class Shared(MemoryPlan):
        def is_currently_running(self, job_id: Any) -> bool:
            return bool(job_id == "running elsewhere")

        def mark_running(self, job_id: Any) -> bool:
            return job_id != "claimed elsewhere" and super().mark_running(job_id)

    plan, ran = Shared(), list[str]()
    for job_id in ("running elsewhere", "claimed elsewhere", "mine"):
        plan.add(job_id, partial(ran.append, job_id), job_id=job_id)
    with managed(plan) as (manager, witness):
        witness.await_kind("finished")
        witness.await_kind("left")
        assert [event.job_id for event in witness.of("queued")] == ["claimed elsewhere", "mine"]
        assert witness.texts("duplicate") == ["Job 'running elsewhere' already running"]
        eventually(lambda: manager.stats().active_jobs == 0)
    assert ran == ["mine"]


def test_memory_that_is_scarce_stops_master_and_workers_until_it_is_not() -> None:
    plan, clock, ram, gate = Troubled(), HandClock(), [95.0], Gate()
    plan.add("first", gate, job_id=1)
    with managed(plan, clock=clock, ram=lambda: ram[0]) as (manager, witness):
        witness.await_kind("throttled")
        eventually(lambda: manager.stats().alive_workers == 2)
        manager.wake()
        clock.advance(600)
        assert plan.calls["fetch_ready"] == 0
        assert manager.stats().throttled == "RAM 95.0 %"
        ram[0] = 80.0
        clock.advance(5)
        assert gate.entered.wait(30)  # both go on: fetched, and pulled
        ram[0] = 91.0
        clock.advance(5)
        witness.await_kind("throttled", 2)
        plan.add("second", int, job_id=2)
        gate.open.set()
        witness.await_kind("finished")  # what runs goes on
        manager.wake()
        clock.advance(5)
        assert manager.stats().queue_size == 0
        ram[0] = 79.0
        clock.advance(5)
        witness.await_kind("finished", 2)


def test_workers_pull_nothing_of_what_is_queued_while_memory_is_scarce() -> None:
    plan, clock, ram, gate = MemoryPlan(), HandClock(), [10.0], Gate()
    for job_id in (1, 2):
        plan.add(f"job {job_id}", gate, job_id=job_id)
    with managed(plan, workers=1, clock=clock, ram=lambda: ram[0]) as (manager, witness):
        assert gate.entered.wait(30)
        ram[0] = 99.0
        clock.advance(5)
        witness.await_kind("throttled")
        gate.open.set()
        witness.await_kind("finished")
        clock.advance(60)
        assert manager.stats().queued_job_ids == (2,)
        ram[0] = 10.0
        clock.advance(5)
        witness.await_kind("finished", 2)


def test_each_kind_of_memory_is_named() -> None:
    manager = JobQueueManager(
        MemoryPlan(),
        1,
        memory_readers={"RAM": lambda: 90.0, "swap": lambda: 71.26, "GPU": lambda: 85.0},
        settings=ManagerSettings(),
    )
    said: list[str] = []
    manager.on_event(lambda event: said.append(event.text) if event.kind == "throttled" else None)
    with manager:
        eventually(lambda: said)
    assert said == ["🚨 MEMORY THROTTLE ACTIVE: RAM at 90.0%, Swap at 71.3%, GPU at 85.0%"]


def test_memory_that_can_not_be_read_counts_as_free() -> None:
    def broken() -> float:
        raise OSError("no such driver")

    plan = MemoryPlan()
    job_id = plan.add("job", int)
    with managed(plan, ram=broken):
        eventually(complete(plan, job_id))


def test_start_and_stop_are_safe_to_repeat_and_leave_no_thread() -> None:
    plan = MemoryPlan()
    with managed(plan, workers=3) as (manager, _):
        for n in range(100):
            manager.start()
            manager.start()
            if n % 10 == 0:  # also with all that there is
                job_id = plan.add("job", int)
                manager.wake()
                eventually(complete(plan, job_id))
            assert manager.stop()
            assert manager.stop()
            assert threads() == set()


def test_a_stop_lets_jobs_finish_and_leaves_those_that_wait() -> None:
    plan, gate = MemoryPlan(), Gate()
    for job_id in (1, 2):
        plan.add(f"job {job_id}", gate, job_id=job_id)
    with managed(plan, workers=1) as (manager, witness):
        assert gate.entered.wait(30)
        eventually(lambda: manager.stats().queue_size == 1)
        stopper = threading.Thread(target=manager.stop)
        stopper.start()
        witness.await_kind("stopping")
        gate.open.set()
        stopper.join(30)
        assert not stopper.is_alive()
    assert (plan.state(1), plan.state(2)) == (JobState.COMPLETE, JobState.PENDING)
    assert witness.texts("stopping") == ["Stopping: 1 jobs are active, 1 queued ones stay Pending"]


def test_a_job_learns_that_its_manager_wants_to_stop() -> None:
    plan, began = MemoryPlan(), threading.Event()

    def patient() -> None:
        current = get_current_job()
        assert current is not None
        began.set()
        while not current.stopping:
            threading.Event().wait(0.005)
        raise RuntimeError("the rest is for later")

    job_id = plan.add("patient", patient)
    with managed(plan) as (manager, _):
        assert began.wait(30)
        assert manager.stop()
    assert plan.state(job_id) is JobState.PENDING
    assert plan.error(job_id).endswith("RuntimeError: the rest is for later\n")


def test_workers_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for cpus, workers in ((1, 10), (11, 10), (12, 10), (20, 18), (64, 57)):
        monkeypatch.setattr("fusion.inprocess.manager.cpus", lambda cpus=cpus: cpus)
        assert usual_workers() == workers
        assert JobQueueManager(MemoryPlan()).stats().total_workers == workers


@pytest.mark.parametrize("workers", [0, -1, 2.5, "4", True])
def test_an_invalid_number_of_workers_is_refused(workers: Any) -> None:
    with pytest.raises(ValueError, match="use a whole number from 1 on, or None for"):
        JobQueueManager(MemoryPlan(), workers)


def test_it_needs_no_redis() -> None:
    code = "import sys, fusion.inprocess; print([name for name in sys.modules if name.partition('.')[0] in (%r)])"
    heavy = ("redis", "hiredis", "valkey", "asyncio", "click", "croniter", "psutil", "sqlite3")
    found = subprocess.run([sys.executable, "-c", code % (heavy,)], capture_output=True, text=True, env={**os.environ})
    assert (found.stdout, found.stderr) == ("[]\n", "")
