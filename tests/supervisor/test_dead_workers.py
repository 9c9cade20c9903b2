"""Jobs of the dead are given back once nothing of theirs runs: not what they started, and not what that left when it ended."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from typing import Any

import pytest

from fusion.kernel.linux import become_subreaper
from fusion.supervisor.dead_workers import DeadWorkers
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="orphans come to nobody here")


class _Broker:
    """In place of the one that gives jobs back: notes who was alive then."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.found: list[bool] = []

    def prune(self, *args: Any, **more: Any) -> list[tuple[str, int]]:
        self.found.append(alive(self.pid))
        return []


def test_children_of_an_ended_orphan_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    become_subreaper()  # the test's own guard undoes it
    broker = _Broker(0)
    dead_workers = DeadWorkers(broker, 30.0, logging.getLogger("test"))  # type: ignore[arg-type]
    horse = subprocess.Popen(
        ["sh", "-c", "setsid sleep 60 >/dev/null & echo $!; read never"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert horse.stdout is not None
    broker.pid = int(horse.stdout.readline())
    end = dead_workers._end

    def as_it_dies(pid: int, *, kill: bool) -> bool:
        """It was alive when the list was read, and is gone a moment later."""
        if pid == horse.pid:
            os.kill(pid, 9)
            eventually(lambda: not alive(pid))
        return end(pid, kill=kill)

    monkeypatch.setattr(dead_workers, "_end", as_it_dies)
    began = time.monotonic()
    dead_workers.add("worker", "1", "killed", began)
    eventually(lambda: dead_workers.tick(time.monotonic(), set()) or not len(dead_workers), 10)
    assert broker.found == [False]
    horse.returncode = -9  # it was waited for
    horse.stdout.close()
    assert horse.stdin is not None
    horse.stdin.close()
