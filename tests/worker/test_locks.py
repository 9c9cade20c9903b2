"""Locks of task code in real workers: one at a time under every executor, and free again however the run of its holder ends."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest
import redis

import fusion
from fusion import Queue, Retry
from fusion.store.access import limit_inspector_of
from tests.faults.rig.conservation import check_conservation
from tests.kit.length import long_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import lines
from tests.kit.workers import EXECUTORS, Workers

TASKS = ("--tasks", "tests.jobs.locked")
PLACES = {"process": "--slots", "pool": "--horses", "thread": "--threads", "asyncio": "--concurrency"}


def words(path: Path) -> list[str]:
    """What the blocks noted, in its order."""
    return [line.split()[0] for line in lines(path)]


def start(workers: Workers, executor: str, *args: str, **more: str) -> None:
    workers.start("q", *TASKS, "--executor", executor, PLACES[executor], "4", *args, env=more)


def is_free(conn: redis.Redis, name: str = "k") -> bool:
    return not conn.exists(*(f"rq:limits:{kind}:{name}" for kind in ("held", "waiting", "locks")))


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("executor", "task"),
    [*((one, "counted") for one in EXECUTORS[:3]), ("process", "counted_async"), ("asyncio", "counted_async")],
)
def test_of_many_runs_one_at_a_time_has_it(workers: Workers, conn: redis.Redis, tmp_path: Path, executor: str, task: str) -> None:
    count = tmp_path / "count"
    count.write_text("0")
    start(workers, executor)
    queue = Queue("q", conn)
    jobs = [queue.enqueue(f"tests.jobs.locked.{task}", str(count), "k") for _ in range(12)]
    eventually(lambda: all(job.get_status() in ("finished", "failed") for job in jobs), 60, why="all have run")
    assert {job.get_status() for job in jobs} == {"finished"}, [job.exc_info for job in jobs if job.exc_info][:1]
    assert count.read_text() == "12"
    assert is_free(conn)
    check_conservation(conn, [job.id for job in jobs])


@pytest.mark.timeout(150)
@pytest.mark.parametrize("executor", ["process", "asyncio"])
def test_it_is_kept_for_longer_than_a_lease_and_then_handed_on(
    workers: Workers, conn: redis.Redis, tmp_path: Path, executor: str
) -> None:
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    gate.touch()
    start(workers, executor, FUSION_LEASE="2")
    queue, ending = Queue("q", conn), "_async" if executor == "asyncio" else ""
    first = queue.enqueue(f"tests.jobs.locked.until_gone{ending}", str(seen), str(gate), "k")
    eventually(lambda: len(words(seen)) == 1, why="it has the lock")
    second = queue.enqueue(f"tests.jobs.locked.inside{ending}", str(seen), "k")
    began = time.monotonic()
    inspector = limit_inspector_of(conn)
    eventually(lambda: (info := inspector.limits(["k"])[0]) and info.lock_waiting == 1, why="another waits for it")
    eventually(lambda: time.monotonic() - began > 3, 10, why="a lease and a half is over")
    assert len(words(seen)) == 1
    (info,) = inspector.limits(["k"])
    assert info is not None
    assert ([one.job_id for one in info.holders], info.lock_waiting) == ([first.id], 1)
    gate.unlink()
    eventually(lambda: second.get_status() == "finished", why="the other had it")
    assert words(seen) == [f"{word}-{job.result}" for job in (first, second) for word in ("begin", "end")]
    assert first.result < second.result
    assert is_free(conn)


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("executor", "how"),
    [
        *(("process", how) for how in ("kill the worker", "stop", "time out", "cold", "kill the process")),
        long_case("thread", "stop"),
        long_case("thread", "time out"),
    ],
)
def test_whatever_becomes_of_the_run_that_has_it(
    workers: Workers, conn: redis.Redis, tmp_path: Path, how: str, executor: str
) -> None:
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    gate.touch()
    worker = workers.start("q", *TASKS, "--executor", executor, PLACES[executor], "1", env={"FUSION_LEASE": "2"})
    other = workers.start("other", *TASKS, env={"FUSION_LEASE": "2", "FUSION_REAP_INTERVAL": "0.5"})
    queue = Queue("q", conn)
    timeout = 1 if how == "time out" else 60
    task = "killed_inside" if how == "kill the process" else "until_gone"
    job = queue.enqueue(f"tests.jobs.locked.{task}", str(seen), str(gate), "k", job_timeout=timeout)
    eventually(lambda: len(words(seen)) >= 1, why="it has the lock")
    second = Queue("other", conn).enqueue("tests.jobs.locked.inside", str(seen), "k")
    if how == "kill the worker":
        worker.kill()
    elif how == "stop":
        job.stop()
    elif how == "cold":
        worker.signal(signal.SIGTERM)
        eventually(lambda: "warm shutdown" in worker.output, why="it has the first signal")
        worker.signal(signal.SIGTERM)
    eventually(lambda: second.get_status() == "finished", 30, why="the other had it")
    assert other.process.poll() is None
    if how == "kill the process":
        eventually(lambda: job.get_status() == "finished", 30, why="it has run again")
    elif how in ("kill the worker", "cold"):
        assert job.get_status() == "queued"
    else:  # its block ended, and gave the lock back, before its worker commits the end
        eventually(lambda: job.get_status() == ("stopped" if how == "stop" else "failed"), 30, why="its end is committed")
    check_conservation(conn, [job.id, second.id])
    numbers = [int(word.partition("-")[2]) for word in words(seen) if word.startswith("begin")]
    assert numbers == sorted(set(numbers)), "each holder has a higher one"


@pytest.mark.timeout(150)
def test_who_waits_too_long_gives_up_and_is_retried(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    gate.touch()
    start(workers, "thread")
    queue = Queue("q", conn)
    first = queue.enqueue("tests.jobs.locked.until_gone", str(seen), str(gate), "k")
    eventually(lambda: len(words(seen)) == 1, why="it has the lock")
    waits = queue.enqueue("tests.jobs.locked.timed_out", "k", 0.5)
    at_once = queue.enqueue("tests.jobs.locked.timed_out", "k", 0)
    retried = queue.enqueue("tests.jobs.locked.inside", str(seen), "k", 0.0, 0.1, retry=Retry(max=9, interval=[0.2]))
    failed = queue.enqueue("tests.jobs.locked.inside", str(seen), "k", 0.0, 0.1, retry=Retry(max=0))
    default = queue.enqueue("tests.jobs.locked.inside", str(seen), "k", 0.0, 0.1)
    eventually(lambda: waits.get_status() == at_once.get_status() == "finished", why="they gave up")
    assert 0.5 <= waits.result < 5
    assert 0 <= at_once.result < waits.result
    eventually(lambda: failed.get_status() == "failed", why="it has no retries")
    failed.refresh()
    assert "LockTimeout: the lock 'k' was not free within 0.1 s" in (failed.exc_info or "")
    eventually(lambda: default.get_status() == "scheduled", why="it is retried by default")
    gate.unlink()
    eventually(lambda: first.get_status() == retried.get_status() == "finished", 20, why="it had it in the end")
    assert is_free(conn)


@pytest.mark.timeout(150)
def test_what_a_run_is_refused(workers: Workers, conn: redis.Redis) -> None:
    start(workers, "process")
    start(workers, "asyncio")
    queue = Queue("q", conn)
    told = queue.enqueue("tests.jobs.locked.refusals", "k", "mine", concurrency_key="mine")
    loop = queue.enqueue("tests.jobs.locked.in_a_loop", "k")
    raised = queue.enqueue("tests.jobs.locked.raises_inside", "k3")
    left = queue.enqueue("tests.jobs.locked.left_open", "k4")
    eventually(lambda: all(job.get_status() == "finished" for job in (told, loop, raised, left)), why="all ran")
    again, own, two = told.result
    assert "this run has it already" in again
    assert "it is the concurrency key of this job" in own
    assert two == "two at once"
    assert "use `async with` in a coroutine" in loop.result
    assert raised.result > 0
    assert all(is_free(conn, name) for name in ("k", "k2", "k3", "k4", "mine"))


def test_outside_a_job(conn: redis.Redis) -> None:
    with pytest.raises(fusion.LockError, match="there is no job here to hold it"), fusion.lock("k"):
        raise AssertionError
    for name, wait in (("", 1), ("a b", 1), ("k", -1), ("k", "soon"), ("k" * 201, 1)):
        with pytest.raises(ValueError, match="use"):
            fusion.lock(name, wait)
    assert not conn.keys("rq:limits*")
