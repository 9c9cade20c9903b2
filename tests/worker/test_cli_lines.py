"""The command lines of the requirements, word for word, on a real Redis."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from fusion import Job, Queue
from tests.jobs import basic
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.witnesses import lines

TASKS = {"FUSION_TASKS": "tests.jobs.basic"}


def command(line: str) -> list[str]:
    return [sys.executable, *shlex.split(line)]


def run(line: str, code: int = 0, **env: str) -> str:
    """What `python <line>` prints; it ends by itself with this exit code."""
    done = subprocess.run(command(line), cwd=ROOT, env={**os.environ, **env}, capture_output=True, text=True, timeout=40)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@contextmanager
def running(line: str, log: Path, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """`python <line>` until TERM ends it with exit code 0."""
    with log.open("wb") as out:
        process = subprocess.Popen(command(line), cwd=ROOT, env={**os.environ, **env}, stdout=out, stderr=out)
    try:
        eventually(lambda: "ready for jobs" in log.read_text() or process.poll() is not None)
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(15) == 0, log.read_text()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)


def test_worker_customq_sms(conn: redis.Redis) -> None:
    sms = Queue("sms").enqueue(basic.add, 1, 2)
    email = Queue("email").enqueue(basic.add, 1, 2)
    run("run_worker.py worker --customq sms --burst", **TASKS)
    assert (sms.wait(0), sms.result) == ("finished", 3)
    assert email.get_status() == "queued"


def test_a_worker_from_start_to_term(conn: redis.Redis, tmp_path: Path) -> None:
    """`worker`, `info`, `info -W`, `suspend`, `resume`, and the signal that ends it."""
    seen, log, pid_file = tmp_path / "seen", tmp_path / "log", tmp_path / "pid"
    Queue("email").enqueue(basic.noop, priority=2)
    line = f"run_worker.py worker --customq sms --pid {pid_file}"
    with running(line, log, FUSION_IDLE_WAIT="0.2", **TASKS) as process:
        assert int(pid_file.read_text()) == process.pid
        assert Queue("sms").enqueue(basic.add, 1, 2).wait(15) == "finished"
        eventually(lambda: "idle" in run("run_worker.py info -W"))
        everything, workers = run("run_worker.py info"), run("run_worker.py info -W")
        name = next(iter(conn.smembers("rq:workers"))).decode().removeprefix("rq:worker:")
        assert str(process.pid) in name
        assert name in everything
        assert "email" in everything
        assert name in workers
        assert "email" not in workers

        run("run_worker.py suspend")
        eventually(lambda: "suspended: no job is taken" in log.read_text())
        jobs = [Queue("sms").enqueue(basic.witness, str(seen), "x") for _ in range(3)]
        eventually(lambda: conn.exists("rq:wake:sms") == 0)  # it was woken, and took nothing
        assert [job.get_status() for job in jobs] == ["queued"] * 3
        assert "suspended" in run("run_worker.py info")
        run("run_worker.py resume")
        assert [job.wait(15) for job in jobs] == ["finished"] * 3
    assert len(list(lines(seen))) == 3
    assert conn.smembers("rq:workers") == set()
    assert not pid_file.exists()


def test_worker_c_instance_customq_all(conn: redis.Redis, tmp_path: Path) -> None:
    """`instance` is a module of the service's own; an installed one comes before wrappers.instance."""
    (tmp_path / "instance.py").write_text("QUEUES = ['orders', 'sms']\nTASKS = ['tests.jobs.basic']\nNAME = 'of-instance'\n")
    paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    with running("run_worker.py worker -c instance --customq all", tmp_path / "log", PYTHONPATH=paths):
        jobs = [Queue(name).enqueue(basic.noop) for name in ("orders", "sms")]
        assert [job.wait(15) for job in jobs] == ["finished"] * 2
        assert {job.worker_name for job in jobs} == {"of-instance"}
        late = Queue("of_today").enqueue(basic.noop)
        assert late.wait(15) == "finished"  # known, not reserved


@pytest.mark.long
def test_requeue_all(conn: redis.Redis, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    jobs = [Queue(name).enqueue("tests.jobs.basic.flaky", str(seen), 1, name, priority=2) for name in ("sms", "email")]
    for job in jobs:
        conn.hset(f"rq:job:{job.id}", "retry", '{"max": 0}')
    listed = Queue("scheduler").enqueue(basic.boom)
    run("run_worker.py worker sms email scheduler --burst", **TASKS)
    assert [job.get_status() for job in (*jobs, listed)] == ["failed"] * 3
    assert "3 jobs requeued" in run("run_worker.py requeue --all")
    assert conn.zcard("rq:queue:failed") == 0
    again = Job.fetch_many([*(job.id for job in jobs), listed.id])
    assert [(job.origin, job.priority, job.get_status()) for job in again if job] == [
        ("sms", 2, "queued"),
        ("email", 2, "queued"),
        ("scheduler", 1, "queued"),
    ]
    assert conn.type("rq:queue:sms") == b"zset"
    run("run_worker.py worker sms email scheduler --burst", **TASKS)
    assert [job.get_status() for job in (*jobs, listed)] == ["finished", "finished", "failed"]
    assert "0 jobs requeued" in run("run_worker.py requeue --all --queue sms")


def test_no_redis_is_one_line(conn: redis.Redis) -> None:
    line = command("run_worker.py worker --customq sms -u redis://127.0.0.1:1/0")
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "can't be reached" in done.stderr
    assert "--url" in done.stderr
