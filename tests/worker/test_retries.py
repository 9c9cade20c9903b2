"""Retries through a real worker: what is tried again, when, and what the job remembers of it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import redis

from fusion import Job, Queue, Retry
from fusion.status import JobStatus
from tests.faults.rig.conservation import check_conservation
from tests.jobs import retrying
from tests.kit.length import long_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import lines
from tests.kit.workers import Workers, process_per_job

ENV = {"FUSION_TASKS": "tests.jobs.retrying"}
RETRIED = [
    "requests.ConnectTimeout", "requests.ConnectionError", "requests.ReadTimeout", "requests.SSLError", "ConnectionError",
    "TimeoutError", "Refused", "ClientError", "Throttling",
]  # fmt: skip
FINAL = ["ValueError", "OSError", "requests.HTTPError", "KeyboardInterrupt", "SystemExit"]


def now(conn: redis.Redis) -> float:
    seconds, micros = conn.time()
    return float(seconds) + float(micros) / 1e6


@pytest.mark.long
def test_the_table(workers: Workers, conn: redis.Redis) -> None:
    """Every class of the default policy and some below them; due within 120 to 150 s. Anything else fails at once."""
    before = now(conn)
    jobs = {name: Queue("r").enqueue(retrying.raising, name) for name in [*RETRIED, *FINAL]}
    workers.burst("r", env=ENV)
    after = now(conn)
    for name in RETRIED:
        job = Job.fetch(jobs[name].id)
        assert (job.get_status(), job.retry_count, job.attempts) == (JobStatus.SCHEDULED, 8, 1), name
        due = conn.zscore("rq:scheduler:scheduled_jobs", job.id)
        assert due is not None
        assert before + 120 <= due <= after + 150
        assert "no answer" in job.reason
    for name in FINAL:
        assert Job.fetch(jobs[name].id).get_status() == JobStatus.FAILED, name
    assert len({conn.zscore("rq:scheduler:scheduled_jobs", jobs[name].id) for name in RETRIED}) == len(RETRIED), "spread"
    check_conservation(conn, [job.id for job in jobs.values()])


def test_what_is_known_of_the_error(workers: Workers, conn: redis.Redis) -> None:
    job = Queue("r").enqueue(retrying.raising, "Throttling")
    workers.burst("r", env=ENV)
    job.refresh()
    assert job.error_class == "botocore.errorfactory.ThrottlingException"
    assert job.error_frame.startswith("tests.jobs.retrying:raising:")
    (attempt,) = job.attempt_history
    assert (attempt.outcome, attempt.error) == ("retry", "botocore.errorfactory.ThrottlingException: no answer")
    assert attempt.maxrss is not None
    assert attempt.maxrss > 1000
    assert attempt.worker == job.worker_name
    assert attempt.start is not None
    assert attempt.end is not None
    assert attempt.start < attempt.end


def test_a_returned_retry_until_it_is_used_up(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """In a queue of any name; one job gets what it asks for, one asks once too often."""
    jobs = {queue: Queue(queue).enqueue(retrying.returning, str(tmp_path / queue), 5) for queue in ("r", "scheduler")}
    path = tmp_path / "often"
    often = Queue("r").enqueue(retrying.returning, str(path), 1)
    workers.start("r", "scheduler", env=ENV)
    for queue, job in jobs.items():
        assert job.wait(20) == JobStatus.FINISHED, queue
        assert (job.result, job.retry_count, job.attempts) == ("run 3", 9, 2)
        assert [attempt.outcome for attempt in job.attempt_history] == ["retry", "retry"]
        assert (job.reason, job.error_class) == ("", "")
    assert often.wait(20) == JobStatus.FAILED
    assert len([*lines(path)]) == 2
    assert "Retry(max=1) after 1 retries" in often.reason
    assert often.error_class == "fusion.retry.RetryLater"
    check_conservation(conn, [job.id for job in (*jobs.values(), often)])


@pytest.mark.parametrize(
    "flags", [pytest.param((), marks=process_per_job("the other case")), ("--horses", "1")], ids=["process per job", "warm"]
)
def test_a_retry_without_a_delay_runs_next(workers: Workers, conn: redis.Redis, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """At its place, in a worker that has others to run and no scheduler beside it."""
    first, *others = [Queue("r").enqueue(retrying.returning, str(tmp_path / "runs"), 5)] + [
        Queue("r").enqueue(retrying.runs, str(tmp_path / f"other{i}")) for i in range(3)
    ]
    workers.start("r", *flags, env=ENV)
    assert [job.wait(20) for job in (first, *others)] == ["finished"] * 4
    began = [Job.fetch(job.id).started_at for job in (first, *others)]
    assert began == sorted(began), "its last run, too, before what stands behind it"
    assert Job.fetch(first.id).attempts == 2


@pytest.mark.long
def test_a_raised_delay(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    """RetryLater, whatever the policy covers; and `retry_after` of an error that it covers, instead of two minutes."""
    later = Queue("r").enqueue(retrying.later, str(tmp_path / "later"), 0.3, retry=Retry(1, on=[KeyError]))
    busy = Queue("r").enqueue(retrying.busy, str(tmp_path / "busy"))
    final = Queue("r").enqueue(retrying.busy, str(tmp_path / "final"), retry=Retry(3, on=[KeyError]))
    far = Queue("r").enqueue(retrying.later, str(tmp_path / "far"), 1e9)
    workers.start("r", env=ENV)
    assert [job.wait(20) for job in (later, busy, final)] == ["finished", "finished", "failed"]
    assert (later.result, busy.result) == ("run 2", "run 3")
    first, second = busy.attempt_history
    assert first.end is not None
    assert second.start is not None
    assert (second.start - first.end).total_seconds() >= 0.2
    eventually(lambda: far.is_scheduled, why="it was tried once")
    due = conn.zscore("rq:scheduler:scheduled_jobs", far.id)
    assert due is not None
    assert 86_000 < due - now(conn) <= 86_400
    assert Job.fetch(far.id).reason == "fusion.retry.RetryLater: not yet"


@pytest.mark.long
def test_killed_twice_it_waits_before_the_third_run(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    job = Queue("r").enqueue(retrying.dying, str(tmp_path / "runs"), int(signal.SIGKILL))
    workers.start("r", env=ENV)
    assert job.wait(20) == JobStatus.FINISHED
    assert (job.result, job.attempts) == ("run 3", 0)
    first, second = job.attempt_history
    assert [(one.outcome, one.signal, one.oom_likely) for one in (first, second)] == [("lost", 9, True)] * 2
    assert first.end is not None
    assert second.start is not None
    assert second.end is not None
    assert (second.start - first.end).total_seconds() < 0.9, "the first time at once"
    assert job.started_at is not None
    assert (job.started_at - second.end).total_seconds() >= 0.45, "about a second, and a half more or less"
    assert "OOM killer" in first.error


#: Task, argument, and the signal and exit code that its attempt tells.
_DEATHS = [("dying", int(signal.SIGSEGV), int(signal.SIGSEGV), None), ("exiting", 7, None, 7), ("exiting", 0, None, 0)]


@pytest.mark.long
def test_how_its_process_died(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    jobs = []
    for task, argument, _, _ in _DEATHS:
        args = (str(tmp_path / "runs"), argument) if task == "dying" else (argument,)
        jobs.append(Queue("r").enqueue(f"tests.jobs.retrying.{task}", *args))
    workers.burst("r", env=ENV)
    for job, (task, _, number, code) in zip(jobs, _DEATHS, strict=True):
        job.refresh()
        (attempt,) = job.attempt_history
        assert (attempt.outcome, attempt.signal, attempt.exit_code, attempt.oom_likely) == ("failed", number, code, False), task
        assert attempt.maxrss is not None
        assert job.error_class == "fusion.exceptions.WorkHorseTerminated"


_POINTS = [
    long_case("turn.before=kill@2"),
    "turn.after=kill@2",
    long_case("turn.after=kill@3"),
    "outcome.received=kill",
    long_case("outcome.received=kill@2"),
]


@pytest.mark.long
@pytest.mark.parametrize("point", _POINTS)
def test_a_worker_killed_around_a_retry(workers: Workers, conn: redis.Redis, tmp_path: Path, point: str) -> None:
    """Before, inside or after the call that commits it: the next worker goes on, and each failed run has one event."""
    path, env = tmp_path / "runs", {**ENV, "FUSION_LEASE": "0.6", "FUSION_MAX_LOST": "1000"}
    job = Queue("r").enqueue(retrying.busy, str(path), retry=Retry(20))
    dying = workers.start("r", ready=False, env={**env, "FUSION_FAILPOINTS": point})
    assert dying.wait() == -signal.SIGKILL, dying.output
    check_conservation(conn, [job.id])
    workers.start("r", env=env)
    assert job.wait(20) == JobStatus.FINISHED
    told = [attempt.outcome for attempt in job.attempt_history]
    assert (told.count("retry"), job.retry_count) == (job.attempts, 7 + job.attempts)
    assert told.count("lost") <= 1
    assert len([*lines(path)]) <= 1 + job.attempts + told.count("lost")
    check_conservation(conn, [job.id])


@pytest.mark.long
def test_a_window_of_time_is_used_up_and_no_more(workers: Workers, conn: redis.Redis) -> None:
    job = Queue("r").enqueue(retrying.raising, "ValueError", retry=Retry(within=0.8, interval=0.1, on=ValueError))
    worker = workers.start("r", env=ENV)
    assert job.wait(20) == "failed"
    first, *_, last = job.attempt_history
    assert first.end is not None and last.start is not None
    assert 0.7 <= (last.start - first.end).total_seconds() <= 3, "the last one came when it was over"
    assert 3 <= job.attempts <= 12
    assert [attempt.outcome for attempt in job.attempt_history][-2:] == ["retry", "failed"]
    worker.says(f"job {job.id} failed: ValueError")
