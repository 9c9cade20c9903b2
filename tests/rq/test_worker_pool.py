"""RQ's WorkerPool: a program that keeps several workers, ends them by a signal and replaces those that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from click.testing import CliRunner

from fusion.exceptions import ConfigurationError
from fusion.rq import Queue, Retry, SimpleWorker, Worker
from fusion.rq.cli import main
from fusion.rq.worker_pool import WorkerPool
from fusion.settings import use_settings
from tests.faults.rig.conservation import check_conservation
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.rq import tasks_of_rq as tasks


@contextmanager
def pool_in_a_program(redis_url: str, **options: object) -> Iterator[subprocess.Popen[str]]:
    """A program that keeps two workers of `work`."""
    program = (
        # A shell makes what it starts in the background ignore QUIT.
        "import redis, signal\nfrom fusion.rq.worker_pool import WorkerPool\nsignal.signal(signal.SIGQUIT, signal.SIG_DFL)\n"
        f"WorkerPool(['work'], redis.Redis.from_url({redis_url!r}), num_workers=2, **{options!r}).start()\n"
    )
    running = subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True
    )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


@pytest.mark.parametrize("worker_class", [Worker, SimpleWorker])
def test_a_burst_runs_all_that_waits(client: redis.Redis, queue: Queue, worker_class: type[Worker]) -> None:
    jobs = [queue.enqueue(tasks.add, n) for n in range(6)]
    pool = WorkerPool([queue], client, num_workers=2, worker_class=worker_class)
    pool.start(burst=True)
    assert [job.result for job in jobs] == list(range(6))
    assert pool.all_workers_have_stopped() and Worker.count(client) == 0


def test_a_signal_ends_the_workers_when_their_jobs_are_done(client: redis.Redis, redis_url: str, queue: Queue) -> None:
    with pool_in_a_program(redis_url) as running:
        job = queue.enqueue(tasks.nap, 2)
        eventually(lambda: job.is_started and Worker.count(client) == 2, timeout=60)
        for _ in range(2):  # a platform may send it twice
            running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
        assert job.is_finished and Worker.count(client) == 0


def test_a_worker_that_dies_is_replaced_and_its_job_goes_back_at_once(client: redis.Redis, redis_url: str, queue: Queue) -> None:
    with pool_in_a_program(redis_url) as running:
        eventually(lambda: Worker.count(client) == 2, timeout=60)
        job = queue.enqueue(tasks.nap, 60)
        eventually(lambda: job.is_started, timeout=30)
        dead = next(one for one in Worker.all(client) if one.get_current_job_id() == job.id)
        assert dead.pid
        os.kill(dead.pid, signal.SIGKILL)
        eventually(lambda: job.is_failed, timeout=12)  # the lease is 15 s; without `retry=` a lost job fails
        eventually(lambda: Worker.count(client) == 2 and dead not in Worker.all(client), timeout=30)
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0


def test_workers_end_with_the_program_that_started_them(client: redis.Redis, redis_url: str) -> None:
    with pool_in_a_program(redis_url) as running:
        eventually(lambda: Worker.count(client) == 2, timeout=60)
        running.kill()
        eventually(lambda: Worker.count(client) == 0, timeout=30)


def test_what_can_not_start_is_an_error_of_the_program(
    client: redis.Redis, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotImplementedError, match="SimpleWorker"):
        WorkerPool([queue], client, worker_class=SimpleWorker).start()
    monkeypatch.delenv("FUSION_TASKS")
    use_settings(None)
    with pytest.raises(ConfigurationError, match="FUSION_TASKS="):
        WorkerPool([queue], client).start()


def test_the_command_runs_a_pool(client: redis.Redis, redis_url: str, queue: Queue) -> None:
    job = queue.enqueue(tasks.add, 3)
    done = CliRunner().invoke(main, ["worker-pool", "work", "-u", redis_url, "-b", "-n", "2"])
    assert done.exit_code == 0, done.output
    assert job.result == 3


def test_a_quit_signal_ends_the_pool_at_once_and_its_workers_when_their_jobs_are_done(
    client: redis.Redis, redis_url: str, queue: Queue, tmp_path: Path
) -> None:
    begun = tmp_path / "begun"
    with pool_in_a_program(redis_url) as running:
        eventually(lambda: Worker.count(client) == 2, timeout=60)
        job = queue.enqueue(tasks.nap_once, str(begun), 2)
        eventually(begun.exists, timeout=30)  # Redis says that it has started before its worker is busy
        running.send_signal(signal.SIGQUIT)
        assert running.wait(30) == -signal.SIGQUIT
        eventually(lambda: Worker.count(client) == 0, timeout=60)
        assert job.is_finished and check_conservation(client, [job.id]) == {job.id: "finished"}


def test_a_second_signal_gives_the_running_jobs_back_to_their_place(client: redis.Redis, redis_url: str, queue: Queue) -> None:
    with pool_in_a_program(redis_url) as running:
        eventually(lambda: Worker.count(client) == 2, timeout=60)
        first, second, waiting = (queue.enqueue(tasks.nap, 60) for _ in range(3))
        eventually(lambda: first.is_started and second.is_started, timeout=30)
        running.send_signal(signal.SIGTERM)
        time.sleep(1.5)  # sooner it is the same signal, sent twice
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
        assert queue.job_ids == [first.id, second.id, waiting.id]
        states = check_conservation(client, queue.job_ids)
        assert set(states.values()) == {"queued"} and Worker.count(client) == 0


@pytest.mark.parametrize("retry", [None, Retry(max=1)])
def test_a_burst_leaves_no_job_to_a_worker_that_was_killed(
    client: redis.Redis, redis_url: str, queue: Queue, burst: Callable[..., bool], retry: Retry | None, tmp_path: Path
) -> None:
    job = queue.enqueue(tasks.nap_once, str(tmp_path / "napped"), 60, retry=retry)
    program = (
        "import redis\nfrom fusion.rq.worker_pool import WorkerPool\n"
        f"WorkerPool(['work'], redis.Redis.from_url({redis_url!r})).start(burst=True)\n"
    )
    running = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        eventually(lambda: job.is_started and (tmp_path / "napped").exists(), timeout=60)
        (worker,) = Worker.all(client)
        assert worker.pid
        os.kill(worker.pid, signal.SIGKILL)
        assert running.wait(60) == 0
    finally:
        running.kill()
    status = check_conservation(client, [job.id])[job.id]
    assert status == ("failed" if retry is None else "queued") and Worker.count(client) == 0
    burst()
    assert job.is_failed if retry is None else job.result == "slept"
