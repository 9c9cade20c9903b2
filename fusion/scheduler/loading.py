"""Loads modules in a separate process and reads their declarations, without blocking."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fusion.forkserver.environment import changed_by, for_tasks
from fusion.kernel.standard import command
from fusion.runtime.loop import Loop
from fusion.settings import Settings

#: Settings that an entry's job is built with.
_SETTINGS = ("job_timeout", "result_ttl", "max_payload")


@dataclass(frozen=True)
class Sources:
    """Code that declares cron entries: modules, and task modules with `@recurring`. `unnamed`: the default task modules."""

    modules: Sequence[str] = ()
    tasks: Sequence[str] = ()
    unnamed: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self.modules or self.tasks)


class Loading:
    """One run of the collector. It calls `done` with the declarations, or `failed` with the reason."""

    def __init__(
        self,
        settings: Settings,
        sources: Sources,
        loop: Loop,
        done: Callable[[dict[str, Any]], None],
        failed: Callable[[str], None],
    ) -> None:
        """OSError if no process can be started; ConfigurationError if the signing keys can't be read."""
        keys = settings.read_secret_keys() or None
        self._loop, self._done, self._failed, self._limit = loop, done, failed, settings.import_timeout
        self._text = b""
        self._out, theirs = os.pipe()
        try:
            # Its own session: the terminal's ^C does not reach it, and the processes that modules start can be ended together.
            self._process = subprocess.Popen(
                command("fusion.scheduler.collector"),
                stdin=subprocess.PIPE,
                stdout=2,
                pass_fds=(theirs,),
                start_new_session=True,
                env=changed_by(for_tasks(settings, os.environ), os.environ),
            )
        except BaseException:
            os.close(self._out)
            raise
        finally:
            os.close(theirs)
        wanted = {
            "parent": os.getpid(),
            "answer_to": theirs,
            "path": sys.path,
            "modules": list(sources.modules),
            "tasks": list(sources.tasks),
            "setup": list(settings.setup or ()),
            # The keys go through this pipe: process lists show arguments and the environment.
            "settings": {**{name: getattr(settings, name) for name in _SETTINGS}, "secret_keys": keys},
        }
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(wanted).encode())
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it has ended already; its empty answer shows that
        os.set_blocking(self._out, False)
        loop.watch(self._out, self._read)
        #: By the monotonic clock.
        self.give_up_at = time.monotonic() + self._limit

    def tick(self, now: float) -> None:
        """Stop a load that takes too long."""
        if now >= self.give_up_at:
            self.close()
            self._failed(f"it took longer than {self._limit:g} s")

    def close(self) -> None:
        """End the process and what it started."""
        if self.give_up_at == float("inf"):
            return
        self.give_up_at = float("inf")
        self._loop.unwatch(self._out)
        os.close(self._out)
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except OSError:
            self._process.kill()  # it has no session of its own yet
        self._process.wait()

    def _read(self) -> None:
        try:
            data = os.read(self._out, 65536)
        except BlockingIOError:
            return
        self._text += data
        if data and not self._text.endswith(b"\n"):
            return
        self.close()
        try:
            found = json.loads(self._text)
        except ValueError:
            self._failed(f"the process that did so died with status {self._process.returncode}")
        else:
            self._done(found)
