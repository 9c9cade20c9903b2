"""Everything that runs in a soak: one Redis, workers, schedulers, a relay, a producer. What dies is started again, as systemd would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from fusion.kernel.linux import Children, become_subreaper
from fusion.store.redis_server.binary import ServerBinary, find_server
from tests.faults.soak.cutter import Cutter
from tests.faults.soak.people import Person
from tests.faults.soak.plan import LEASE, QUEUES, REAP_INTERVAL, RUSH, TASKS, Job
from tests.faults.soak.tasks import COROUTINES, WITNESS
from tests.kit.private_redis import PrivateRedis
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.kit.witnesses import arguments_of
from tests.kit.workers import WorkerProcess

#: Jobs that each worker runs at a time.
SLOTS = 2
#: The flag for them, by the executor; the others have --slots.
_PLACES = {"thread": "--threads", "asyncio": "--concurrency"}


class SoakRedis(PrivateRedis):
    """Its AOF is never rewritten: it is the history of all that happened."""

    def __init__(self, home: Path, binary: ServerBinary) -> None:
        # Not by CONFIG SET: a server with a long AOF begins to rewrite it as soon as it is up.
        starter = home / "never-rewrites"
        starter.write_text(f'#!/bin/sh\nexec "{binary.path}" "$@" --auto-aof-rewrite-percentage 0\n')
        starter.chmod(0o700)
        super().__init__(str(home), ServerBinary(str(starter), binary.name, binary.version))


@dataclass(eq=False)
class Post:
    """A place that is to be filled, and who fills it."""

    name: str
    start: Callable[[Path], WorkerProcess]
    directory: Path
    process: WorkerProcess = field(init=False)
    starts: int = 0

    def fill(self) -> None:
        self.starts += 1
        self.process = self.start(self.directory / f"{self.name}.log")

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def alive(self) -> bool:
        return self.process.process.poll() is None


class Fleet:
    """`worker_args` go to every worker, e.g. `--horses 2`. Half of the processes reach Redis through `cutter`, half of them directly.
    The short jobs of a `rush` have the supervisor's workers and one more to themselves: others would make them look long."""

    def __init__(self, home: Path, seed: int, jobs: int, rush: int, worker_args: Sequence[str], tied: Sequence[Job]) -> None:
        become_subreaper()  # whatever a killed process leaves behind comes here, where it is counted
        self._children = Children()
        self.home, self.events, self.witness = home, home / "events.jsonl", home / "witness"
        self.witness.touch()
        named = os.environ.get("FUSION_TEST_REDIS_SERVER")
        binary = find_server({**os.environ, "FUSION_REDIS_SERVER": named} if named else None)
        for name in [name for name in os.environ if name.startswith(("FUSION_", "RQ_", "REDIS_"))]:
            del os.environ[name]  # nothing of the shell's settings
        self.redis = SoakRedis(home, binary)
        self.conn = self.redis.conn
        self.person = Person(self.redis.url, home / "acknowledged", self.witness, tied)
        self.cutter = Cutter(home / "cut.sock", home / "redis.sock")
        self._env = {
            "FUSION_TASKS": TASKS,
            "FUSION_HOME": str(home),
            "FUSION_LEASE": f"{LEASE:g}",
            "FUSION_REAP_INTERVAL": f"{REAP_INTERVAL:g}",
            "FUSION_SOCKET_TIMEOUT": "1",
            **({"FUSION_EVENTS_CAP": "100000", "FUSION_CLAIM_AHEAD": "100"} if rush else {}),  # short on a busy machine, too
            WITNESS: str(self.witness),
            **({COROUTINES: "1"} if "asyncio" in worker_args else {}),
        }
        flags = ("--no-relay", *_places(worker_args), *worker_args)
        work, short = (*QUEUES, *flags), (*((RUSH,) if rush else QUEUES), *flags)
        direct, cut = self.redis.url, self.cutter.url
        self.service = self._post("service", direct, "start", "-n", "2", "--no-scheduler", *short)
        takes = [work, work, short] if rush else [work, work]
        self.workers = [self._post(f"worker{n}", cut, "worker", *args) for n, args in enumerate(takes, 1)]
        self.schedulers = [self._post("scheduler1", direct, "scheduler"), self._post("scheduler2", cut, "scheduler")]
        self.relay = self._post("relay", cut, "relay", "--events-file", str(self.events))
        self.posts = [self.relay, *self.schedulers, self.service, *self.workers]
        self._produce = [sys.executable, "-m", "tests.faults.soak.producer", str(seed), str(jobs), str(rush), str(home)]
        self.producer: subprocess.Popen[bytes] | None = None
        self._allowed = 0

    def _post(self, name: str, url: str, command: str, *args: str) -> Post:
        program = ("run_worker.py", command)
        return Post(name, lambda log: WorkerProcess(url, log, *args, env=self._env, program=program), self.home)

    # -- life

    def start(self) -> None:
        """The relay first, so that no event is from before it."""
        for post in self.posts:
            post.fill()
            if post is self.relay:
                eventually(lambda: self.conn.zcard("rq:relays"), 30, why="the relay is in the list of relays")

        def complete() -> bool:
            self.tend()  # on a busy machine Redis may not have answered one in time
            return len(self.all_workers()) == 2 + len(self.workers) and self.are_listed()

        eventually(complete, 120, why="all workers are in the list of workers")
        self.start_producer()

    def start_producer(self) -> None:
        env = {**os.environ, **self._env, "FUSION_REDIS_URL": self.cutter.url}
        with (self.home / "producer.log").open("ab") as log:
            self.producer = subprocess.Popen(
                self._produce, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )
        self.allow(self._allowed)

    def allow(self, jobs: int) -> None:
        """The producer may go so far."""
        self._allowed = jobs
        assert self.producer is not None and self.producer.stdin is not None
        try:
            self.producer.stdin.write(b"%d\n" % jobs)
            self.producer.stdin.flush()
        except BrokenPipeError:
            pass  # it has done all of it, or was killed: the next one gets it again

    def tend(self) -> None:
        """Start again what is dead, and collect the orphans that were handed to us."""
        for post in self.posts:
            if not post.alive:
                post.fill()
        if self.producer is not None and self.producer.poll() not in (None, 0):
            self.start_producer()
        self.person.act()
        self._collect()

    def _collect(self) -> None:
        ours = {post.pid for post in self.posts} | {self.redis.process.pid} | ({self.producer.pid} if self.producer else set())
        for pid in self._children.pids():
            if pid not in ours:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass

    # -- who is there

    def listed(self) -> set[int]:
        """Pids that the list of workers names: workers, and the relay, whose courier is one."""
        return {int(self.conn.hget(key, "pid") or 0) for key in self.conn.smembers("rq:workers")}

    def are_listed(self) -> bool:
        """All workers are, and nobody who is dead."""
        workers = {process.pid for process in self.all_workers()}
        return workers <= self.listed() <= workers | {self.relay.pid}

    def all_workers(self) -> list[psutil.Process]:
        """Plain ones and the supervisor's, whatever they are about."""
        return [process for post in (*self.workers, self.service) for process in _workers_of(post)]

    def left(self) -> list[psutil.Process]:
        """Descendants that still run, zombies not counted; Redis not either."""
        self._collect()
        redis = self.redis.process.pid
        return [child for child in psutil.Process().children(recursive=True) if child.pid != redis and _runs(child)]

    # -- the end

    def stop(self) -> dict[str, int | None]:
        """TERM to all; exit codes by post, None for one that had to be killed."""
        codes: dict[str, int | None] = {}
        for post in self.posts:
            post.process.signal(signal.SIGTERM)
        for post in self.posts:
            try:
                codes[post.name] = post.process.process.wait(60)
            except subprocess.TimeoutExpired:
                codes[post.name] = None
        return codes

    def close(self) -> None:
        """No process of it stays, whatever happened before."""
        for process in psutil.Process().children(recursive=True):
            if process.pid != self.redis.process.pid:
                _end(process)
        for started in [*(post.process.process for post in self.posts if post.starts), *filter(None, [self.producer])]:
            started.wait(10)
        self.cutter.close()
        self.redis.close()
        self._collect()


