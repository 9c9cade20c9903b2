"""`checkpoint` and `iterate`: a job goes on where its last run got to, over kills, stops, failures and requeues."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
import redis

from fusion import Job, Queue, Retry
from tests.jobs import long
from tests.kit.hands import events_of
from tests.kit.length import long_case
from tests.kit.waiting import eventually
from tests.kit.witnesses import field
from tests.kit.workers import Workers

TASKS = {"FUSION_TASKS": "tests.jobs"}
MODES = pytest.mark.parametrize("mode", [long_case((), id="fork"), pytest.param(("--horses", "2"), id="pool")])


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    (path := tmp_path / "gate").touch()
    return path


@pytest.fixture
def seen(tmp_path: Path) -> Path:
    (path := tmp_path / "seen").touch()
    return path


def lines(seen: Path) -> list[str]:
    return seen.read_text().split()


@pytest.mark.long
@MODES
def test_a_warm_stop_ends_a_loop_after_its_step_and_another_worker_goes_on(
    workers: Workers, conn: redis.Redis, seen: Path, gate: Path, mode: tuple[str, ...]
) -> None:
    job = Queue("sms").enqueue(long.stands_still, str(seen), 10, str(gate))
    worker = workers.start("sms", *mode, env=TASKS)
    eventually(lambda: lines(seen) == ["0", "1", "2"])
    os.kill(worker.pid, signal.SIGTERM)
    worker.says("warm shutdown")
    gate.unlink()
    assert worker.wait(10) == 0, worker.output
    assert lines(seen) == ["0", "1", "2"], "not one step more"
    assert (job.get_status(), field(conn, job.id, "cursor"), field(conn, job.id, "attempts")) == ("queued", "3", "")
    workers.burst("sms", *mode, env=TASKS)
    assert job.get_status() == "finished"
    assert lines(seen) == [str(step) for step in range(10)], "each once"
    assert [event["event"] for event in events_of(conn) if event["job_id"] == job.id] == [
        *("queued", "processing", "released", "processing", "completed"),
    ]


@pytest.mark.long
def test_a_job_that_says_nothing_of_itself_is_finished_by_a_warm_stop_as_ever(workers: Workers, gate: Path) -> None:
    job = Queue("sms").enqueue(long.runs_on, str(gate))
    worker = workers.start("sms", env=TASKS)
    eventually(lambda: job.get_status() == "started")
    os.kill(worker.pid, signal.SIGTERM)
    worker.says("warm shutdown")
    gate.unlink()
    assert worker.wait(10) == 0, worker.output
    assert (job.get_status(), job.result) == ("finished", "to its end")
    assert "died without" not in worker.output


def test_a_reload_lets_new_code_go_on(workers: Workers, seen: Path, gate: Path) -> None:
    job = Queue("sms").enqueue(long.stands_still, str(seen), 6, str(gate))
    worker = workers.start("sms", env=TASKS)
    eventually(lambda: lines(seen) == ["0", "1", "2"])
    os.kill(worker.pid, signal.SIGHUP)
    eventually(lambda: worker.output.count("is ready for jobs") == 2, why="the job has heard of it long since")
    gate.unlink()
    assert job.wait(15) == "finished"
    assert lines(seen) == [str(step) for step in range(6)]
    assert (job.deliveries, job.attempts) == (2, 0)


@pytest.mark.long
@MODES
def test_what_waits_is_stored_when_it_returns(
    workers: Workers, conn: redis.Redis, seen: Path, gate: Path, mode: tuple[str, ...]
) -> None:
    cursor = {"phase": 2, "at": ["x", 1.5, None]}
    job = Queue("sms").enqueue(long.checkpoints, str(seen), cursor, str(gate))
    worker = workers.start("sms", *mode, env=TASKS)
    eventually(lambda: lines(seen) == ["None", "stored"])
    os.kill(worker.pid, signal.SIGKILL)
    assert Job.fetch(job.id).cursor == cursor
    worker.wait(10)
    gate.unlink()
    conn.hset(f"rq:worker:{Job.fetch(job.id).worker_name}", "beat_ms", 1)
    workers.start("sms", *mode, env={**TASKS, "FUSION_LEASE": "2"})
    assert job.wait(30) == "finished"
    assert job.result == cursor
    assert seen.read_text().split("\n")[2] == repr(cursor), "the second run found it"


@pytest.mark.long
def test_it_waits_for_a_worker_that_stands_still(workers: Workers, conn: redis.Redis, seen: Path, gate: Path) -> None:
    job = Queue("sms").enqueue(long.asks_for_word, str(seen), str(gate))
    worker = workers.start("sms", env=TASKS)
    eventually(lambda: lines(seen) == ["here"])
    worker.signal(signal.SIGSTOP)
    gate.unlink()
    eventually(lambda: lines(seen)[1:] == ["asks"], why="it goes on until it has to wait")
    time.sleep(0.3)  # of waiting: nothing shows from outside that it does
    assert lines(seen) == ["here", "asks"], "nobody has stored anything"
    worker.signal(signal.SIGCONT)
    assert job.wait(15) == "finished"
    assert (lines(seen)[2:], field(conn, job.id, "cursor")) == (["stored"], "1")


def test_a_failed_run_leaves_its_exact_cursor_to_the_retry(workers: Workers, seen: Path) -> None:
    job = Queue("sms").enqueue(long.fails_twice, str(seen), 60, retry=Retry(max=3))
    workers.burst("sms", env=TASKS)
    job.refresh()
    assert (job.get_status(), job.result) == ("finished", 2)
    assert [int(step) for step in lines(seen)] == [*range(21), *range(20, 41), *range(40, 60)], (
        "the step that failed again, no other"
    )


@pytest.mark.long
def test_rows_are_found_again_by_their_own_cursor(workers: Workers, seen: Path, gate: Path) -> None:
    job = Queue("sms").enqueue(long.keyed_steps, str(seen), str(gate))
    worker = workers.start("sms", env=TASKS)
    eventually(lambda: lines(seen) == ["a", "b", "c"])
    os.kill(worker.pid, signal.SIGTERM)
    worker.says("warm shutdown")
    gate.unlink()
    worker.wait(10)
    workers.burst("sms", env=TASKS)
    job.refresh()
    assert (job.get_status(), job.result) == ("finished", "j")
    assert "".join(lines(seen)) == "abcdefghij"
