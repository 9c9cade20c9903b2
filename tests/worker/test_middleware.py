"""Hooks around jobs, in real workers of each executor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Job, Queue, Retry
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import events_of
from tests.kit.length import long_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import Workers

EXECUTORS = ["process", "pool", "thread", "asyncio"]
#: Two in `make test`, the others, which share most of their ways, in `make test-long`.
MOSTLY_LONG = ["process", "asyncio", long_case("pool", id="pool"), long_case("thread", id="thread")]
ENDED = {"finished", "failed", "stopped"}


class Hooked:
    """A worker with hooks, and what they noted."""

    def __init__(self, workers: Workers, conn: redis.Redis, notes: Path, executor: str, **env: str) -> None:
        self._workers, self._executor, self.notes = workers, executor, notes
        self.env = {
            "FUSION_TASKS": "tests.jobs.hooked",
            "FUSION_MIDDLEWARE": "tests.jobs.hooked.Outer",
            "HOOKED_NOTES": str(notes),
            "FUSION_TIMEOUT_GRACE": "0.5",
            **env,
        }
        self.queue = Queue("h", conn)

    def start(self) -> Any:
        return self._workers.start("h", "--executor", self._executor, env=self.env)

    def burst(self) -> Any:
        return self._workers.burst("h", "--executor", self._executor, env=self.env)

    def job(self, task: str, *args: Any, hook: str = "", **options: Any) -> Job:
        options.setdefault("retry", Retry(0))
        return self.queue.enqueue_call(f"tests.jobs.hooked.{task}", args, meta={"hook": hook}, **options)

    def noted(self, job: Job) -> list[str]:
        rows = [line.rsplit(" ", 1) for line in self.notes.read_text().splitlines()]
        return [what for what, whose in rows if whose == job.id]


@pytest.fixture
def hooked(workers: Workers, conn: redis.Redis, tmp_path: Path) -> Callable[..., Hooked]:
    return lambda executor, **env: Hooked(workers, conn, tmp_path / "notes", executor, **env)


@pytest.mark.parametrize("executor", MOSTLY_LONG)
def test_each_hook_is_called_and_none_changes_how_a_job_ends(
    hooked: Callable[..., Hooked], conn: redis.Redis, executor: str
) -> None:
    """The outer one swallows errors, the inner one suppresses them: the job's they are all the same."""
    rig = hooked(executor)
    coroutines = executor == "asyncio"
    fine = rig.job("awaited" if coroutines else "fine", "x")
    plain = rig.job("fine", "y", hook="none")
    failed = rig.job("raises_awaited" if coroutines else "raises")
    again = rig.job("raises", retry=Retry(1, interval=0.01))
    later = rig.job("later")
    before = rig.job("fine", hook="before_raises")
    before_again = rig.job("fine", hook="before_raises", retry=Retry(1, interval=0.01))
    after = rig.job("awaited" if coroutines else "fine", hook="after_raises")
    after_failed = rig.job("raises", hook="after_raises")
    on_failure = rig.job("raises", hook="on_failure")
    missing = rig.job("raises_not_there")
    unread = rig.queue.enqueue("tests.jobs.hooked.fine", job_id="unread", retry=Retry(0))
    data = b'["tests.jobs.hooked.fine",null,[{"__fusion__":["decimal","x"]}],{}]'
    conn.hset(f"rq:job:{unread.id}", "data", data)
    rig.start()
    jobs = [fine, plain, failed, again, later, before, before_again, after, after_failed, on_failure, unread]
    eventually(lambda: all(status_of(conn, one.id) in ENDED for one in jobs), why="all have ended")

    one = f"{'awaited' if coroutines else 'fine'}"
    assert rig.noted(fine) == [f"outer.before:{one}", "inner.before", "inner.after:None", "outer.value:x"]
    assert rig.noted(plain) == ["outer.before:fine", "outer.value:y"]
    failing = ["inner.before", "inner.after:ValueError", "outer.error:ValueError"]
    assert rig.noted(failed)[1:] == [*failing, "on_failure:ValueError"]
    assert rig.noted(again)[1:4] == failing and rig.noted(again)[4::5] == ["on_retry:ValueError", "on_failure:ValueError"]
    assert rig.noted(later)[3:5] == ["outer.value:Retry(max=1,", "on_retry:RetryLater"] or "on_retry:RetryLater" in rig.noted(
        later
    )
    assert rig.noted(before) == ["outer.before:fine", "outer.error:LookupError", "on_failure:LookupError"]
    assert rig.noted(before_again)[2::3] == ["on_retry:LookupError", "on_failure:LookupError"]
    assert rig.noted(unread) == ["outer.before:fine", "inner.before", "inner.after:DeserializationError", *rig.noted(unread)[3:]]
    assert rig.noted(unread)[3:] == ["outer.error:DeserializationError", "on_failure:DeserializationError"]
    assert rig.noted(missing) == []

    assert [Job.fetch(one.id, conn).result for one in (fine, plain, later, after)] == ["x", "y", "then", 7]
    assert {field(conn, one.id, "callback_error") for one in (fine, plain, failed, again, before)} == {""}
    for one in (failed, again, after_failed, on_failure):
        assert field(conn, one.id, "reason") == "ValueError: the task's own", one
        assert "hooked.py" in field(conn, one.id, "exc_info") and "fusion/execution" not in field(conn, one.id, "exc_info")
    named = "raised by around_job of tests.jobs.hooked.Inner"
    assert field(conn, before.id, "reason") == f"LookupError: before_raises ({named})"
    assert f"{named}, before the task" in field(conn, before.id, "exc_info")
    assert field(conn, before.id, "error_class") == "builtins.LookupError"
    raised = "around_job of tests.jobs.hooked.Inner: LookupError: after_raises"
    assert field(conn, after.id, "callback_error") == raised == field(conn, after_failed.id, "callback_error")
    assert "on_failure of tests.jobs.hooked.Inner: LookupError" in field(conn, on_failure.id, "callback_error")
    assert "LookupError" in [event.get("callback_error") for event in events_of(conn, after.id)]
    check_conservation(conn, [job.id for job in (*jobs, missing)])


