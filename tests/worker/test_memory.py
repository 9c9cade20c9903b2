"""Memory: a limit per job, kept from outside, and a worker that takes nothing while the machine has none to give."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import redis

from fusion import Queue, Retry
from tests.jobs import basic, greedy
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, arguments_of, field, status_of
from tests.kit.workers import Workers
from tests.worker.test_settings import info, worker_hash
from tests.worker.throttled import PROGRAM

TASKS = {"FUSION_TASKS": "tests.jobs.basic,tests.jobs.greedy"}
LIMITED = {**TASKS, "FUSION_MAX_JOB_MEMORY": "200"}
NO_RETRY = Retry(max=0)


# -- the limit of one job


def test_a_job_over_its_limit_is_killed_and_the_next_is_clean(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    worker = workers.start("sms", "--max-job-memory", "200", env=TASKS)
    queue = Queue("sms")
    job = queue.enqueue(greedy.hold, 400, str(gate), retry=NO_RETRY)
    after = queue.enqueue(basic.add, 1, 2)
    assert job.wait(10) == "failed"
    reason = field(conn, job.id, "reason")
    held = re.fullmatch(
        r"fusion\.exceptions\.JobMemoryExceeded: its processes held (\d+) MiB, more than --max-job-memory 200, and were killed \[FUS-151\]",
        reason,
    )
    assert held and 200 < int(held[1]) < 600  # it may still be growing
    assert after.wait(10) == "finished"
    assert worker.process.poll() is None
    assert f"job {job.id} failed: {reason}" in worker.output


@pytest.mark.long
def test_a_job_within_its_limit_is_left_alone(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate, started = tmp_path / "gate", tmp_path / "started"
    gate.touch()
    workers.start("sms", env={**LIMITED, "FUSION_MAX_JOB_MEMORY": "2000"})
    job = Queue("sms").enqueue(greedy.hold, 100, str(gate), str(started))
    eventually(started.exists)
    gate.unlink()
    assert job.wait(10) == "finished"
    assert job.result == 100 * 1024 * 1024


@pytest.mark.long
def test_what_a_job_disowned_counts_and_goes_with_it(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    touched, started = tmp_path / "touched", tmp_path / "started"
    worker = workers.start("sms", env=LIMITED)
    job = Queue("sms").enqueue(greedy.hold_in_a_child, 300, str(touched), str(started), retry=NO_RETRY)
    eventually(started.exists)
    taker = eventually(lambda: [p.pid for p in worker.tree() if str(touched) in " ".join(arguments_of(p)[-1:])])
    assert job.wait(10) == "failed"
    assert "JobMemoryExceeded" in field(conn, job.id, "reason")
    eventually(lambda: not any(map(alive, taker)))


@pytest.mark.long
def test_memory_that_a_jobs_processes_share_counts_once(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate, started, greedy_gate = tmp_path / "gate", tmp_path / "started", tmp_path / "gate2"
    gate.touch()
    greedy_gate.touch()
    workers.start("sms", "--slots", "2", env={**LIMITED, "FUSION_MAX_JOB_MEMORY": "250"})
    sharing = Queue("sms").enqueue(greedy.share_with_children, 120, 4, str(gate), str(started))  # 600 MiB if added up
    eventually(started.exists)
    over = Queue("sms").enqueue(greedy.hold, 400, str(greedy_gate), retry=NO_RETRY)
    assert over.wait(10) == "failed"  # so the other one was measured too, more than once
    assert status_of(conn, sharing.id) == "started"
    gate.unlink()
    assert sharing.wait(10) == "finished"


def test_a_memory_error_in_the_task_is_an_ordinary_failure(workers: Workers, conn: redis.Redis) -> None:
    job = Queue("sms").enqueue(greedy.too_much, retry=NO_RETRY)
    workers.burst("sms", env=LIMITED)
    assert job.wait(0) == "failed"
    assert field(conn, job.id, "reason") == "MemoryError: no room for the report"


@pytest.mark.long
def test_a_job_that_took_too_much_is_retried_by_its_policy(workers: Workers, conn: redis.Redis, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    gate.touch()
    job = Queue("sms").enqueue(greedy.hold, 400, str(gate), retry=Retry(max=1, interval=3600))
    workers.start("sms", env=LIMITED)
    eventually(lambda: status_of(conn, job.id) == "scheduled")
    assert field(conn, job.id, "attempts") == "1"


# -- the throttle


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    """What a throttled worker reads: percent of RAM in use."""
    file = tmp_path / "percent"
    file.write_text("50")
    return file


def set_to(memory: Path, percent: float) -> None:
    whole = memory.with_suffix(".new")
    whole.write_text(str(percent))
    whole.replace(memory)


def throttled_worker_env(memory: Path) -> dict[str, str]:
    return {**TASKS, "MEMORY_FILE": str(memory), "MEMORY_CHECK_INTERVAL": "0.05", "FUSION_IDLE_WAIT": "20"}


@pytest.mark.long
def test_a_throttled_worker_takes_nothing_until_it_is_released(workers: Workers, conn: redis.Redis, memory: Path) -> None:
    worker = workers.start("sms", env=throttled_worker_env(memory), program=PROGRAM)
    assert Queue("sms").enqueue(basic.noop).wait(10) == "finished"
    set_to(memory, 92.1)
    eventually(lambda: worker_hash(conn, worker).get("throttled") == "RAM 92.1 %")
    assert "WARNING MEMORY THROTTLE ACTIVE: RAM 92.1 % (limit 90 %)\n" in worker.output
    jobs = [Queue("sms").enqueue(basic.noop) for _ in range(3)]
    set_to(memory, 85)  # below the limit, above the figure at which it goes on
    eventually(lambda: worker_hash(conn, worker)["throttled"] == "RAM 85.0 %")
    assert [status_of(conn, job.id) for job in jobs] == ["queued"] * 3
    assert worker_hash(conn, worker)["state"] == "idle"
    (shown,) = json.loads(info("--json"))["workers"]
    assert (shown["state"], shown["throttled"]) == ("throttled", "RAM 85.0 %")
    assert "Memory is scarce, no job is taken by: " in info()
    assert "throttled" in info("-W")
    set_to(memory, 80)
    assert [job.wait(10) for job in jobs] == ["finished"] * 3
    assert "MEMORY THROTTLE RELEASED\n" in worker.output
    eventually(lambda: worker_hash(conn, worker)["throttled"] == "")
    assert "Memory is scarce" not in info()


@pytest.mark.long
def test_running_jobs_go_on_and_are_shown(workers: Workers, conn: redis.Redis, memory: Path, tmp_path: Path) -> None:
    gate, started = tmp_path / "gate", tmp_path / "started"
    gate.touch()
    worker = workers.start("sms", env=throttled_worker_env(memory), program=PROGRAM)
    job = Queue("sms").enqueue(basic.until_gone, str(gate), str(started))
    eventually(started.exists)
    set_to(memory, 95)
    eventually(lambda: worker_hash(conn, worker).get("throttled") == "RAM 95.0 %")
    assert worker_hash(conn, worker)["state"] == "busy"
    behind = Queue("sms").enqueue(basic.noop)
    gate.unlink()
    assert job.wait(10) == "finished"
    assert status_of(conn, behind.id) == "queued"


@pytest.mark.long
def test_a_throttled_worker_passes_tokens_on(workers: Workers, conn: redis.Redis, memory: Path) -> None:
    def waiting() -> int:
        return sum(client["cmd"] == "blpop" for client in conn.client_list())

    throttled = workers.start("sms", env=throttled_worker_env(memory), program=PROGRAM)
    eventually(lambda: waiting() == 1)
    other = workers.start("sms", env={**TASKS, "FUSION_IDLE_WAIT": "20"})
    eventually(lambda: waiting() == 2)
    set_to(memory, 95)
    eventually(lambda: "THROTTLE ACTIVE" in throttled.output)
    job = Queue("sms").enqueue(basic.noop)  # the token goes to who has waited longest: the throttled one
    assert job.wait(10) == "finished"
    assert job.worker_name.endswith(f".{other.pid}")


@pytest.mark.long
def test_the_flag_and_the_machines_own_memory(workers: Workers, conn: redis.Redis) -> None:
    """More than 0.01 % is in use on any machine."""
    env = {**TASKS, "MEMORY_THROTTLE_THRESHOLD": "0.01", "FUSION_MEMORY_RESUME_THRESHOLD": "0.01"}
    off = workers.start("email", env=env)
    worker = workers.start("sms", "--memory-throttle", env=env)
    eventually(lambda: worker_hash(conn, worker).get("throttled", "").startswith("RAM "))
    assert re.search(r"MEMORY THROTTLE ACTIVE: RAM \d+\.\d % \(limit 0\.01 %\)", worker.output)
    job = Queue("sms").enqueue(basic.noop)
    assert Queue("email").enqueue(basic.noop).wait(10) == "finished"
    assert status_of(conn, job.id) == "queued"
    assert "throttled" not in worker_hash(conn, off)
