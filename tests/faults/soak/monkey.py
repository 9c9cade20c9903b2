"""The soak's chaos monkey: strikes by name, at whom chance picks."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.faults.soak.fleet import SLOTS, Fleet, Post
from tests.faults.soak.plan import LEASE

#: Seconds that Redis is stopped: longer than a worker waits for one answer.
REDIS_STOP = 1.5
#: Seconds that somebody to strike at is waited for.
PATIENCE = 1.0


@dataclass(frozen=True)
class Strike:
    """`at_stake`: jobs that it may cause to run again. `pid`: of the worker that was hit."""

    at: float
    what: str
    whom: str
    at_stake: int = 0
    pid: int = 0

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.at))
        return f"{clock}.{int(self.at % 1 * 1000):03d} {self.what}: {self.whom}"


class Running:
    """Jobs that run now, by the witness file."""

    def __init__(self, path: Path) -> None:
        self._file = path.open()
        self._open: dict[str, tuple[str, int]] = {}

    def look(self) -> list[tuple[str, int]]:
        """(job, pid) of runs that began and have not ended, of processes that are there."""
        for line in self._file.readlines():
            what, job_id, execution, pid, _ = line.split()
            if what == "begin":
                self._open[execution] = (job_id, int(pid))
            else:
                self._open.pop(execution, None)
        self._open = {execution: run for execution, run in self._open.items() if psutil.pid_exists(run[1])}
        return list(self._open.values())


class Monkey:
    """`strike(name)` is False when there was nobody to strike at."""

    def __init__(self, fleet: Fleet, chance: random.Random) -> None:
        self.fleet, self._chance = fleet, chance
        self.log: list[Strike] = []
        self._running = Running(fleet.witness)
        self._to_continue: list[tuple[float, list[psutil.Process]]] = []
        self._did = {
            "kill horse+worker": lambda: self._kill_running(and_worker=True),
            "kill horse": lambda: self._kill_running(and_worker=False),
            "kill worker": lambda: self._signal_worker(signal.SIGKILL, SLOTS),
            "kill fork server": self._kill_fork_server,
            "kill supervisor": lambda: self._signal_post(fleet.service, signal.SIGKILL),
            "kill scheduler": lambda: self._signal_post(chance.choice(fleet.schedulers), signal.SIGKILL),
            "kill relay": lambda: self._signal_post(fleet.relay, signal.SIGKILL),
            "kill producer": self._kill_producer,
            "kill Redis": self._kill_redis,
            "stop worker": lambda: self._stop_worker(whole=False),
            "stop worker and its processes": lambda: self._stop_worker(whole=True),
            "stop supervisor": lambda: self._stop_post(fleet.service),
            "stop scheduler": lambda: self._stop_post(chance.choice(fleet.schedulers)),
            "stop relay": lambda: self._stop_post(fleet.relay),
            "stop Redis": self._stop_redis,
            "flush scripts": lambda: self._told("all", fleet.conn.script_flush()),
            "drop all clients": lambda: self._told("CLIENT KILL TYPE normal", self._drop_clients()),
            "cut a connection": lambda: self._told("the next answer", fleet.cutter.cut()),
            "end worker": lambda: self._signal_worker(signal.SIGTERM, 0),
            "reload worker": lambda: self._signal_post(chance.choice(fleet.workers), signal.SIGHUP),
            "reload supervisor": lambda: self._signal_post(fleet.service, signal.SIGHUP),
        }
        self._name = ""

    def strike(self, name: str) -> bool:
        self._name = name
        try:
            return bool(self._did[name]())
        except (psutil.NoSuchProcess, ProcessLookupError):
            return False  # gone in between

    def hunt(self, name: str) -> bool:
        """`strike` as soon as there is somebody; False if there was nobody for a while."""
        until = time.monotonic() + PATIENCE
        while not self.strike(name):
            if time.monotonic() > until:
                return False
            self.rest(0.01)
        return True

    def rest(self, seconds: float) -> None:
        """Let time pass; what is stopped goes on when it is time, what is dead is replaced."""
        until = time.monotonic() + seconds
        while True:
            self._continue(time.monotonic())
            self.fleet.tend()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(0.05, left))

    def end(self) -> None:
        """No more strikes: all that was stopped goes on."""
        self._continue(float("inf"))

    @property
    def kinds(self) -> Counter[str]:
        return Counter(strike.what for strike in self.log)

    def _told(self, whom: str, _: object, at_stake: int = 0, pid: int = 0) -> bool:
        self.log.append(Strike(time.time(), self._name, whom, at_stake, pid))
        return True

    # -- strikes

    def _kill_running(self, and_worker: bool) -> bool:
        found = self._a_run()
        if found is None:
            return False
        job_id, horse, worker = found
        horse.kill()
        if and_worker:
            worker.kill()
        return self._told(f"{job_id}, horse {horse.pid} of worker {worker.pid}", None, SLOTS if and_worker else 1, worker.pid)

    def _a_run(self) -> tuple[str, psutil.Process, psutil.Process] | None:
        """A job that runs, its process and its worker."""
        runs = self._running.look()
        if not runs:
            return None
        rush = [run for run in runs if run[0].startswith("r")]
        if rush and self._chance.random() < 0.5:  # they are over so soon that hardly one would be met
            runs = rush
        job_id, pid = self._chance.choice(runs)
        horse = psutil.Process(pid)
        server = horse.parent()
        worker = server.parent() if server else None
        if worker is None or worker.pid == os.getpid() or "worker" not in worker.cmdline():
            return None  # its worker has died meanwhile
        return job_id, horse, worker

    def _a_worker(self) -> psutil.Process | None:
        found = self.fleet.all_workers()
        return self._chance.choice(found) if found else None

    def _signal_worker(self, number: signal.Signals, at_stake: int) -> bool:
        worker = self._a_worker()
        if worker is None or (number != signal.SIGKILL and worker.pid not in self.fleet.listed()):
            return False  # one that only starts has no handlers yet
        worker.send_signal(number)
        return self._told(f"worker {worker.pid}", None, at_stake, worker.pid)

    def _kill_fork_server(self) -> bool:
        worker = self._a_worker()
        servers = worker.children() if worker else []
        if worker is None or not servers:
            return False
        servers[0].kill()
        return self._told(f"of worker {worker.pid}", None, SLOTS, worker.pid)

    def _signal_post(self, post: Post, number: signal.Signals) -> bool:
        if not post.alive or (number != signal.SIGKILL and time.time() - psutil.Process(post.pid).create_time() < 3):
            return False
        post.process.signal(number)
        return self._told(f"{post.name} {post.pid}", None, 0, post.pid)

    def _kill_producer(self) -> bool:
        producer = self.fleet.producer
        if producer is None or producer.poll() is not None:
            return False
        producer.kill()
        return self._told(f"producer {producer.pid}", producer.wait(10))

    def _stop(self, processes: list[psutil.Process]) -> float:
        seconds = self._chance.uniform(0.5, 3.0) * LEASE
        stopped: list[psutil.Process] = []
        self._to_continue.append((time.monotonic() + seconds, stopped))
        for process in processes:
            with suppress(psutil.NoSuchProcess):  # a job's, say, that has ended: the others are to go on all the same
                process.suspend()
                stopped.append(process)
        return seconds

    def _stop_worker(self, whole: bool) -> bool:
        """One that runs a job: should the job be another's before it goes on, its outcome must not count."""
        found = self._a_run()
        if found is None:
            return False
        job_id, _, worker = found
        seconds = self._stop([worker, *(worker.children(recursive=True) if whole else ())])
        return self._told(f"worker {worker.pid} with {job_id} for {seconds:.1f} s", None, SLOTS, worker.pid)

    def _stop_post(self, post: Post) -> bool:
        if not post.alive:
            return False
        seconds = self._stop([psutil.Process(post.pid)])
        return self._told(f"{post.name} {post.pid} for {seconds:.1f} s", None)

    def _continue(self, now: float) -> None:
        due = [processes for at, processes in self._to_continue if at <= now]
        self._to_continue = [each for each in self._to_continue if each[0] > now]
        for process in [process for processes in due for process in processes]:
            try:
                process.resume()
            except psutil.NoSuchProcess:
                pass

    def _kill_redis(self) -> bool:
        self.fleet.redis.kill()
        self._told("SIGKILL", None)
        self.fleet.redis.revive()
        return True

    def _stop_redis(self) -> bool:
        self.fleet.redis.pause()
        self._told(f"for {REDIS_STOP} s", None)
        time.sleep(REDIS_STOP)
        self.fleet.redis.resume()
        return True

    def _drop_clients(self) -> object:
        return self.fleet.conn.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
