"""The measurements, the same for every contender. They count runs of the task, by a file in which each run leaves a trace, and requests, as
Redis counts them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.peers.base import Peer
from benchmarks.server import Server

ROOT = Path(__file__).resolve().parents[1]
#: Seconds without progress after which a contender is taken to be stuck.
STUCK = 60.0


@dataclass(frozen=True)
class Drain:
    """The rate of workers, and its price.

    `requests`: sent to Redis by the workers, per job. `connections`: new ones per job. `memory`: MiB (PSS) of all worker processes.
    """

    jobs_per_second: float
    requests: float
    connections: float
    memory: float


class Bench:
    """One contender on one server, from an empty database."""

    def __init__(self, server: Server, key: str, peer: Peer) -> None:
        self.server, self.key, self.peer = server, key, peer
        self.witness = Path(tempfile.mkstemp(prefix="fusb", dir="/tmp")[1])
        self.env = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "BENCH_REDIS_URL": server.url,
            "BENCH_WITNESS": str(self.witness),
            "FUSION_REDIS_URL": server.url,
            **dict(peer.env),
        }
        server.conn.flushall()
        server.conn.script_flush()

    def close(self) -> None:
        """Remove the file of traces."""
        self.witness.unlink(missing_ok=True)

    def produce(self, *arguments: str) -> str:
        """Run `benchmarks.produce` and return what it prints. Raises RuntimeError if it fails."""
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.produce", self.key, *arguments],
            cwd=ROOT,
            env=self.env,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise RuntimeError(f"{self.peer.name}: producer failed: {done.stderr.strip()[-500:]}")
        return done.stdout

    def fill(self, jobs: int, size: int = 0, task: str = "noop") -> None:
        """Enqueue, as fast as the library can."""
        self.produce("fill", task, str(jobs), str(size))

    def rate(self, what: str, jobs: int, size: int = 0) -> float | None:
        """Jobs/s of one producer, by `one` or `many`; None if the library has no such call."""
        answer = self.produce(what, "noop", str(jobs), str(size))
        return jobs / float(answer) if answer else None

    def bytes_per_job(self, jobs: int, size: int) -> float:
        """Bytes of Redis' memory that a waiting job takes, with arguments of `size` bytes."""
        self.fill(1, size)  # what is made once: queues' names, counters, scripts
        before = self.server.used()
        self.fill(jobs, size)
        return (self.server.used() - before) / jobs

    @contextmanager
    def workers(self, processes: int, commands: list[list[str]] | None = None) -> Iterator[list[subprocess.Popen[bytes]]]:
        """Have the contender's workers run, or these commands, and end them and all that they started afterwards."""
        started = [
            subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for command in commands or self.peer.commands(processes, self.server.url)
        ]
        try:
            yield started
        finally:
            for process in started:
                stop(process)

    def drain(self, jobs: int, processes: int, commands: list[list[str]] | None = None) -> Drain:
        """Have workers run what was enqueued. The clock runs from the end of the first tenth, so that their start does not count.

        Raises RuntimeError if a worker ends, or if none runs a job for STUCK seconds.
        """
        with self.workers(processes, commands) as workers:
            first = self._until(jobs // 10, workers)
            began, (requests, connections) = time.perf_counter(), self.server.counters()
            self._until(jobs // 2, workers)
            memory = sum(_pss(worker.pid) for worker in workers)
            last = self._until(jobs, workers)
            seconds = time.perf_counter() - began
            now_requests, now_connections = self.server.counters()
        done = last - first
        return Drain(done / seconds, (now_requests - requests) / done, (now_connections - connections) / done, memory)

    def latency(self, jobs: int, processes: int = 1, gap: float = 0.02) -> tuple[float, float]:
        """p50 and p99 in ms from the call of `enqueue` to the start of the task, on an idle worker."""
        with self.workers(processes) as workers:
            self.produce("one", "noop", "3", "0")
            self._until(3, workers)
            self.witness.write_bytes(b"")
            self.produce("latency", str(jobs), str(gap))
        return self.starts()

    def starts(self) -> tuple[float, float]:
        """p50 and p99 in ms of the starts that `benchmarks.tasks.stamp` has noted."""
        times = sorted((int(b) - int(a)) / 1e6 for a, b in (line.split() for line in self.witness.read_text().splitlines()))
        return times[len(times) // 2], times[min(len(times) - 1, len(times) * 99 // 100)]

    def _until(self, wanted: int, workers: list[subprocess.Popen[bytes]]) -> int:
        seen, moved = -1, time.monotonic()
        while (count := self.witness.stat().st_size) < wanted:
            if count > seen:
                seen, moved = count, time.monotonic()
            ended = [worker.returncode for worker in workers if worker.poll() is not None]
            if ended or time.monotonic() - moved > STUCK:
                raise RuntimeError(
                    f"{self.peer.name}: {count} of {wanted} jobs after its workers {f'ended: {ended}' if ended else 'stopped'}"
                )
            time.sleep(0.002)
        return count


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process by SIGTERM, after ten seconds by SIGKILL, and kill what is left of the processes that it started."""
    tree = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
    for child in tree:
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue


def _pss(pid: int) -> float:
    """MiB of a process and all below it, shared pages by their share."""
    root = psutil.Process(pid)
    total = 0
    for process in [root, *root.children(recursive=True)]:
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total / 1024**2
