"""A real worker in a process of its own, beside a test."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Self

from fusion.settings.handing_on import environment_for
from fusion.sidecar.embedded_worker import own_paths, python_program, safely
from fusion.store.access import glance_of
from fusion.store.client.connections import get_current_connection
from fusion.testing.kit import on_private_redis

#: Seconds within which it must have registered, and have ended when it was asked to.
_START, _END = 60.0, 10.0
#: Seconds after which the jobs of a killed worker run again.
_LEASE = 5


class RealWorker:
    """`with RealWorker() as worker:` runs what is enqueued, on whatever queue, as in production: a process per job, timeouts, kills.

    It imports tasks from where the test does, and knows nothing that a test has patched. Its clock is the machine's. RuntimeError outside of
    tests; AssertionError with its log if it does not start.
    """

    def __init__(self, *flags: str, queues: Sequence[str] = ("*",)) -> None:
        """`flags`: those of `fusion worker`, such as "--slots", "4"."""
        self._flags, self._queues = flags, queues
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._exits = ExitStack()
        self._log = Path(self._exits.enter_context(tempfile.TemporaryDirectory(prefix="fusion-worker-"))) / "log"
        self._settings = self._exits.enter_context(on_private_redis(moved_clock=False))
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()
        self._exits.close()

    @property
    def pid(self) -> int:
        """Its process; 0 while none runs."""
        return 0 if self._process is None else self._process.pid

    @property
    def log(self) -> str:
        """Its log lines, and what the tasks printed."""
        return self._log.read_text(errors="replace")

    def start(self) -> None:
        """Start it, unless it runs, and return once it takes jobs."""
        if self._process is not None and self._process.poll() is None:
            return
        paths = [part for path in own_paths() for part in ("--path", path)]
        command = [
            python_program(),
            *safely(),
            "-m",
            "fusion",
            "worker",
            *paths,
            "--lease",
            str(_LEASE),
            *self._flags,
            "--",
            *self._queues,
        ]
        before = set(glance_of(get_current_connection()).workers())
        with self._log.open("ab") as out:
            self._process = subprocess.Popen(
                command,
                env=environment_for(self._settings, os.environ) | {"FUSION_TASKS": "*", "PYTHONUNBUFFERED": "1"},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + _START
        while set(glance_of(get_current_connection()).workers()) <= before:
            if self._process.poll() is not None or time.monotonic() > until:
                raise AssertionError(f"the worker did not start:\n{self.log}")
            time.sleep(0.02)

    def kill(self) -> None:
        """Kill it by SIGKILL. Its jobs run again in the next worker (`start`), some seconds later."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> None:
        """End it; jobs that run go back to their place."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_END)
            self.kill()
