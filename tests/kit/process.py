"""A process of Fusion that a test starts by the real command line, looks at and ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import psutil

from tests.kit.waiting import eventually, unhurried

ROOT = Path(__file__).resolve().parents[2]


class ProcessUnderTest:
    """A program of the checkout in a session of its own. What it says goes to `log`; `env` adds to the environment of the test."""

    #: Settings of every process of this kind, unless a test says otherwise.
    SETTINGS: ClassVar[dict[str, str]] = {"FUSION_TASKS": "tests.jobs.basic", "FUSION_TIMEOUT_GRACE": "0.5"}
    #: Asks it to go at the end of a test.
    FAREWELL: ClassVar[int] = signal.SIGQUIT
    _dismissed = False

    def __init__(self, redis_url: str, log: Path, *program: str, env: dict[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, *program],
                cwd=ROOT,
                env={**os.environ, "FUSION_REDIS_URL": redis_url, "PYTHONUNBUFFERED": "1", **self.SETTINGS, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def is_over(self) -> bool:
        """Nothing comes of it any more."""
        return self.process.poll() is not None

    def count(self, what: str | re.Pattern[str]) -> int:
        """How often the log has that; a text is taken as it is."""
        return self.output.count(what) if isinstance(what, str) else len(what.findall(self.output))

    def says(self, what: str | re.Pattern[str], times: int = 1, timeout: float | None = None) -> None:
        """Wait until the log has that so often; AssertionError with the log if it is over before. By default a loaded machine has longer."""
        timeout = unhurried(15.0) if timeout is None else timeout
        self.until(lambda: self.count(what) >= times, timeout, f"{times} times in the log: {what}")

    def until(self, check: Callable[[], object], timeout: float, why: str) -> None:
        """Wait for `check`; AssertionError with the log if it is over before."""
        try:
            eventually(lambda: check() or self.is_over, timeout, why=why)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from None
        assert check(), f"it ended with {self.process.poll()} before: {why}\n{self.output}"

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code, once it has ended by itself. By default a loaded machine has longer."""
        timeout = unhurried(15.0) if timeout is None else timeout
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {timeout} s:\n{self.output}") from None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def tree(self) -> list[psutil.Process]:
        """All its descendants."""
        return psutil.Process(self.pid).children(recursive=True)

    def dismiss(self) -> None:
        """For the end of a test, whatever it did: ask it to go."""
        if self.process.poll() is None and not self._dismissed:
            self._dismissed = True
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(self.FAREWELL)

    def stop(self) -> None:
        """Ask it to go; kill it if it has not within 15 s."""
        self.dismiss()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()


class Group:
    """Processes of one Redis that end with the test. `word` names their logs."""

    word: ClassVar[str]

    def __init__(self, redis_url: str, directory: Path) -> None:
        self.redis_url, self._directory = redis_url, directory
        self._started: list[ProcessUnderTest] = []

    def next_log(self) -> Path:
        return self._directory / f"{self.word}{len(self._started)}.log"

    @property
    def output(self) -> str:
        return "\n".join(f"-- {one.log.name}\n{one.output}" for one in self._started)

    def stop(self) -> None:
        for one in self._started:
            one.dismiss()
        for one in self._started:
            one.stop()
