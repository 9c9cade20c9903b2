"""The last release and this version on one Redis: what either leaves behind the other reads and runs, and a fleet may be of both."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
import redis

from fusion import Job, Queue
from tests.faults.rig.conservation import check_conservation
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.kit.witnesses import lines, status_of
from tests.kit.workers import Workers
from tests.upgrade.newer import THIS, Version
from tests.upgrade.released import released
from tests.upgrade.test_mixed import LEASE, all_finished, both_at_once, produce
from tests.worker.test_locks import is_free

pytestmark = [pytest.mark.long, pytest.mark.timeout(240)]

#: What is run, and what is left in the hand of a worker that is killed.
BEGUN = """
queue.enqueue("tests.jobs.basic.add", 2, 3, job_id="add", result_ttl=86400)
queue.enqueue("tests.jobs.basic.boom", job_id="boom")
queue.enqueue("tests.jobs.basic.flaky", path, 1, "later", job_id="retried", retry=Retry(2, 3600))
queue.enqueue("tests.jobs.basic.until_gone", gate, path, job_id="cut")
"""
#: What waits, in each of the ways in which a job may.
WAITING = """
queue.enqueue(NOTE, 0, path, "low", job_id="low", priority=0)
queue.enqueue(NOTE, 0, path, "high", job_id="high", priority=2, meta={"k": 1}, log_tag="SMS_OTP", description="first")
parent = queue.enqueue(NOTE, 0, path, "parent", job_id="parent")
queue.enqueue(NOTE, 0, path, "child", job_id="child", depends_on=parent)
for number in range(4):
    queue.enqueue(NOTE, 0.1, path, f"keyed{number}", job_id=f"keyed{number}", concurrency_key="k", max_concurrent=1)
queue.enqueue(NOTE, 0, path, "once", job_id="once", unique_key="u")
queue.enqueue(NOTE, 0, path, "due", job_id="due", enqueue_in=timedelta(seconds=1))
with Batch("pair", queue="q") as batch:
    for number in range(2):
        batch.enqueue(NOTE, 0, path, f"member{number}", job_id=f"member{number}")
queue.enqueue("tests.jobs.basic.flaky", path, 1, "again", job_id="again", retry=Retry(1, 0))
Scheduler().cron("* * * * *", "tests.jobs.basic.noop", id="each-minute", queue="q")
"""
HEAD = """
import sys
from datetime import timedelta
from fusion import Batch, Queue, Retry, Scheduler
path, gate = sys.argv[1:]
queue, NOTE = Queue("q"), "tests.jobs.basic.sleep"
"""
RUN = ("add", "boom", "retried", "cut")
LEFT = ("low", "high", "parent", "child", *(f"keyed{n}" for n in range(4)), "once", "due", "member0", "member1", "again")


@pytest.fixture(scope="session")
def last(tmp_path_factory: pytest.TempPathFactory) -> Version:
    return released(tmp_path_factory.mktemp("released"))


def test_the_last_release_is_what_runs(last: Version) -> None:
    done = last.python("-c", "import fusion, sys; sys.exit(print(fusion.__file__))")
    assert Path(done.stdout.strip()).is_relative_to(last.home), done.stderr


@pytest.mark.parametrize("onwards", [True, False], ids=["upgraded", "and back"])
def test_what_one_version_leaves_behind_the_other_reads_and_runs(
    onwards: bool, last: Version, conn: redis.Redis, workers: Workers, schedulers: Schedulers, tmp_path: Path
) -> None:
    """The writer's worker ran some and is killed amid one; its producer leaves jobs in all ways of waiting. None of them runs then."""
    writer, reader = (last, THIS) if onwards else (THIS, last)
    path, gate = tmp_path / "ran", tmp_path / "gate"
    gate.touch()

    def left(text: str) -> None:
        done = writer.python("-c", HEAD + text, str(path), str(gate))
        assert done.returncode == 0, done.stderr

    left(BEGUN)
    killed = workers.start("q", *LEASE, program=writer.program("worker"))
    eventually(lambda: any(line.startswith("started ") for line in lines(path)), 30)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.process.wait(10)
    left(WAITING)
    gate.unlink()
    assert {job_id: status_of(conn, job_id) for job_id in RUN} == {
        "add": "finished", "boom": "failed", "retried": "scheduled", "cut": "started",
    }  # fmt: skip

    workers.start("q", *LEASE, "--slots", "2", program=reader.program("worker"))
    all_finished(conn, [*LEFT, "cut"], grouped=False)
    order = [line.split()[0] for line in lines(path) if line.startswith(("begin-", "end-"))]
    assert order.index("begin-high") < order.index("begin-low")
    assert order.index("end-parent") < order.index("begin-child")
    keyed = [word for word in order if "keyed" in word]
    assert keyed == [f"{when}-keyed{n}" for n in range(4) for when in ("begin", "end")], (
        "one at a time, in the order of their calls"
    )
    assert check_conservation(conn, [*LEFT, *RUN], grouped=False)["retried"] == "scheduled"

    def asked(*args: str) -> str:
        done = reader.run(*args)
        assert done.returncode == 0, (args, done.stderr)
        return done.stdout

    assert "each-minute" in asked("cron", "list")
    for job_id in ("cut", "keyed3", "member0"):
        assert job_id in asked("job", "show", job_id)
    json.loads(asked("info", "--json"))
    asked("requeue", "boom")
    eventually(lambda: status_of(conn, "boom") == "failed" and conn.hget("rq:job:boom", "attempts") == b"2", 30)
    if onwards:
        assert Job.fetch("add", conn).result == 5
        assert Job.fetch("high", conn).meta == {"k": 1}
    asked("cron", "remove", "each-minute", "--yes")


