"""One of the two versions at work: a Redis, a producer and a worker of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.contestant import stop
from benchmarks.cpu import own
from benchmarks.server import Server

#: The code that runs on either side.
DRIVEN = Path(__file__).parent / "driven"
#: Seconds within which a worker has to run its first jobs.
_LIMIT = 60.0
#: Seconds for what a stopped worker's processes still have in hand.
_SETTLE = 0.01


@dataclass
class Reading:
    """Totals at one moment, or the difference of two: jobs that were started, CPU seconds by kind of process, and the counters of Redis.

    `requests`: reads from sockets, so that a script or a pipeline is one. `scripts` and `script_us`: calls of EVALSHA and their time.
    `calls`: commands that scripts called.
    """

    jobs: int = 0
    cpu: dict[str, float] = field(default_factory=dict)
    requests: int = 0
    scripts: int = 0
    script_us: int = 0
    calls: int = 0

    def since(self, before: Reading) -> Reading:
        """The difference; the request that read `self` is not counted."""
        cpu = {kind: seconds - before.cpu.get(kind, 0.0) for kind, seconds in self.cpu.items()}
        return Reading(
            self.jobs - before.jobs,
            cpu,
            self.requests - before.requests - 1,
            self.scripts - before.scripts,
            self.script_us - before.script_us,
            self.calls - before.calls,
        )

    def add(self, other: Reading) -> None:
        """Sum up."""
        self.jobs += other.jobs
        self.cpu = {kind: self.cpu.get(kind, 0.0) + seconds for kind, seconds in other.cpu.items()}
        self.requests += other.requests
        self.scripts += other.scripts
        self.script_us += other.script_us
        self.calls += other.calls


class Side:
    """A version between its start and its end, as a context manager. `worker`: flags of its worker, or None for none.

    The worker stands still (SIGSTOP) but for `run_worker` and `let_run`.
    """

    def __init__(self, checkout: Path, home: Path, worker: Sequence[str] | None) -> None:
        self.checkout, self.home, self._flags = checkout, home, worker
        self.modules = self._filled = 0
        self._witness = home / "witness"

    def __enter__(self) -> Side:
        with ExitStack() as stack:
            self.home.mkdir(parents=True)
            self._witness.touch()
            self.server = stack.enter_context(Server())
            prefer(self.server.process)
            self.env = self._environment()
            self._producer = self._start([sys.executable, str(DRIVEN / "ab_producer.py")], subprocess.PIPE)
            stack.callback(self._end_producer)
            where = Path(str(self.order("where")))
            if self.checkout not in where.parents:
                raise RuntimeError(f"{where} was imported in place of the one in {self.checkout}")
            if self._flags is not None:
                self._worker = self._start(worker_command(self._flags))
                stack.callback(self._end_worker)
                self._warm_up()
            self._ends = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.close()

    def order(self, *words: object) -> Any:
        """Have the producer do something; see `ab_producer`. Raises RuntimeError if it ended instead."""
        assert self._producer.stdin
        assert self._producer.stdout
        self._producer.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self._producer.stdin.flush()
        answer = self._producer.stdout.readline()
        if not answer:
            raise RuntimeError(f"the producer of {self.checkout} ended: {self._last_words()}")
        return json.loads(answer)

    def let_run(self) -> None:
        """Wake the worker."""
        self._worker.send_signal(signal.SIGCONT)

    def hold(self) -> None:
        """Stop the worker. Raises RuntimeError if it has ended."""
        self._worker.send_signal(signal.SIGSTOP)
        if self._worker.poll() is not None:
            raise RuntimeError(f"the worker of {self.checkout} ended: {self._last_words()}")

    def fill_up(self, jobs: int) -> None:
        """Have at least this many jobs wait."""
        missing = jobs - (self._filled - self._witness.stat().st_size)
        if missing > 0:
            self.order("fill", missing)
            self._filled += missing

    def run_worker(self, seconds: float) -> float:
        """Let the worker run for this long, or until it starts a job; returns how long it really was.

        Raises RuntimeError if there were too few jobs.
        """
        before = self._witness.stat().st_size
        began = time.perf_counter()
        self.let_run()
        time.sleep(seconds)
        self._until(lambda: self._witness.stat().st_size > before)
        self.hold()
        took = time.perf_counter() - began
        time.sleep(_SETTLE)
        if self._witness.stat().st_size >= self._filled:
            raise RuntimeError("the jobs of a slice ran out before its end")
        return took

    def read(self) -> Reading:
        """All that was done so far. Sends one request to Redis."""
        info = self.server.conn.info("all")
        stats = {name: figures for name, figures in info.items() if name.startswith("cmdstat_")}
        script = stats.pop("cmdstat_evalsha", {"calls": 0, "usec": 0})
        inner = sum(figures["calls"] for name, figures in stats.items() if name != "cmdstat_info")
        return Reading(
            self._witness.stat().st_size, self._cpu(), info["total_reads_processed"], script["calls"], script["usec"], inner
        )

    @contextmanager
    def script_times(self) -> Iterator[dict[str, list[int]]]:
        """The microseconds of each call of a script in this block, by the script's keys: they are its name, since servers know no other."""
        conn, times = self.server.conn, defaultdict[str, list[int]](list)
        conn.config_set("slowlog-max-len", 1_000_000)
        conn.config_set("slowlog-log-slower-than", 0)
        conn.slowlog_reset()
        yield times
        conn.config_set("slowlog-log-slower-than", -1)
        for entry in conn.slowlog_get(1_000_000):
            command, *words = entry["command"].decode(errors="replace").split()
            if command == "EVALSHA":
                keys = words[2 : 2 + int(words[1])]
                times[re.sub(r"\d+", "*", " ".join(keys))].append(entry["duration"])

    def _warm_up(self) -> None:
        """Wait until the worker has run its first jobs, among them the one that counts modules; then stop it."""
        self.order("census")
        self._until(lambda: self._witness.read_bytes().endswith(b"\n"))
        self.modules = int(self._witness.read_bytes())
        self._witness.write_bytes(b"")
        self.fill_up(50)
        self._until(lambda: self._witness.stat().st_size == self._filled)
        for forkserver in psutil.Process(self._worker.pid).children():
            prefer(forkserver.pid)
        self.hold()

    def _until(self, condition: Callable[[], bool]) -> None:
        until = time.monotonic() + _LIMIT
        while not condition():
            if self._worker.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the worker of {self.checkout} runs no jobs: {self._last_words()}")
            time.sleep(0.005)

    def _cpu(self) -> dict[str, float]:
        """CPU seconds by kind of process; those of horses that have ended are with the process that reaped them."""
        found = {"redis-server": own(self.server.process), "producer": own(self._producer.pid)}
        if self._flags is not None:
            forkservers = psutil.Process(self._worker.pid).children()
            reaped = [server.cpu_times() for server in forkservers]
            horses = [own(horse.pid) for server in forkservers for horse in server.children(recursive=True)]
            found["worker"] = own(self._worker.pid)
            found["fork server"] = sum(own(server.pid) for server in forkservers)
            found["horses"] = sum(times.children_user + times.children_system for times in reaped) + sum(horses)
        return found

    def _environment(self) -> dict[str, str]:
        """Our environment without any setting of Fusion. Compiled modules go to a place of their own, so that neither version finds more of them."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("FUSION_", "RQ_", "REDIS_"))}
        return {
            **ours,
            "PYTHONPATH": f"{self.checkout}{os.pathsep}{DRIVEN}",
            "PYTHONPYCACHEPREFIX": str(self.home / "compiled"),
            "AB_WITNESS": str(self._witness),
            "FUSION_REDIS_URL": self.server.url,
            "FUSION_TASKS": "ab_tasks",
        }

    def _start(self, command: list[str], output: int | None = None) -> subprocess.Popen[bytes]:
        """A process in the checkout; unless told otherwise its output goes where its errors go."""
        with open(self.home / "errors", "ab") as errors:
            process = subprocess.Popen(
                command,
                cwd=self.checkout,
                env=self.env,
                stdin=subprocess.PIPE,
                stdout=output or errors,
                stderr=errors,
                start_new_session=True,
            )
        prefer(process.pid)
        return process

    def _end_producer(self) -> None:
        assert self._producer.stdin
        self._producer.stdin.close()
        self._producer.wait(10)

    def _end_worker(self) -> None:
        self.let_run()
        stop(self._worker)

    def _last_words(self) -> str:
        return (self.home / "errors").read_text().strip()[-500:] or "it said nothing"


def worker_command(flags: Sequence[str]) -> list[str]:
    """The command line of a worker, for the directory of a checkout."""
    return [sys.executable, "-m", "fusion", "worker", *flags]


def prefer(pid: int) -> None:
    """Give the session of a process our own niceness: where the kernel shares the CPU among sessions first, that of its processes says little."""
    group = Path(f"/proc/{pid}/autogroup")
    if os.nice(0) and group.exists():
        group.write_text(str(os.nice(0)))
