"""Real worker processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest
import redis

from tests.kit.process import Group, ProcessUnderTest
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive

COMMAND = ("run_worker.py", "worker")
#: `make test-pool`: workers have warm processes, this many or, where a test says `--slots`, as many as that.
HORSES = os.environ.get("FUSION_TEST_HORSES", "")
#: `make test-thread`, `make test-asyncio`: workers have one process that runs as many jobs at once as they have slots.
CROWDED = os.environ.get("FUSION_TEST_EXECUTOR", "")
#: Each way to run jobs, as `worker --executor` names it.
EXECUTORS = ("process", "pool", "thread", "asyncio")
_PLACES = {"thread": "FUSION_THREADS", "asyncio": "FUSION_CONCURRENCY"}


def process_per_job(reason: str) -> pytest.MarkDecorator:
    """For a test of what only a process per job does; `reason`: what pool mode does in its place."""
    return pytest.mark.skipif(bool(HORSES or CROWDED), reason=reason)


def alone_in_its_process(reason: str) -> pytest.MarkDecorator:
    """For a test of what only a job without neighbours does."""
    return pytest.mark.skipif(bool(CROWDED), reason=reason)


def _says_mode(args: tuple[str, ...]) -> bool:
    return any(arg.partition("=")[0] in ("--horses", "--executor") for arg in args)


def _mode(args: tuple[str, ...], env: dict[str, str]) -> dict[str, str]:
    if not (HORSES or CROWDED) or _says_mode(args) or "FUSION_HORSES" in env:
        return {}
    if CROWDED and ("--max-job-memory" in args or "FUSION_MAX_JOB_MEMORY" in env):  # refused
        return {}
    slots = args[args.index("--slots") + 1] if "--slots" in args else env.get("FUSION_SLOTS", HORSES or "1")
    return {"FUSION_EXECUTOR": CROWDED, _PLACES[CROWDED]: slots} if CROWDED else {"FUSION_HORSES": slots}


class WorkerProcess(ProcessUnderTest):
    """`run_worker.py worker`, or another `program`, with a log file."""

    def __init__(
        self, redis_url: str, log: Path, *args: str, env: dict[str, str] | None = None, program: tuple[str, ...] = COMMAND
    ) -> None:
        super().__init__(redis_url, log, *program, *args, env={**_mode(args, env or {}), **(env or {})})

    def wait_ready(self, timeout: float | None = None) -> WorkerProcess:
        """Registered, and its fork server has loaded the task modules."""
        self.says("ready for jobs", timeout=timeout)
        assert self.process.poll() is None, self.output
        return self

    def fork_server(self) -> psutil.Process:
        """The one that lives: another may have ended and wait to be reaped, or be about to end."""
        return max((child for child in psutil.Process(self.pid).children() if alive(child.pid)), key=psutil.Process.create_time)

    def horses(self) -> list[psutil.Process]:
        """Spares and busy ones."""
        return self.fork_server().children()


class Workers(Group):
    """Starts workers on one Redis and ends them with the test."""

    word = "worker"

    def start(
        self,
        *args: str,
        ready: bool = True,
        env: dict[str, str] | None = None,
        url: str | None = None,
        program: tuple[str, ...] = COMMAND,
    ) -> WorkerProcess:
        worker = WorkerProcess(url or self.redis_url, self.next_log(), *args, env=env, program=program)
        self._started.append(worker)
        return worker.wait_ready() if ready else worker

    def burst(self, *args: str, env: dict[str, str] | None = None, timeout: float = 30.0, code: int = 0) -> WorkerProcess:
        """A worker that runs what there is and ends with this code: 3 if it leaves held jobs."""
        worker = self.start(*args, "--burst", ready=False, env=env)
        ended = worker.wait(timeout)
        assert ended == code, worker.output
        return worker


class SharedWorkers:
    """Workers that tests of one module share. Nothing is flushed between these tests: each has jobs of its own, waits for their ends, and
    leaves the worker as it was. A test that shares none, or is in another module, ends them before it begins."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._workers, self._module = directory, dict[tuple[Any, ...], WorkerProcess](), ""
        self._started = 0

    def belong_to(self, module: str) -> bool:
        """True for tests of the module that has them; else they end, and are this module's from now on."""
        if module and module == self._module:
            return True
        self._module = module
        self.stop()
        return False

    def start(self, *args: str, env: dict[str, str] | None = None) -> WorkerProcess:
        """The worker with these arguments: one that runs, or a new one."""
        named = (args, tuple(sorted((env or {}).items())))
        worker = self._workers.get(named)
        if worker is None or worker.is_over:
            self._started += 1
            log = self._directory / f"shared{self._started}.log"
            worker = self._workers[named] = WorkerProcess(os.environ["FUSION_REDIS_URL"], log, *args, env=env)
        return worker.wait_ready()

    def have(self, process: psutil.Process) -> bool:
        """True for one of them and for what they have started."""
        pids = {worker.pid for worker in self._workers.values()}
        try:
            return bool(pids) and (process.pid in pids or any(one.pid in pids for one in process.parents()))
        except psutil.NoSuchProcess:
            return False

    def stop(self) -> None:
        """End them; AssertionError if one of their processes is left."""
        trees = [process for worker in self._workers.values() if not worker.is_over for process in worker.tree()]
        for worker in self._workers.values():
            worker.stop()
        self._workers.clear()
        eventually(lambda: not any(alive(process.pid) for process in trees), 10, why="their processes have ended")


def wait_may_recover(conn: redis.Redis) -> None:
    """The fleet no longer holds off burying the dead, as it does for one lease after it was started."""

    def over() -> bool:
        hold = conn.hget("rq:reap", "hold")
        seconds, micros = conn.time()
        return hold is not None and int(hold) <= seconds * 1000 + micros // 1000

    eventually(over, why="the hold-off after a start is over")
