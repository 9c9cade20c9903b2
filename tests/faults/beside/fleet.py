"""The processes of a run: those of Fusion, which the soak's fleet and monkey know, and beside them stock RQ's."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import psutil

from fusion.kernel.linux import Children, become_subreaper
from fusion.store.redis_server.binary import find_server
from tests.faults.beside import tasks
from tests.faults.beside.producer import ADOPTED, OURS, SHARED, SOAK, STOCK, THEIRS
from tests.faults.soak.fleet import SLOTS, Fleet, Post, _runs
from tests.faults.soak.monkey import Monkey
from tests.faults.soak.plan import LEASE, REAP_INTERVAL
from tests.faults.soak.tasks import WITNESS
from tests.kit.private_redis import PrivateRedis
from tests.kit.process import ProcessUnderTest
from tests.kit.waiting import eventually
from tests.kit.workers import WorkerProcess

#: Seconds until a process that was started is ready to be ended by TERM.
_YOUNG = 5.0
_CLOCK = "from rq_scheduler.scripts.rqscheduler import main; main()"
#: All keys with their types, some at a time.
_TYPES = """
local found = redis.call('SCAN', ARGV[1], 'COUNT', 500)
local answer = { found[1] }
for _, key in ipairs(found[2]) do
  answer[#answer + 1] = key
  answer[#answer + 1] = redis.call('TYPE', key)['ok']
end
return answer
"""


class StockProcess(ProcessUnderTest):
    """A process that runs stock RQ."""

    SETTINGS: ClassVar[dict[str, str]] = {}


class BesideFleet(Fleet):
    """`stock`: the folder of RQ's sources. What ends is started again."""

    def __init__(self, home: Path, stock: Path) -> None:
        become_subreaper()
        self._children = Children()
        self.home, self.witness, self.stock_witness = home, home / "witness", home / "witness.stock"
        self.witness.touch()
        self.stock_witness.touch()
        for name in [name for name in os.environ if name.startswith(("FUSION_", "RQ_", "REDIS_"))]:
            del os.environ[name]
        self.redis = PrivateRedis(str(home), find_server())
        self.conn = self.redis.conn
        self.conn.config_set("appendfsync", "everysec")
        self.producer = None
        both = {WITNESS: str(self.witness), tasks.WITNESS: str(self.stock_witness)}
        self._env = both | {
            "FUSION_TASKS": f"{SOAK},{STOCK}",
            "FUSION_HOME": str(home),
            "FUSION_LEASE": f"{LEASE:g}",
            "FUSION_REAP_INTERVAL": f"{REAP_INTERVAL:g}",
            "FUSION_EVENTS_CAP": "10000000",
            "FUSION_ADOPT_RQ": ADOPTED,
            "FUSION_ALLOW_PICKLE": "1",  # RQ's jobs are pickles
        }
        self._stock_env = both | {"RQ_REDIS_URL": self.redis.url, "PYTHONPATH": str(stock)}
        queues, flags = (OURS, SHARED, ADOPTED), ("--no-relay", "--slots", f"{SLOTS}")
        self.service = self._ours("service", "run_worker.py", "start", "-n", "2", "--no-scheduler", *flags, *queues)
        self.workers = [
            self._ours("worker1", "run_worker.py", "worker", *flags, *queues),
            self._ours("worker2", "-m", "fusion.rq", "worker", *queues),
        ]
        self.schedulers = [self._ours("scheduler", "run_worker.py", "scheduler")]
        self.producers = [self._ours(kind, "-m", "tests.faults.beside.producer", kind, str(home)) for kind in ("fusion", "door")]
        self.posts = [self.service, *self.workers, *self.schedulers, *self.producers]
        self.stock_workers = [
            self._stock("stock1", "-m", "rq.cli", "worker", "--with-scheduler", THEIRS, SHARED, ADOPTED),
            self._stock("stock2", "-m", "rq.cli", "worker", THEIRS),
        ]
        self.clock = self._stock("clock", "-c", _CLOCK, "-i", "1")
        self.stock_producer = self._stock("stock", "-m", "tests.faults.beside.producer", "stock", str(home))
        self.stock_posts = [*self.stock_workers, self.clock, self.stock_producer]
        self.struck: set[int] = set()
        self.clock_ends = 0
        self.types: dict[bytes, bytes] = {}
        self.complaints: list[str] = []
        self.samples, self._sampled = 0, 0.0
        self._seen = set[int]()

    def _ours(self, name: str, *program: str) -> Post:
        return Post(name, lambda log: WorkerProcess(self.redis.url, log, env=self._env, program=program), self.home)

    def _stock(self, name: str, *program: str) -> Post:
        return Post(name, lambda log: StockProcess(self.redis.url, log, *program, env=self._stock_env), self.home)

    # -- life

    def start(self) -> None:
        """Stock RQ first, so that the queue that both use is its list from the start."""
        self.stock_producer.fill()
        eventually(lambda: self.conn.type(f"rq:queue:{SHARED}") == b"list", 60, why="RQ's producer has its list")
        for post in [*self.stock_posts, *self.posts]:
            if post is not self.stock_producer and post not in self.producers:
                post.fill()

        def complete() -> bool:
            self.tend()
            return len(self.all_workers()) == 2 + len(self.workers) and self.are_listed()

        self.posts = [post for post in self.posts if post not in self.producers]
        eventually(complete, 300, why="all workers are in the list of workers")
        for post in self.producers:
            post.fill()
        self.posts += self.producers

    def tend(self) -> None:
        """Start again what is dead; each second compare the types of all keys, and look for the workers of stock RQ that live."""
        for post in [*self.posts, *self.stock_posts]:
            if not post.starts or post.alive:
                continue
            code = post.process.process.returncode
            if code == 0 and post in (*self.producers, self.stock_producer):
                continue  # it was told to stop
            if post is self.clock and post.pid not in self.struck:
                self.clock_ends += 1  # over a job of ours that is due (docs/operations.md)
            elif (post in self.stock_posts and post.pid not in self.struck) or (
                post in self.producers and code != -signal.SIGKILL
            ):
                self.complaints.append(f"{post.name} ended by itself with {code}")
            post.fill()
        self._collect()
        if time.monotonic() - self._sampled >= 1:
            self._sampled = time.monotonic()
            self.sample()

    def _collect(self) -> None:
        ours = {post.pid for post in [*self.posts, *self.stock_posts] if post.starts} | {self.redis.process.pid}
        for pid in self._children.pids():
            if pid not in ours:
                try:
                    os.waitpid(pid, os.WNOHANG)
                except ChildProcessError:
                    pass

    def sample(self) -> None:
        self.samples += 1
        cursor = b"0"
        while True:
            cursor, *flat = self.conn.eval(_TYPES, 0, cursor)
            for key, kind in zip(flat[::2], flat[1::2], strict=True):
                before = self.types.setdefault(key, kind)
                if kind not in (before, b"none"):
                    self.complaints.append(f"{key.decode()} was a {before.decode()}, and is a {kind.decode()}")
                    self.types[key] = kind
            if cursor == b"0":
                break
        alive = {post.pid for post in self.stock_workers if post.alive and post.pid not in self.struck}
        listed = self.listed()
        self.complaints += [f"RQ's worker {pid} lives, and left the list of workers" for pid in alive & self._seen - listed]
        self._seen = alive & listed

    def revive_scheduler(self) -> None:
        """End the worker of stock RQ that schedules, if it does not. One that starts while the lock of an ended one is left tries again after
        ten minutes only."""
        worker = self.stock_workers[0]
        if (
            not worker.alive
            or worker.pid in self.struck
            or self._age(worker) < 70
            or self.conn.exists(f"rq:scheduler-lock:{THEIRS}")
        ):
            return
        self.struck.add(worker.pid)
        worker.process.signal(signal.SIGTERM)

    def _age(self, post: Post) -> float:
        return time.time() - psutil.Process(post.pid).create_time()

    def are_listed(self) -> bool:
        """All of Fusion's are, and nobody of these who is dead."""
        workers = {process.pid for process in self.all_workers()}
        keys = [key for key in self.conn.smembers("rq:workers") if self.conn.hexists(key, "incarnation")]
        return workers == {int(self.conn.hget(key, "pid") or 0) for key in keys}

    def left(self) -> list[psutil.Process]:
        """Processes of Fusion's that still run. The scheduler that a worker of RQ's has forked outlives it if it is killed."""
        self._collect()
        redis = self.redis.process.pid
        return [
            child
            for child in psutil.Process().children(recursive=True)
            if child.pid != redis and _runs(child) and not _is_stock(child)
        ]

    def stop(self) -> dict[str, int | None]:
        everybody = self.posts
        self.posts = [post for post in everybody if post not in self.producers] + [
            post for post in self.stock_posts if post.alive
        ]
        try:
            return super().stop()
        finally:
            self.posts = everybody

    def close(self) -> None:
        for process in psutil.Process().children(recursive=True):
            if process.pid != self.redis.process.pid:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    pass
        for post in [*self.posts, *self.stock_posts]:
            if post.starts:
                post.process.process.wait(10)
        self.redis.close()
        self._collect()


def _is_stock(process: psutil.Process) -> bool:
    try:
        return "rq.cli" in process.cmdline()
    except psutil.NoSuchProcess:
        return True


class BesideMonkey(Monkey):
    """Strikes at stock RQ's processes besides: by TERM, or with `kill_stock` by SIGKILL."""

    def __init__(self, fleet: BesideFleet, chance: random.Random) -> None:
        super().__init__(fleet, chance)
        self._beside, self._pick = fleet, chance
        self._did |= {
            "kill producer": lambda: self._signal_post(chance.choice(fleet.producers), signal.SIGKILL),
            "end stock worker": lambda: self._end_stock(fleet.stock_workers),
            "end rq-scheduler": lambda: self._end_stock([fleet.clock]),
            "kill stock worker": lambda: self._kill_stock(lambda worker: [worker]),
            "kill stock horse": lambda: self._kill_stock(lambda worker: worker.children()[-1:]),
            "kill stock worker+horse": lambda: self._kill_stock(lambda worker: [*worker.children(recursive=True), worker]),
            "kill rq-scheduler": lambda: self._kill_stock(lambda clock: [clock], [fleet.clock]),
        }

    def _end_stock(self, posts: list[Post]) -> bool:
        post = self._pick.choice(posts)
        if not post.alive or post.pid in self._beside.struck or self._beside._age(post) < _YOUNG:
            return False
        self._beside.struck.add(post.pid)
        post.process.signal(signal.SIGTERM)
        return self._told(f"{post.name} {post.pid}", None)

    def _kill_stock(self, whom: Callable[[psutil.Process], list[psutil.Process]], posts: list[Post] | None = None) -> bool:
        post = self._pick.choice(posts or self._beside.stock_workers)
        if not post.alive or post.pid in self._beside.struck:
            return False
        worker = psutil.Process(post.pid)
        found = whom(worker)
        if not found:
            return False
        if worker in found:
            self._beside.struck.add(post.pid)
        for process in found:
            process.kill()
        return self._told(f"{post.name}, {[process.pid for process in found]}", None)