def _places(worker_args: Sequence[str]) -> tuple[str, ...]:
    """The flag that gives a worker its slots, if `worker_args` do not."""
    flag = next((_PLACES[word] for word in worker_args if word in _PLACES), "--slots")
    return () if flag in worker_args else (flag, str(SLOTS))


def _workers_of(post: Post) -> Iterator[psutil.Process]:
    try:
        process = psutil.Process(post.pid)
        yield from [process] if post.name.startswith("worker") else (c for c in process.children() if "worker" in arguments_of(c))
    except psutil.NoSuchProcess:
        return


def told_of(process: psutil.Process) -> str:
    """For people: who is it, whose, since when, and what is it doing."""
    try:
        with process.oneshot():
            age, line = time.time() - process.create_time(), " ".join(process.cmdline())
            said = f"{process.pid}, child of {process.ppid()}, {process.status()}, {age:.1f} s old, {process.num_threads()} threads: {line}"
        files = [f"{name} {os.readlink(f'/proc/{process.pid}/fd/{name}')}" for name in os.listdir(f"/proc/{process.pid}/fd")]
        waits = Path(f"/proc/{process.pid}/wchan").read_text()
        state = [
            line
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
            if line.startswith(("State", "Sig", "Shd"))
        ]
        return f"{said}; in {waits}; {', '.join(files)}; {', '.join(state)}"
    except (psutil.Error, OSError) as error:
        return f"{process.pid} is gone: {error}"


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _end(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        pass
