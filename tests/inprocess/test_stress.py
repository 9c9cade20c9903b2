"""A hundred workers, jobs that raise and kill their threads, memory that comes and goes, and a plan that raises in every call."""

from __future__ import annotations

import random
import threading
from itertools import cycle
from typing import Any

import pytest

from fusion.inprocess import JobState, Stats
from tests.inprocess.hands import Troubled, managed, threads
from tests.kit.length import long_case, soaked
from tests.kit.waiting import eventually

MANY = soaked(3_000, 10_000)


class Unreliable(Troubled):
    """Every call raises now and then: before it has done its work, or after that."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = random.Random(seed)
        self.storm = True

    def _do(self, call: Any, *values: Any) -> Any:
        fails, first = self.storm and self._dice.random() < 0.01, self._dice.random() < 0.5
        if fails and first:
            raise OSError("before")
        found = call(*values)
        if fails:
            raise SystemExit("after") if self._dice.random() < 0.2 else OSError("after")
        return found

    def fetch_ready(self) -> Any:
        return self._do(super().fetch_ready)

    def is_currently_running(self, job_id: Any) -> bool:
        return super().is_currently_running(job_id)

    def mark_running(self, job_id: Any) -> bool:
        return bool(self._do(super().mark_running, job_id))

    def mark_complete(self, job_id: Any, result: Any) -> None:
        self._do(super().mark_complete, job_id, result)

    def mark_pending(self, job_id: Any, error: str) -> None:
        self._do(super().mark_pending, job_id, error)


class Deadly(BaseException):
    pass


def check(stats: Stats, total: int) -> None:
    assert stats.queue_size == len(stats.queued_job_ids) == len(set(stats.queued_job_ids))
    assert stats.active_jobs == len(stats.active_job_ids) == len(set(stats.active_job_ids))
    assert not set(stats.active_job_ids) & set(stats.queued_job_ids)
    assert set(stats.overdue_job_ids) <= set(stats.active_job_ids)
    assert 0 <= stats.alive_workers <= stats.total_workers == total
    assert stats.active_jobs <= 2 * total


@pytest.mark.parametrize(
    ("workers", "jobs", "single"), [(20, 400, True), long_case(100, MANY, True), long_case(100, MANY, False)]
)
@pytest.mark.timeout(300)
def test_no_job_is_lost_and_none_runs_twice_at_once(workers: int, jobs: int, single: bool) -> None:
    plan, dice, ram, ran = Unreliable(7), random.Random(42), cycle([95.0, 85.0, 79.0, 10.0, 10.0]), [0] * jobs

    def job(n: int) -> int:
        ran[n] += 1
        fate = dice.random()
        if fate < 0.05:
            raise ValueError("now and then")
        if fate < 0.07:
            raise Deadly
        return n

    for n in range(jobs):
        plan.add(f"job {n}", plan.job(n, lambda n=n: job(n)), job_id=n)
    done, wrong = threading.Event(), list[BaseException]()
    settings = {"memory_check_interval": 0.1, "worker_single_job_mode": single, "master_fetch_interval_seconds": 0.2}
    with managed(plan, workers, ram=lambda: next(ram) if plan.storm else 10.0, **settings) as (manager, witness):

        def watch() -> None:
            try:
                while not done.wait(0.001):
                    check(manager.stats(), workers)
            except BaseException as error:
                wrong.append(error)

        watcher = threading.Thread(target=watch)
        watcher.start()

        def all_complete() -> bool:
            manager.wake()
            return all(plan.state(n) is JobState.COMPLETE for n in range(jobs))

        eventually(all_complete, timeout=240, interval=0.05)
        plan.storm = False
        eventually(lambda: manager.stats().active_jobs == 0)
        eventually(lambda: manager.stats().alive_workers == workers)
        done.set()
        watcher.join()
    assert wrong == []
    assert plan.twice == []
    assert [plan.result(n) for n in range(jobs)] == list(range(jobs))
    assert min(ran) >= 1
    assert len(witness.of("finished")) == jobs  # and so none after it was complete
    assert threads() == set()
    assert {"thread_died", "plan_failed", "throttled", "released", "pending"} <= {event.kind for event in witness.events}
