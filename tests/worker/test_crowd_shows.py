"""Fifty jobs in one process, and what one of them, or somebody outside, may do to the others."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Job, Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import events_of
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, runs_of, status_of
from tests.kit.workers import Workers

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]
MANY = 50
#: Of those who died among others nobody is charged.
CHARGED = ("attempts", "lost")


class Crowd:
    """A worker of one process with room for all, which takes them at once."""

    def __init__(self, workers: Workers, conn: redis.Redis, seen: Path, executor: str) -> None:
        self.conn, self.seen, self.queue = conn, seen, Queue("c", conn)
        self._workers, self._prefix = workers, "" if executor == "asyncio" else "plain_"
        self._args = ("--executor", executor, "--threads" if executor == "thread" else "--concurrency", str(MANY))
        self.jobs: list[Job] = []

    def enqueue(self, task: str, *args: Any, **options: Any) -> Job:
        self.jobs.append(self.queue.enqueue_call(f"tests.jobs.crowd.{self._prefix}{task}", (str(self.seen), *args), **options))
        return self.jobs[-1]

    def start(self) -> None:
        env = {"FUSION_TASKS": "tests.jobs.crowd", "FUSION_TIMEOUT_GRACE": "0.5", "FUSION_MAX_LOST": "2"}
        self._workers.start("c", *self._args, "--disable-job-desc-logging", env=env)
        eventually(lambda: len(runs_of(self.seen, "begun")) >= len(self.jobs), 20, why="all have begun")
        assert len(set(runs_of(self.seen, "begun"))) == 1, "in one process"

    def end(self, jobs: list[Job], status: str, seconds: float = 60.0) -> None:
        eventually(lambda: {status_of(self.conn, job.id) for job in jobs} == {status}, seconds, why=f"all are {status}")

    def charged(self, jobs: list[Job]) -> set[str]:
        return {field(self.conn, job.id, name) for job in jobs for name in CHARGED} - {"", "0"}


@pytest.fixture(params=["asyncio", "thread"])
def crowd(request: pytest.FixtureRequest, workers: Workers, conn: redis.Redis, tmp_path: Path) -> Crowd:
    return Crowd(workers, conn, tmp_path / "seen", request.param)


@pytest.mark.parametrize(("task", "told"), [("dies", "killed by SIGSEGV"), ("kills_itself", "poison pill")])
def test_one_of_fifty_takes_its_process_down_each_time_and_the_others_finish(crowd: Crowd, task: str, told: str) -> None:
    others = [crowd.enqueue("naps_once", 2.0) for _ in range(MANY - 1)]
    wild = crowd.enqueue(task, 1.0)
    crowd.start()
    crowd.end([wild], "failed")
    assert told in field(crowd.conn, wild.id, "reason")
    crowd.end(others, "finished", 120)
    assert crowd.charged(others) == set()
    check_conservation(crowd.conn, [job.id for job in crowd.jobs])


def test_a_process_of_fifty_that_is_killed_from_outside_costs_nobody_an_attempt_or_a_life(crowd: Crowd) -> None:
    jobs = [crowd.enqueue("naps_once", 2.0) for _ in range(MANY)]
    crowd.start()
    os.kill(runs_of(crowd.seen, "begun")[0], signal.SIGKILL)
    crowd.end(jobs, "finished", 120)
    assert crowd.charged(jobs) == set()
    assert all(len(runs_of(crowd.seen, "begun", job.id)) == 2 for job in jobs), "each has run again, once"
    assert all(len(runs_of(crowd.seen, "ended", job.id)) == 1 for job in jobs)
    check_conservation(crowd.conn, [job.id for job in jobs])


def test_a_hard_timeout_beside_jobs_that_need_five_seconds_more_has_none_of_them_run_twice(crowd: Crowd) -> None:
    late = crowd.enqueue("swallows", timeout=1)
    others = [crowd.enqueue("nap", 6.5) for _ in range(MANY - 1)]
    crowd.start()
    crowd.end([late], "failed", 30)
    assert "did not end within its timeout of 1 s plus 0.5 s grace and was killed" in field(crowd.conn, late.id, "reason")
    crowd.end(others, "finished", 10)
    assert len(runs_of(crowd.seen, "begun")) == len(runs_of(crowd.seen, "ended")) + 1 == MANY
    assert not any(event["event"] in ("displaced", "abandoned") for event in events_of(crowd.conn))
    check_conservation(crowd.conn, [job.id for job in crowd.jobs])
