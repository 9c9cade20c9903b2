"""What is left of a process's signal handlers when its loop has ended."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_PROGRAM = """
import os, signal
from fusion.runtime.signals import Signals
Signals.ends_process = {ends}
signals = Signals()
signals.install()
os.kill(os.getpid(), signal.{name})
assert signals.noted
signals.restore()
os.kill(os.getpid(), signal.{name})
print("ended")
"""


def _run(ends: bool, name: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(ends=ends, name=name)], capture_output=True, text=True, timeout=30
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGQUIT"])
def test_a_late_signal_does_not_make_a_clean_end_a_death(name: str) -> None:
    assert _run(True, name) == (0, "ended\n")


def test_another_program_gets_its_handlers_back() -> None:
    assert _run(False, "SIGTERM") == (-signal.SIGTERM, "")
