"""A measurement that is killed leaves no process and no file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from benchmarks import guard
from benchmarks.contestant import ROOT
from tests.kit.waiting import eventually

_HELD = """
import time
from benchmarks.contestant import Contestant
from benchmarks.guard import guarded_home, started
from benchmarks.peers.base import Conditions

with Contestant("fusion", Conditions()) as contestant:
    contestant.until(lambda: len(started(guarded_home())) >= 4)
    contestant.hold()
    print(guarded_home(), flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_measurement_leaves_nothing_behind(number: int) -> None:
    run = subprocess.Popen([sys.executable, "-c", _HELD], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert run.stdout
    home = Path(run.stdout.readline().strip())
    left = guard.started(home)
    stopped = [pid for pid in left if psutil.Process(pid).status() == psutil.STATUS_STOPPED]
    assert stopped, "a held worker is what a kill leaves behind without a guard"
    assert len(left) >= 4, "a server, a producer, a worker, its fork server"
    servers = [process for pid in left if "redis" in (process := psutil.Process(pid)).name() or "valkey" in process.name()]
    assert servers, "a server, whose title hides its environment"
    os.kill(run.pid, number)
    run.wait(10)
    eventually(lambda: not guard.started(home) and not home.exists())
    assert not any(server.is_running() and server.status() != psutil.STATUS_ZOMBIE for server in servers)
