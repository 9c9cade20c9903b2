"""What jobs print and log is kept with them: while they run, after a failure, and after success if they say so. By real workers."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Job, Queue, Retry
from tests.kit.length import gate_case, long_case, soaked
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import status_of
from tests.kit.workers import EXECUTORS, WorkerProcess, Workers

TASK = "tests.jobs.printing"
#: One in `make test`, the others in the gate.
EACH = ["process", *(gate_case(name) for name in EXECUTORS if name != "process")]


@pytest.fixture
def queue(conn: redis.Redis) -> Queue:
    return Queue("q", conn)


def put(queue: Queue, task: str, *args: Any, **more: Any) -> Job:
    return queue.enqueue(f"{TASK}.{task}", *args, **{"retry": Retry(max=0), **more})


def log_of(conn: redis.Redis, job: Job) -> list[str]:
    """The lines of its log, without their times."""
    stored = conn.hget(f"rq:log:{job.id}", "lines")
    return [] if stored is None else [line.partition(" ")[2] for line in stored.decode().split("\n")]


def run(workers: Workers, executor: str, *args: str, **env: str) -> WorkerProcess:
    places = {"thread": {"FUSION_THREADS": "4"}, "asyncio": {"FUSION_CONCURRENCY": "4"}}.get(executor, {"FUSION_SLOTS": "2"})
    return workers.burst("q", "--executor", executor, *args, env={"FUSION_TASKS": TASK, **places, **env}, timeout=unhurried(60))


@pytest.mark.parametrize("executor", EACH)
def test_those_of_a_failure_are_kept_and_those_of_a_success_only_on_request(
    executor: str, workers: Workers, conn: redis.Redis, queue: Queue
) -> None:
    good, bad = put(queue, "says", "good"), put(queue, "says", "bad", fails=True)
    asked = put(queue, "says", "asked", keep_logs=True)
    worker = run(workers, executor)
    assert [status_of(conn, job.id) for job in (good, bad, asked)] == ["finished", "failed", "finished"]
    assert log_of(conn, good) == []
    assert good.get_log() is None
    for job, text in ((bad, "bad"), (asked, "asked")):
        found = job.get_log()
        assert found and [line for _, line in found.lines] == log_of(conn, job)
        assert (found.left_out, found.attempt) == (0, 1)
        assert all(timedelta() <= datetime.now(timezone.utc) - at < timedelta(minutes=5) for at, _ in found.lines)
        assert log_of(conn, job) == [f"printed {text}", f"to stderr {text}", f"logged {text}", f"begun {text}"]
    assert {raw.decode() for raw in conn.zrange("rq:logs", 0, -1)} == {bad.id, asked.id}
    assert 0 < conn.pttl(f"rq:log:{bad.id}") <= conn.pttl(f"rq:job:{bad.id}") + 60_000
    for word in ("printed", "to stderr", "logged", "begun"):
        assert worker.count(word) == 3, "where it went before; neighbours' pieces may stand between those of a line there"


@pytest.mark.parametrize("executor", EACH)
def test_they_are_there_while_it_runs(executor: str, workers: Workers, conn: redis.Redis, queue: Queue, tmp_path: Path) -> None:
    gate, started = tmp_path / "gate", tmp_path / "started"
    gate.touch()
    job = put(queue, "waits", "soon", str(gate), str(started))
    workers.start("q", "--executor", executor, env={"FUSION_TASKS": TASK})
    eventually(lambda: log_of(conn, job) == ["soon"], unhurried(10))
    assert status_of(conn, job.id) == "started"
    gate.unlink()
    eventually(lambda: status_of(conn, job.id) == "finished")
    eventually(lambda: not conn.exists(f"rq:log:{job.id}", "rq:logs"), why="it finished: its lines go")


@pytest.mark.parametrize(
    ("executor", "task"), [gate_case("thread", "in_turns"), gate_case("asyncio", "says_so"), long_case("asyncio", "in_turns")]
)
def test_neighbours_in_one_process_keep_their_own(
    executor: str, task: str, workers: Workers, conn: redis.Redis, queue: Queue
) -> None:
    jobs = {name: put(queue, task, name, 0.02) for name in ("ann", "bob", "cleo", "dan")}
    run(workers, executor)
    for name, job in jobs.items():
        assert log_of(conn, job) == [f"{name} {letter}" for letter in "abcde"]


@pytest.mark.parametrize("executor", EACH)
@pytest.mark.parametrize("loud", [0, long_case(500)])
def test_last_words_before_a_kill(executor: str, loud: int, workers: Workers, conn: redis.Redis, queue: Queue) -> None:
    job = put(queue, "dies", "last words", 0.1, loud=loud, on_lost="fail")
    run(workers, executor, FUSION_MAX_LOST="1")
    assert status_of(conn, job.id) in ("failed", "scheduled", "queued", "blocked")
    assert log_of(conn, job)[-1] == "last words"


@pytest.mark.parametrize("executor", EACH)
def test_of_a_killed_worker_what_it_had_written(
    executor: str, workers: Workers, conn: redis.Redis, queue: Queue, tmp_path: Path
) -> None:
    gate, started = tmp_path / "gate", tmp_path / "started"
    gate.touch()
    job = put(queue, "waits", "soon", str(gate), str(started))
    worker = workers.start("q", "--executor", executor, env={"FUSION_TASKS": TASK})
    eventually(started.exists, unhurried(10))
    eventually(lambda: log_of(conn, job) == ["soon"], unhurried(5))
    worker.signal(signal.SIGKILL)
    worker.wait()
    assert log_of(conn, job) == ["soon"]


@pytest.mark.parametrize("executor", EACH)
def test_a_job_that_prints_much_ends_soon_and_fills_nothing(
    executor: str, workers: Workers, conn: redis.Redis, queue: Queue
) -> None:
    loud, quiet = put(queue, "many", 20_000, fails=True), put(queue, "says", "quiet", fails=True)
    run(workers, executor)
    found = conn.hgetall(f"rq:log:{loud.id}")
    lines = log_of(conn, loud)
    assert lines[-1].startswith("line *****") and len(lines) <= 100 and len(found[b"lines"]) <= 8192
    assert len(lines) + int(found[b"left_out"]) == 20_000, "each is kept or counted"
    assert log_of(conn, quiet)[0] == "printed quiet"


@pytest.mark.parametrize("executor", ["process", gate_case("thread")])
def test_a_worker_that_stands_still_does_not_hold_the_task_up(
    executor: str, workers: Workers, conn: redis.Redis, queue: Queue, tmp_path: Path
) -> None:
    gate, started = tmp_path / "gate", tmp_path / "started"
    gate.touch()
    job = put(queue, "waits_and_prints", str(gate), str(started), 30_000)
    worker = workers.start("q", "--executor", executor, env={"FUSION_TASKS": TASK})
    eventually(started.exists, unhurried(10))
    worker.signal(signal.SIGSTOP)
    gate.unlink()
    eventually((tmp_path / "started.done").exists, unhurried(20), why="its task is through, though nobody reads what it prints")
    worker.signal(signal.SIGCONT)
    eventually(lambda: status_of(conn, job.id) == "failed", unhurried(10))
    eventually(lambda: log_of(conn, job)[-1:] == ["the last one"], unhurried(5))


def test_children_that_keep_the_streams_open_hold_nothing_up(
    workers: Workers, conn: redis.Redis, queue: Queue, tmp_path: Path
) -> None:
    job = put(queue, "forks", str(tmp_path / "witness"))
    began = time.monotonic()
    run(workers, "process")
    assert time.monotonic() - began < unhurried(25)
    assert status_of(conn, job.id) == "failed"
    assert log_of(conn, job) == ["before the fork", "after the fork"]


@pytest.mark.parametrize("executor", EACH)
def test_what_is_no_line_of_text(executor: str, workers: Workers, conn: redis.Redis, queue: Queue) -> None:
    job = put(queue, "odd")
    run(workers, executor)
    assert status_of(conn, job.id) == "failed"
    lines = log_of(conn, job)
    head = ["half ? of a pair", "\\x1b[31mred\\x1b[0m \\x07"]
    assert lines[:2] == head
    assert lines[2].startswith("***") or lines[2].startswith("yyyy")
    assert len(lines[2]) <= 1024
    of_thread = [] if executor in ("thread", "asyncio") else ["of a thread"]
    assert lines[3:] == ["step **" if "*" in lines[3] else "step 99", *of_thread, "last"]


def test_with_the_setting_off_nothing_is_kept(workers: Workers, conn: redis.Redis, queue: Queue) -> None:
    job = put(queue, "says", "bad", fails=True, keep_logs=True)
    worker = run(workers, "process", FUSION_JOB_LOGS="0")
    assert worker.count("printed bad") == 1
    assert not conn.exists(f"rq:log:{job.id}", "rq:logs")


def test_a_retry_that_finishes_takes_the_lines_of_the_failure_along(
    workers: Workers, conn: redis.Redis, queue: Queue, tmp_path: Path
) -> None:
    job = put(queue, "fails_once", str(tmp_path / "ran"), retry=Retry(max=2, interval=0))
    worker = run(workers, "process")
    assert status_of(conn, job.id) == "finished", worker.output
    assert not conn.exists(f"rq:log:{job.id}", "rq:logs")


# -- whatever shows a code


def _codes() -> list[str]:
    return ["4829", "48291", "482917", "4829173", "48291736", "4 8 2 9 1 7", "482-917"]


@pytest.mark.parametrize("executor", EACH)
def test_no_code_is_found_in_a_log_or_an_event(executor: str, workers: Workers, conn: redis.Redis, queue: Queue) -> None:
    kinds = ("print", "log", "pieces", "raise", "trace", "return")
    texts = [form.format(code) for code in _codes() for form in ("{}", "your code is {}", "otp={}", '{{"body": "use {}."}}')]
    jobs = [put(queue, "code", kind, text, keep_logs=True) for kind in kinds for text in texts]
    run(workers, executor)
    kept = [line for job in jobs for line in log_of(conn, job)]
    assert len(kept) >= len(texts) * 4
    said = [
        value.decode()
        for _, fields in conn.xrange("rq:events")
        for name, value in fields.items()
        if name == b"message" or name == b"reason"
    ]
    for line in (*kept, *said):
        line = re.sub(r"(line |:)\d+", "", line)  # the place of a line in a program
        assert not re.search(r"\d(?:[ -]?\d){3,}", line), line


@pytest.mark.long
@pytest.mark.timeout(soaked(60, 180))
@pytest.mark.parametrize(
    ("count", "task", "options"),
    [
        pytest.param(150, {"fails": True}, {"retry": Retry(max=0)}, id="failures", marks=pytest.mark.gate),
        pytest.param(10, {"width": 790}, {"keep_logs": True}, id="on request"),
    ],
)
def test_the_memory_of_logs_stays_under_its_bound(
    count: int, task: dict[str, Any], options: dict[str, Any], workers: Workers, conn: redis.Redis, queue: Queue
) -> None:
    """Jobs that print as much as is kept, or more, for a while: in the gate, a minute of them in `make soak`."""
    seconds, names = soaked(5.0, 60.0), 0
    before = conn.info("memory")["used_memory"]
    worker = workers.start("q", "--horses", "4", env={"FUSION_TASKS": TASK, "FUSION_FAILED_MAX": "2000"})
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if conn.zcard("rq:queue:q") < 2000:
            queue.enqueue_many([Queue.prepare_data(f"{TASK}.many", (count,), task, **options) for _ in range(500)])
            names += 500
        time.sleep(0.05)
    names -= conn.zcard("rq:queue:q")
    conn.delete("rq:queue:q")
    worker.stop()
    total = int(conn.hget("rq:logs:sizes", "*"))
    logs = conn.zcard("rq:logs")
    assert logs > 100 and total == sum(int(size) for name, size in conn.hgetall("rq:logs:sizes").items() if name != b"*")
    assert total <= 64 * 1024 * 1024
    print(
        f"{names / seconds:.0f} jobs a second, {logs} logs of {total / 2**20:.1f} MiB, "
        f"{(conn.info('memory')['used_memory'] - before) / 2**20:.1f} MiB more in all"
    )


# -- which job a line is of

BOUND = {
    "version": 1,
    "formatters": {"bound": {"format": "BOUND %(job_id)s %(task)s %(queue)s %(attempt)s %(message)s"}},
    "handlers": {"out": {"class": "logging.StreamHandler", "formatter": "bound"}},
    "root": {"level": "INFO", "handlers": ["out"]},
}


def _config(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "boundconfig.py").write_text(f"DICT_CONFIG = {BOUND!r}")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))}


@pytest.mark.parametrize("executor", EACH)
def test_a_format_may_name_the_job(executor: str, workers: Workers, conn: redis.Redis, queue: Queue, tmp_path: Path) -> None:
    job = put(queue, "bound", job_id="0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9")
    worker = run(workers, executor, "-c", "boundconfig", **_config(tmp_path))
    wanted = f"BOUND {job.id} {TASK}.bound q 1 of a job"
    assert worker.count(wanted) == 1, worker.output
    assert log_of(conn, job) == [wanted.replace(job.id, "***")], "its id has the form of a token"
    assert worker.count("Logging error") == 0
    assert worker.count("BOUND - - - - worker ") >= 1, "lines of the worker have the same format"


@pytest.mark.parametrize("executor", EACH)
def test_with_lines_of_json_what_is_printed_is_json_too(executor: str, workers: Workers, conn: redis.Redis, queue: Queue) -> None:
    job = put(queue, "says", "bad", fails=True)
    worker = run(workers, executor, "--log-json")
    found = [json.loads(line) for line in worker.output.splitlines()]
    own = [line for line in found if line.get("job_id") == job.id and line["logger"] != "fusion.worker"]
    assert [line["message"] for line in own if line["logger"] == "stdout"] == ["printed bad", "begun bad"]
    assert [line["message"] for line in own if line["logger"] == "stderr"] == ["to stderr bad"]
    assert [line["message"] for line in own if line["logger"] == "shop.sms"] == ["logged bad"]
    assert {(line["task"], line["queue"], line["attempt"]) for line in own} == {(f"{TASK}.says", "q", 1)}
    lines = log_of(conn, job)
    assert lines[0] == "printed bad" and lines[-1] == "begun bad"
    assert len(lines) == 4 and '"logged bad"' in lines[2]


def test_structlog_names_the_job(workers: Workers, conn: redis.Redis, queue: Queue, tmp_path: Path) -> None:
    (tmp_path / "structured.py").write_text(
        "import structlog\ndef say():\n    structlog.get_logger().info('structured')\n    raise ValueError('no')\n"
    )
    jobs = [queue.enqueue("structured.say", retry=Retry(max=0)) for _ in range(2)]
    worker = workers.burst("q", "--executor", "pool", env={**_config(tmp_path), "FUSION_TASKS": "structured"})
    for job in jobs:
        [line] = log_of(conn, job)
        for part in ("structured", "task=structured.say", "queue=q", "attempt=1"):
            assert part in line
        assert worker.count(f"job_id={job.id}") == 1, worker.output
