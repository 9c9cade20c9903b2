"""Each contender drains a backlog of no-ops on the same Redis; the clock runs from its first job to its last."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Drain:
    """`rates`: jobs/s. `memory`: MiB of resident memory by process, while it drains."""

    jobs_per_second: float
    memory: dict[str, float]


def bare(jobs: int) -> Drain:
    out = subprocess.run(
        [sys.executable, "-m", "benchmarks.bare", str(jobs)], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return Drain(float(out.stdout), {})


def fusion(url: str, jobs: int, module: str) -> Drain:
    from fusion import Queue
    from fusion.store.connections import connect

    conn = connect(url)
    queue = Queue("default", conn)
    queue.enqueue_many([Queue.prepare_data(f"{module}.noop") for _ in range(jobs)])
    command = ["run_worker.py", "worker", "--quiet", "--url", url]

    def memory(worker: psutil.Process) -> dict[str, float]:
        (server,) = worker.children()
        return {
            "worker": _mib(worker),
            "fork server": _mib(server),
            "horse": max([_mib(h) for h in server.children()], default=0.0),
        }

    # in the environment, which replaces the default: --tasks would add to it, and the bundled tasks weigh more than what is measured
    return _drain(command, {"FUSION_TASKS": module}, lambda: int(conn.zcard("rq:finished:default")), jobs, memory)


def rq(url: str, jobs: int, module: str) -> Drain:
    import rq as rq_package

    conn = redis.Redis.from_url(url)
    queue = rq_package.Queue("rqbench", connection=conn)
    queue.enqueue_many([rq_package.Queue.prepare_data(f"{module}.noop") for _ in range(jobs)])
    command = ["-m", "rq.cli", "worker", "rqbench", "--quiet", "--url", url]

    def memory(worker: psutil.Process) -> dict[str, float]:
        return {"worker": _mib(worker), "horse": max([_mib(h) for h in worker.children()], default=0.0)}

    return _drain(command, {}, lambda: int(conn.zcard("rq:finished:rqbench")), jobs, memory)


def _drain(
    command: list[str],
    env: dict[str, str],
    finished: Callable[[], int],
    jobs: int,
    memory: Callable[[psutil.Process], dict[str, float]],
) -> Drain:
    """Start a worker, time it from a tenth of the backlog to the end: its start is not what is measured."""
    worker = subprocess.Popen([sys.executable, *command], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), **env})
    try:
        first = jobs // 10
        done = _until(finished, first, worker)
        started = time.perf_counter()
        found = memory(psutil.Process(worker.pid))
        last = _until(finished, jobs, worker)
        return Drain((last - done) / (time.perf_counter() - started), found)
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait(15)


def _until(finished: Callable[[], int], wanted: int, worker: subprocess.Popen[bytes]) -> int:
    while (count := finished()) < wanted:
        if worker.poll() is not None:
            raise RuntimeError(f"the worker ended with code {worker.returncode} after {count} of {wanted} jobs")
        time.sleep(0.005)
    return count


def _mib(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / 1024**2
    except psutil.NoSuchProcess:
        return 0.0
