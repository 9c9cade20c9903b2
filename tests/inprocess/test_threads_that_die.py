"""Jobs that end their thread, that never end, or that come back twice: nothing is lost, and nothing runs twice at once."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from fusion.exceptions import JobTimeoutException
from fusion.inprocess import JobQueueManager, JobState, ManagerSettings, MemoryPlan, get_current_job
from tests.inprocess.hands import AT_ONCE, HandClock, Troubled, managed, threads
from tests.inprocess.test_manager import Gate, complete
from tests.inprocess.test_plans_that_raise import advance_until
from tests.kit.waiting import eventually


class Deadly(BaseException):
    """What no `except Exception` catches."""


@pytest.mark.parametrize("single", [True, False])
@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), Deadly("out")], ids=repr)
def test_a_job_that_ends_its_thread_is_pending_again_and_the_worker_replaced(error: BaseException, single: bool) -> None:
    plan, raising = MemoryPlan(), [error]

    def job() -> str:
        if raising:
            raise raising.pop()
        return "well"

    job_id = plan.add("deadly", job)
    with managed(plan, workers=1, worker_single_job_mode=single) as (manager, witness):
        (died,) = witness.await_kind("thread_died")
        assert died.text.startswith(f"FATAL: Worker-1 dies with job 'deadly' ({job_id}): ")
        assert type(error).__name__ in died.text
        witness.await_kind("pending")
        assert type(error).__name__ in plan.error(job_id)
        manager.wake()
        eventually(complete(plan, job_id))
        eventually(lambda: manager.stats().alive_workers == 1)


def strike(name: str) -> bool:
    """Throw an exception into a thread, as debuggers and some libraries do."""
    found = [thread.ident for thread in threading.enumerate() if thread.name == name and thread.ident]
    return bool(found) and ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(found[0]), ctypes.py_object(Deadly)) == 1


def test_a_worker_that_is_struck_between_jobs_is_replaced() -> None:
    plan, clock = MemoryPlan(), HandClock()
    with managed(plan, workers=1, clock=clock) as (manager, witness):
        eventually(lambda: manager.stats().alive_workers == 1)
        assert strike("Worker-1")
        clock.advance(1)  # it wakes, and meets the exception
        witness.await_kind("thread_died")
        job_id = plan.add("job", int)
        manager.wake()
        eventually(complete(plan, job_id))


def test_a_worker_killed_while_reporting_to_the_plan_is_replaced() -> None:
    class Slow(Troubled):
        told, go_on = threading.Event(), threading.Event()

        def mark_complete(self, job_id: Any, result: Any) -> None:
            self.told.set()
            while not self.go_on.is_set():
                time.sleep(0.001)
            super().mark_complete(job_id, result)

    plan, clock = Slow(), HandClock()
    job_id = plan.add("job", lambda: "dear")
    with managed(plan, workers=1, clock=clock) as (manager, witness):
        assert plan.told.wait(30)
        assert strike("Worker-1")
        witness.await_kind("plan_failed")  # caught where it told: it tells again
        plan.go_on.set()
        advance_until(clock, lambda: witness.of("finished"))
        eventually(lambda: manager.stats().active_jobs == 0)
    assert plan.result(job_id) == "dear"


def test_a_thread_that_vanishes_with_a_job_is_found_and_the_job_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, clock = MemoryPlan(), HandClock()
    killed: list[str] = []

    def vanish(manager: JobQueueManager) -> Callable[..., Any]:
        shared = manager._shared
        assert shared is not None
        leave = shared.leave

        def silent(thread: threading.Thread) -> None:
            if thread.name == "Worker-1" and not killed:
                killed.append(thread.name)  # without a goodbye
            else:
                leave(thread)

        return silent

    with managed(plan, workers=1, clock=clock) as (manager, witness):
        eventually(lambda: manager.stats().alive_workers == 1)
        monkeypatch.setattr(manager._shared, "leave", vanish(manager))
        monkeypatch.setattr(manager._shared.queue, "decide", lambda run, outcome: (_ for _ in ()).throw(Deadly()))  # type: ignore[union-attr]
        job_id = plan.add("job", int)
        manager.wake()
        witness.await_kind("thread_died")
        monkeypatch.undo()
        advance_until(clock, lambda: witness.of("pending"))
        assert plan.error(job_id) == "Worker-1, the thread that ran it, died"
        manager.wake()
        witness.await_kind("finished")


def test_a_job_that_checks_ends_at_its_timeout_without_a_fatal_line() -> None:
    plan, clock, began = MemoryPlan(), HandClock(), threading.Event()

    def job() -> None:
        current = get_current_job()
        assert current is not None
        began.set()
        while True:
            current.check()
            time.sleep(0.001)

    job_id = plan.add("long", job, timeout=30)
    with managed(plan, clock=clock) as (manager, witness):
        assert began.wait(30)
        clock.advance(29.9)
        time.sleep(0.01)
        assert plan.state(job_id) is JobState.ACTIVE
        clock.advance(0.1)
        witness.await_kind("pending")
        assert JobTimeoutException.__name__ in plan.error(job_id)
        assert witness.of("overdue") == witness.of("thread_died") == []
        eventually(lambda: manager.stats().alive_workers == 2)


def test_an_overdue_job_stays_active_until_its_thread_has_ended_and_another_worker_takes_its_place() -> None:
    plan, clock, hung = MemoryPlan(), HandClock(), Gate()
    job_id = plan.add("hung", hung, timeout=30)
    with managed(plan, workers=1, clock=clock) as (manager, witness):
        assert hung.entered.wait(30)
        clock.advance(40)
        (event,) = witness.await_kind("overdue")
        assert event.text == (
            f"FATAL: Worker-1 does not end job 'hung' ({job_id}), whose timeout is over. The job stays active until its thread ends"
        )
        eventually(lambda: manager.stats().alive_workers == 1)
        other = plan.add("other", int)
        manager.wake()
        eventually(complete(plan, other))
        assert {event.worker for event in witness.of("finished")} == {"Worker-2"}
        stats = manager.stats()
        assert (stats.active_job_ids, stats.overdue_job_ids, plan.state(job_id)) == ((job_id,), (job_id,), JobState.ACTIVE)
        hung.open.set()
        witness.await_kind("pending")
        assert plan.state(job_id) is JobState.PENDING
        assert plan.error(job_id) == "its timeout was over, and it had not ended"
        eventually(lambda: manager.stats().alive_workers == 1 and "Worker-1" not in threads())


class Lingering:
    """What a job leaves in its thread, and what takes its time to go."""

    def __init__(self, go: threading.Event) -> None:
        self.go = go

    def __del__(self) -> None:
        self.go.wait(30)


def test_a_thread_that_does_not_get_rid_of_its_locals_holds_up_nobody_else() -> None:
    plan, clock, local, go = MemoryPlan(), HandClock(), threading.local(), threading.Event()

    def leaves() -> None:
        local.kept = Lingering(go)

    first = plan.add("leaves", leaves)
    with managed(plan, workers=2, clock=clock) as (manager, witness):
        eventually(complete(plan, first))
        hung = Gate()
        plan.add("hung", hung, timeout=30)
        manager.wake()
        assert hung.entered.wait(30)
        clock.advance(40)
        witness.await_kind("overdue")
        go.set()
        hung.open.set()
        advance_until(clock, lambda: manager.stats().alive_workers == 2)


def test_there_are_at_most_twice_as_many_threads_as_workers() -> None:
    plan, clock, gates = MemoryPlan(), HandClock(), [Gate() for _ in range(8)]
    for n, gate in enumerate(gates):
        plan.add(f"hung {n}", gate, timeout=1)
    with managed(plan, workers=3, clock=clock, job_timeout_grace_seconds=0) as (manager, witness):
        eventually(lambda: sum(gate.entered.is_set() for gate in gates) == 3)
        clock.advance(1)
        witness.await_kind("overdue", 3)
        eventually(lambda: sum(gate.entered.is_set() for gate in gates) == 6)
        clock.advance(1)
        witness.await_kind("overdue", 6)
        stats = manager.stats()
        assert (stats.alive_workers, stats.active_jobs, stats.queue_size) == (0, 6, 2)
        assert len(threads() - {"Master", "Supervisor"}) == 6
        gates[0].open.set()  # one that ends makes room for one
        eventually(lambda: sum(gate.entered.is_set() for gate in gates) == 7)
        assert len(threads() - {"Master", "Supervisor"}) <= 6
        for gate in gates:
            gate.open.set()
        witness.await_kind("finished", 2)
        witness.await_kind("pending", 6)
        eventually(lambda: manager.stats().alive_workers == 3)


def test_a_job_that_ends_in_the_instant_of_its_timeout_has_one_outcome() -> None:
    plan, clock = Troubled(), HandClock()
    with managed(plan, workers=2, clock=clock, job_timeout_grace_seconds=0) as (manager, witness):
        for n in range(1, 101):
            gate = Gate()
            job_id = plan.add("close", plan.job(n, gate), job_id=n, timeout=1)
            manager.wake()
            assert gate.entered.wait(30)
            opener = threading.Thread(target=gate.open.set)
            opener.start()
            clock.advance(1)
            opener.join()
            eventually(lambda n=n: len(witness.of("finished")) + len(witness.of("pending")) == n)
            assert plan.forget(job_id)
        eventually(lambda: manager.stats().active_jobs == 0)
        assert plan.calls["mark_complete"] + plan.calls["mark_pending"] == 100
    assert plan.twice == []


def test_a_stop_reports_a_hung_job_and_a_new_start_does_not_run_it() -> None:
    plan, hung = Troubled(), Gate()
    job_id = plan.add("hung", plan.job(1, hung))
    with managed(plan, workers=1) as (manager, witness):
        assert hung.entered.wait(30)
        assert manager.stop(0.01) is False
        assert witness.texts("overdue") == [f"FATAL: not stopped in time: Worker-1 with job 'hung' ({job_id})"]
        manager.start()
        other = plan.add("other", int)
        manager.wake()
        eventually(complete(plan, other))
        assert manager.stats().active_job_ids == (job_id,)
        hung.open.set()
        eventually(complete(plan, job_id))
        eventually(lambda: manager.stats().active_jobs == 0)
        assert manager.stop()
        eventually(lambda: threads() == set())
    assert plan.twice == []
    assert plan.result(job_id) == "through"


@pytest.mark.parametrize("kind", ["fetched", "pulled", "finished", "throttled", "stopping"])
def test_a_stop_from_a_handler_returns_at_once_and_ends_all(kind: str) -> None:
    plan, answers = MemoryPlan(), list[bool]()
    plan.add("job", int)
    manager = JobQueueManager(
        plan, 2, settings=ManagerSettings(**AT_ONCE), memory_readers={"RAM": lambda: 99.0 if kind == "throttled" else 1.0}
    )

    @manager.on_event
    def stop(event: Any) -> None:
        if event.kind == kind:
            answers.append(manager.stop())

    manager.start()
    if kind == "stopping":
        assert manager.stop()
    eventually(lambda: answers)
    assert manager.stop()
    assert threads() == set()
    assert answers[0] is (kind == "stopping")


def test_a_job_may_stop_its_manager() -> None:
    plan, box = MemoryPlan(), list[JobQueueManager]()
    job_id = plan.add("stops", lambda: box[0].stop())
    with managed(plan) as (manager, witness):
        box.append(manager)
        witness.await_kind("finished")
        assert plan.result(job_id) is False
        assert manager.stop()


@pytest.mark.parametrize("error", [ValueError("bad handler"), SystemExit(1)], ids=repr)
def test_a_handler_that_raises_harms_nobody(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    plan, seen = MemoryPlan(), list[str]()
    ids = [plan.add("job", int) for _ in range(3)]
    with managed(plan) as (manager, _):

        @manager.on_event
        def bad(event: Any) -> None:
            raise error

        manager.on_event(lambda event: seen.append(event.kind))
        manager.wake()
        eventually(complete(plan, *ids))
        eventually(lambda: manager.stats().alive_workers == 2)
    assert "stopping" in seen
    assert "the handler of on_event raised at step stopping, and goes on being called" in caplog.text


def test_a_thread_that_the_system_refuses_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, clock, refused = MemoryPlan(), HandClock(), list[str]()
    start = threading.Thread.start

    def no_room(thread: threading.Thread) -> None:
        if thread.name == "Worker-2" and len(refused) < 3:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", no_room)
    with managed(plan, workers=3, clock=clock) as (manager, witness):
        advance_until(clock, lambda: manager.stats().alive_workers == 3)
        assert witness.texts("thread_died")[0] == (
            "FATAL: the supervisor could not go on, and tries again: RuntimeError: can't start new thread"
        )


FORKS = """
import os, sys, time
from fusion.inprocess import JobQueueManager, ManagerSettings, MemoryPlan

