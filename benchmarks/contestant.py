"""One contender at work: a Redis, a producer and workers of its own, which stand still while others are measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks import cpu
from benchmarks.guard import guarded_home
from benchmarks.peers.base import Conditions, Peer
from benchmarks.peers.registry import peer
from benchmarks.server import Server

ROOT = Path(__file__).resolve().parents[1]
#: Seconds within which workers have to run a job.
LIMIT = 60.0
#: Seconds without another run of the task after which held workers have nothing in hand any more.
_SETTLE = 0.01
#: The same where a process runs many at a time, which may wait for 20 ms.
_LAST = 0.05


@dataclass(frozen=True)
class Reading:
    """Totals at one moment: runs of the task, CPU seconds by kind of process, requests to Redis (reads from sockets: a pipeline or a script
    counts once) and connections."""

    jobs: int
    cpu: dict[str, float]
    requests: int
    connections: int


@dataclass(frozen=True)
class Slice:
    """What was done in this many seconds: `jobs`; `before` and `after` are the readings around it, in which what was in hand has ended."""

    seconds: float
    jobs: int
    before: Reading
    after: Reading


class Contestant:
    """A contender under conditions, as a context manager. Its workers run unless they are held (`hold`, `let_run`).

    `working`: without it there is a producer alone. A contender whose library is not installed raises ImportError when it is made.
    """

    def __init__(self, key: str, asked: Conditions, http: str = "", working: bool = True) -> None:
        self.key, self.asked, self.peer = key, asked, peer(key)
        self._http, self._working = http, working
        self._workers: list[subprocess.Popen[bytes]] = []
        self._filled, self._pace = 0, 100.0

    def __enter__(self) -> Contestant:
        with ExitStack() as stack:
            self.home = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=guarded_home())))
            self._witness = self.home / "witness"
            self._witness.touch()
            self.server = stack.enter_context(Server())
            self.url = self.server.socket if self.asked.unix else self.server.url
            self.env = self._environment(self.peer)
            if self.peer.producer:
                self._producer = self._start(["-m", "benchmarks.produce", self.key], subprocess.PIPE)
                stack.callback(self._end_producer)
            if self._working:
                stack.callback(self._end_workers)
                self._workers = [self._start(command) for command in self.peer.commands(self.asked, self.url)]
                self._fill(3)
                self.until(lambda: self.jobs >= 3)
            self._ends = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()

    @property
    def jobs(self) -> int:
        """Runs of the task so far."""
        return self._witness.stat().st_size

    @property
    def pids(self) -> list[int]:
        """The processes of its workers that were started here."""
        return [worker.pid for worker in self._workers]

    def last_start(self) -> float:
        """Milliseconds that the last run of `benchmarks.tasks.stamp` began after its call."""
        # a line that crosses a page of memory can be read before its second half is written
        self.until(lambda: self._witness.read_bytes().endswith(b"\n"))
        sent, started = self._witness.read_bytes().rstrip(b"\n").rpartition(b"\n")[2].lstrip(b".").split()
        return (int(started) - int(sent)) / 1e6

    def order(self, *words: object) -> Any:
        """Have the producer do something; see `benchmarks.produce`. Raises RuntimeError if it ended instead."""
        assert self._producer.stdin
        assert self._producer.stdout
        self._producer.stdin.write((json.dumps(words) + "\n").encode())
        self._producer.stdin.flush()
        answer = self._producer.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self.peer.name}: its producer ended: {self._last_words()}")
        return json.loads(answer)

    def slice(self, seconds: float) -> Slice:
        """Let held workers with more jobs than they can run work for this long, or until they have run one; hold them again.

        As many jobs wait at the start as it takes: what is too few shows in a slice, which is then not counted.
        """
        while True:
            taken = self.asked.processes * self.asked.at_once  # when it is held, what it has in hand is run
            self.fill_up(max(int(self._pace * seconds) + 20, self.asked.waiting) + taken)
            found = self._slice(seconds)
            rate = found.jobs / found.seconds
            short = self._filled and found.after.jobs >= self._filled
            self._pace = 3 * max(rate, self._pace) if short else max(2 * rate, 10.0)
            if not short:
                return found

    def fill_up(self, jobs: int) -> None:
        """Have at least this many jobs wait."""
        if (missing := jobs - (self._filled - self.jobs)) > 0:
            self._fill(missing)

    def let_run(self) -> None:
        """Wake the workers."""
        self._signal([*self._held(), *self.pids], signal.SIGCONT)

    def hold(self) -> None:
        """Have the workers stand still, and wait until they do. Raises RuntimeError if one has ended."""
        self._signal([*self.pids, *self._held()], signal.SIGSTOP)
        self.until(lambda: all(psutil.Process(pid).status() == psutil.STATUS_STOPPED for pid in self.pids))

    def read(self) -> Reading:
        """All that was done so far. Sends one request to Redis, which is not counted."""
        used = {"Redis": cpu.own(self.server.process)} if self.peer.producer else {}
        for pid in self.pids:
            for kind, seconds in cpu.by_kind(pid, self.peer.kinds).items():
                used[kind] = used.get(kind, 0.0) + seconds
        requests, connections = self.server.counters()
        return Reading(self.jobs, used, requests, connections)

    def memory(self) -> float:
        """MiB (PSS) of all worker processes."""
        return sum(cpu.pss(pid) for pid in self.pids)

    def bytes_used(self) -> int:
        """Bytes of memory that Redis has in use, without Fusion's event log, which other queues do not have."""
        return self.server.used()

    def until(self, condition: Callable[[], bool], limit: float = LIMIT) -> None:
        """Wait. Raises RuntimeError if a worker ends, or after this many seconds."""
        end = time.monotonic() + limit
        while not condition():
            self._check()
            if time.monotonic() > end:
                raise RuntimeError(f"{self.peer.name} runs no jobs: {self._last_words()}")
            time.sleep(0.001)

    def _slice(self, seconds: float) -> Slice:
        before = self.read()
        held = self._held()
        began = time.perf_counter()
        self.let_run()
        time.sleep(seconds)
        self.until(lambda: self.jobs > before.jobs)
        self._signal([*self.pids, *held], signal.SIGSTOP)
        jobs, took = self.jobs - before.jobs, time.perf_counter() - began
        self.hold()  # and what was started meanwhile
        self._settle()
        return Slice(took, jobs, before, self.read())

    def _settle(self) -> None:
        seen = -1
        while seen != (seen := self.jobs):
            time.sleep(_SETTLE if self.asked.at_once == 1 else _LAST)

    def _fill(self, jobs: int) -> None:
        if self.peer.producer:
            self.order("fill", self.asked.task, jobs, self.asked.size)
            self._filled += jobs

    def _held(self) -> list[int]:
        """What has to be stopped besides: a process that is sent its jobs has none then, and one that watches it would miss its answers."""
        return [] if self.peer.feeds else self._below()

    def _below(self) -> list[int]:
        """All that the workers started and that lives."""
        found = []
        for pid in self.pids:
            try:
                found += [process.pid for process, depth in cpu.tree(psutil.Process(pid)) if depth]
            except psutil.NoSuchProcess:
                continue
        return found

    def _signal(self, pids: list[int], signum: int) -> None:
        for pid in pids:
            try:
                os.kill(pid, signum)
            except ProcessLookupError:
                continue

    def _check(self) -> None:
        if ended := [worker.returncode for worker in self._workers if worker.poll() is not None]:
            raise RuntimeError(f"{self.peer.name}: its workers ended with {ended}: {self._last_words()}")

    def _environment(self, contender: Peer) -> dict[str, str]:
        """Ours without any setting of Fusion, and all that producers, workers and tasks have to know."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("FUSION_", "RQ_", "REDIS_"))}
        return {
            **ours,
            "PYTHONPATH": str(ROOT),
            "BENCH_REDIS_URL": self.url,
            "BENCH_WITNESS": str(self._witness),
            "BENCH_HTTP_URL": self._http,
            "BENCH_AT_ONCE": str(self.asked.at_once),
            "FUSION_REDIS_URL": self.url,
            "FUSION_TASKS": ",".join(self.asked.modules),
            "NO_PROXY": "127.0.0.1",
            **dict(contender.env),
        }

    def _start(self, command: list[str], output: int | None = None) -> subprocess.Popen[bytes]:
        """A process; unless told otherwise its output goes where its errors go, to a file."""
        with open(self.home / "log", "ab") as log:
            return subprocess.Popen(
                [sys.executable, *command],
                cwd=ROOT,
                env=self.env,
                stdin=subprocess.PIPE if output else subprocess.DEVNULL,
                stdout=output or log,
                stderr=log,
                start_new_session=True,
            )

    def _end_producer(self) -> None:
        assert self._producer.stdin
        self._producer.stdin.close()
        try:
            self._producer.wait(10)
        except subprocess.TimeoutExpired:
            self._producer.kill()
            self._producer.wait(10)

    def _end_workers(self) -> None:
        """Kill them: nobody waits for what is left to do."""
        self._signal(self.pids, signal.SIGSTOP)
        below = self._below()
        self._signal([*self.pids, *below], signal.SIGKILL)
        for worker in self._workers:
            worker.wait(10)
        self._signal(below, signal.SIGKILL)

    def _last_words(self) -> str:
        return (self.home / "log").read_text(errors="replace").strip()[-500:] or "it said nothing"


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