def test_a_fleet_of_both_under_kills(last: Version, conn: redis.Redis, workers: Workers, tmp_path: Path) -> None:
    """docs/upgrades.md: both for as long as one wants, and the way back."""
    both_at_once(conn, workers, last, THIS, tmp_path / "ran")


def test_producers_of_the_last_release_and_workers_of_this_one(
    last: Version, conn: redis.Redis, workers: Workers, tmp_path: Path
) -> None:
    ids = produce(conn, last, tmp_path / "ran", "old", 10)
    workers.start("q", *LEASE)
    all_finished(conn, ids)


def test_a_lock_comes_free_though_a_worker_of_the_last_release_buried_its_holder(
    last: Version, conn: redis.Redis, workers: Workers, tmp_path: Path
) -> None:
    """docs/limits.md, "In a deploy": that worker knows no locks. The next block has the lock all the same, and a higher number."""
    seen, gate = tmp_path / "seen", tmp_path / "gate"
    gate.touch()
    workers.start("elsewhere", *LEASE, program=last.program("worker"))
    holder = workers.start("q", *LEASE, "--tasks", "tests.jobs.locked")
    cut = Queue("q", conn).enqueue("tests.jobs.locked.until_gone", str(seen), str(gate), "k")
    eventually(lambda: any(lines(seen)), 30, why="it has the lock")
    os.killpg(holder.pid, signal.SIGKILL)
    eventually(lambda: status_of(conn, cut.id) == "queued", 60, why="the worker of the last release gave its job back")
    gate.unlink()
    workers.start("q", *LEASE, "--slots", "2", "--tasks", "tests.jobs.locked")
    ids = [cut.id, *(Queue("q", conn).enqueue("tests.jobs.locked.inside", str(seen), "k", 0.02).id for _ in range(6))]
    all_finished(conn, ids, 90, grouped=False)
    eventually(lambda: is_free(conn), 60, why="nobody has the lock or waits for it")
    numbers = [int(line.split()[0].partition("-")[2]) for line in lines(seen) if line.startswith("begin-")]
    assert numbers == sorted(set(numbers)) and len(numbers) == len(ids) + 1
