"""A web application with an EmbeddedWorker, as a process that tests start, look at and kill."""

from __future__ import annotations

import re
from pathlib import Path

import psutil

from tests.kit.process import Group, ProcessUnderTest
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive

STARTED = re.compile(r"^(\d+) fusion\.sidecar: worker \(pid (\d+)\) is started", re.MULTILINE)


class Site(ProcessUnderTest):
    """`tests/sidecar/server.py`, or another program that serves. Whoever of its processes is alive, they share one log."""

    SETTINGS = {**ProcessUnderTest.SETTINGS, "PYTHONPATH": "."}  # noqa: RUF012

    def __init__(self, redis_url: str, log: Path, *command: str, env: dict[str, str] | None = None) -> None:
        self.seen: set[int] = set()
        super().__init__(redis_url, log, *command, env={"TMPDIR": str(log.parent), **(env or {})})

    @property
    def is_over(self) -> bool:
        """Never: its workers go on for a while without it."""
        return False

    @property
    def webs(self) -> list[int]:
        """Pids of the web processes that were ever up."""
        return [int(pid) for pid in re.findall(r"^web (\d+) serves", self.output, re.MULTILINE)]

    def started(self) -> list[tuple[int, int]]:
        """(web process, worker) of each start of a worker."""
        return [(int(web), int(worker)) for web, worker in STARTED.findall(self.output)]

    def ready(self, times: int = 1) -> tuple[int, int]:
        """The last pair of `started`, once this many workers became ready."""
        self.says("ready for jobs", times)
        self.note()
        return self.started()[-1]

    def workers(self) -> list[int]:
        """Pids of the living workers that it started."""
        return [worker for _, worker in self.started() if alive(worker)]

    def note(self) -> None:
        """Remember all processes there are, for `nothing_left`."""
        pids = [self.pid, *self.workers()]
        self.seen |= set(pids)
        for pid in filter(alive, pids):
            self.seen |= {child.pid for child in psutil.Process(pid).children(recursive=True)}

    def nothing_left(self) -> None:
        eventually(lambda: not [pid for pid in self.seen if alive(pid)], 15, why="no process is left")

    def stop(self) -> None:
        self.note()
        super().stop()
        for pid in self.seen:
            if alive(pid):
                psutil.Process(pid).kill()


class Sites(Group):
    """Starts applications and ends them with the test."""

    word = "site"

    def start(self, *args: str, env: dict[str, str] | None = None) -> Site:
        return self.run("tests/sidecar/server.py", *args, env=env)

    def run(self, *command: str, env: dict[str, str] | None = None) -> Site:
        """Start another program, as arguments of Python."""
        site = Site(self.redis_url, self.next_log(), *command, env=env)
        self._started.append(site)
        return site
