"""Real scheduler processes."""

from __future__ import annotations

import re
from typing import ClassVar

import psutil

from tests.kit.process import Group, ProcessUnderTest

COMMAND = ("run_worker.py", "scheduler")
_ENTERED = re.compile(r"scheduler (\S+) \(pid \d+\)")


class SchedulerProcess(ProcessUnderTest):
    """`run_worker.py scheduler` with a log file."""

    #: Nothing is to be loaded; tests that are about that say what.
    SETTINGS: ClassVar[dict[str, str]] = {**ProcessUnderTest.SETTINGS, "FUSION_TASKS": "*"}

    def wait_ready(self, timeout: float | None = None) -> SchedulerProcess:
        """It stands in the list of schedulers."""
        self.says(_ENTERED, timeout=timeout)
        return self

    @property
    def name(self) -> str:
        found = _ENTERED.search(self.output)
        assert found, self.output
        return found[1]

    def children(self) -> list[psutil.Process]:
        return self.tree()


class Schedulers(Group):
    """Starts schedulers on one Redis and ends them with the test."""

    word = "scheduler"

    def start(self, *args: str, ready: bool = True, env: dict[str, str] | None = None) -> SchedulerProcess:
        started = SchedulerProcess(self.redis_url, self.next_log(), *COMMAND, *args, env=env)
        self._started.append(started)
        return started.wait_ready() if ready else started