plan = MemoryPlan()
manager = JobQueueManager(plan, 4, settings=ManagerSettings(
    master_grace_period_seconds=0, worker_stagger_seconds=0, worker_cooldown_seconds=0), memory_readers={"RAM": lambda: 1.0})
told = []
manager.on_event(lambda event: told.append((event.kind, os.getpid())))

def forks(how):
    child = os.fork()
    if not child:
        if how == "returns": return "child"
        if how == "exits": sys.exit(7)
        if how == "raises": raise ValueError("in the child")
        # a manager of its own: nothing is left of the other one
        stats = manager.stats()
        assert (stats.active_jobs, stats.alive_workers, stats.master_thread_alive) == (0, 0, False), stats
        manager._plan = MemoryPlan()  # whose lock nobody held at the fork
        manager.start(); assert manager.stop(10); os._exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

ids = [plan.add(how, forks, how) for how in ("returns", "exits", "raises", "restarts")]
noise = [plan.add("noise", time.sleep, 0.001) for _ in range(200)]
manager.start()
while any(plan.state(i).value != "complete" for i in ids + noise): time.sleep(0.01)
assert manager.stop(10)
print([plan.result(i) for i in ids], len([1 for kind, pid in told if kind == "finished"]))
"""


def test_a_job_that_forks_has_one_outcome_and_a_child_that_begins_anew() -> None:
    found = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKS], capture_output=True, text=True, timeout=60)
    assert (found.stdout, found.returncode) == ("[0, 7, 1, 9] 204\n", 0), found.stderr


SIGNALLED = """
import signal, sys, threading
from fusion.inprocess import JobQueueManager, ManagerSettings, MemoryPlan

plan = MemoryPlan()
manager = JobQueueManager(plan, 4, settings=ManagerSettings(
    master_grace_period_seconds=0, worker_stagger_seconds=0, worker_cooldown_seconds=0), memory_readers={"RAM": lambda: 1.0})
def end(*_):
    manager.stop(0)
    sys.exit()

signal.signal(signal.SIGTERM, end)
manager.start()
print("ready", flush=True)
try:
    while True:  # mostly with the lock held
        manager.stats(); plan.add("job", int); manager.wake()
finally:
    print(manager.stop(20), flush=True)
"""


def test_a_signal_handler_may_stop_it_wherever_the_main_thread_is() -> None:
    process = subprocess.Popen([sys.executable, "-c", SIGNALLED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        os.kill(process.pid, signal.SIGTERM)
        assert process.stdout.readline() == "True\n"
        assert process.wait(30) == 0