@pytest.mark.long
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_stop_and_a_timeout_end_a_job_with_hooks_as_one_without(
    hooked: Callable[..., Hooked], conn: redis.Redis, executor: str
) -> None:
    rig = hooked(executor)
    rig.start()
    stopped = rig.job("naps")
    eventually(lambda: "naps" in ((rig.notes.exists() and rig.noted(stopped)) or ()), why="it naps")
    stopped.stop()
    late = rig.job("naps", job_timeout=0.5)
    early = rig.job("fine", hook="before_hangs", job_timeout=0.5)
    eventually(lambda: all(status_of(conn, one.id) in ENDED for one in (stopped, late, early)), why="all have ended")
    assert status_of(conn, stopped.id) == "stopped"
    assert rig.noted(stopped)[-3:] == ["inner.after:JobStopped", "outer.error:JobStopped", "on_stopped"]
    timeout = "fusion.exceptions.JobTimeoutException"
    assert [field(conn, one.id, "error_class") for one in (late, early)] == [timeout, timeout]
    assert rig.noted(late)[-2:] == ["outer.error:JobTimeoutException", "on_failure:JobTimeoutException"]
    check_conservation(conn, [stopped.id, late.id, early.id])


@pytest.mark.long
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_process_that_dies_in_a_hook_is_a_process_that_died(
    hooked: Callable[..., Hooked], conn: redis.Redis, executor: str
) -> None:
    """Before the task, as one that dies in it; after it the outcome stands already."""
    rig = hooked(executor)
    rig.start()
    for hook, status, error in (("before_dies", "failed", "fusion.exceptions.JobLost"), ("after_dies", "finished", "")):
        job = rig.job("fine", hook=hook, on_lost="fail")
        eventually(lambda: status_of(conn, job.id) == status, why=hook)  # noqa: B023
        assert field(conn, job.id, "error_class") == error
        again = rig.job("fine")
        eventually(lambda: status_of(conn, again.id) == "finished", why="the next one runs")  # noqa: B023
        check_conservation(conn, [job.id, again.id])


@pytest.mark.long
@pytest.mark.parametrize("executor", EXECUTORS)
def test_jobs_that_share_a_call_have_each_their_own(hooked: Callable[..., Hooked], conn: redis.Redis, executor: str) -> None:
    rig = hooked(executor)
    jobs = [rig.queue.enqueue_call(_together(), (n,), retry=Retry(0)) for n in (1, "no", 3)]
    refused = rig.queue.enqueue_call(_together(), (4,), retry=Retry(0), meta={"hook": "before_raises"})
    rig.burst()
    assert [status_of(conn, job.id) for job in (*jobs, refused)] == ["finished", "failed", "finished", "failed"]
    assert rig.noted(jobs[0]) == ["outer.before:together", "inner.before", "together:3", "inner.after:None", "outer.value:1"]
    assert rig.noted(jobs[1])[3:] == ["inner.after:ValueError", "outer.error:ValueError", "on_failure:ValueError"]
    assert rig.noted(refused) == ["outer.before:together", "outer.error:LookupError", "on_failure:LookupError"]
    check_conservation(conn, [job.id for job in (*jobs, refused)])


def _together() -> Any:
    from tests.jobs import hooked

    return hooked.together


@pytest.mark.long
@pytest.mark.parametrize("executor", ["process", "thread"])
def test_hooks_after_the_task_have_time_of_their_own(hooked: Callable[..., Hooked], conn: redis.Redis, executor: str) -> None:
    """Longer than the job's timeout and its grace."""
    rig = hooked(executor)
    job = rig.job("fine", hook="after_waits", job_timeout=0.5)
    rig.burst()
    assert status_of(conn, job.id) == "finished"
    assert field(conn, job.id, "callback_error") == ""


def test_middleware_of_the_settings_that_is_not_there_keeps_a_worker_from_its_jobs(
    hooked: Callable[..., Hooked], conn: redis.Redis
) -> None:
    rig = hooked("process", FUSION_MIDDLEWARE="tests.jobs.hooked.Nobody")
    job = rig.job("fine")
    worker = rig._workers.burst("h", env=rig.env, code=1)
    assert "tests.jobs.hooked.Nobody" in worker.output and "Nobody" in worker.output
    assert status_of(conn, job.id) == "queued"
