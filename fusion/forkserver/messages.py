"""Messages between a worker and its fork server."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from fusion.kernel import defaults
from fusion.kernel.linux import signal_name


@dataclass(frozen=True)
class ForkServerConfig:
    """Sent to a fork server first. `tasks`: allow-list; `modules`: preloaded; `late`: imported by each horse instead."""

    tasks: tuple[str, ...] = ("tasks",)
    modules: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    #: Modules that could not be imported, and why: tasks in them are not found.
    without: dict[str, str] = field(default_factory=dict)
    #: auto: a module that can't be forked is reported as Tainted; strict: that is an error; off: horses import everything.
    preload: str = "auto"
    sys_path: tuple[str, ...] = ()
    #: Seconds between soft timeout and SIGKILL.
    grace: float = defaults.TIMEOUT_GRACE
    #: Bytes of an encoded result, and of job.meta.
    max_result: int = defaults.MAX_RESULT
    allow_pickle: bool = False
    #: Dotted paths from the setting.
    middleware: tuple[str, ...] = ()
    #: Dotted paths of functions called without arguments: in the fork server before each fork, in each horse after it.
    before_fork: str | None = None
    after_fork: str | None = None
    #: `process`: a horse runs one job; `pool`: one after another; `thread`, `asyncio`: `places` of them at once.
    executor: str = "process"
    places: int = 1
    #: Variables with another value for tasks than for the worker; None: removed.
    environment: dict[str, str | None] = field(default_factory=dict)
    #: The worker's DICT_CONFIG; and whether log lines are JSON.
    log_config: dict[str, Any] | None = None
    log_json: bool = False
    #: Whether what jobs print and log is kept for their logs.
    job_logs: bool = False
    #: Soft limit of core dumps for tasks, if it differs from the worker's own.
    core: int | None = None

    @property
    def by_horses(self) -> tuple[str, ...]:
        """Return the modules that each horse imports itself: `late`, and with `preload` off all others too."""
        return tuple(dict.fromkeys((*self.late, *(self.modules if self.preload == "off" else ()))))


@dataclass(frozen=True)
class Ready:
    """Task modules are imported; horses forked from now on need not import them."""


@dataclass(frozen=True)
class ImportFailed:
    """A task module can't be imported; the server is about to end."""

    module: str
    error: str
    traceback: str


@dataclass(frozen=True)
class Tainted:
    """A task module opens threads or connections; the server is about to end. Start another with this module in `late`."""

    module: str
    reason: str


@dataclass(frozen=True)
class Alike:
    """Names of random generators whose state is the same in every horse."""

    names: tuple[str, ...]


@dataclass(frozen=True)
class ForkFailed:
    """No process could be forked for this horse; `errno`: the reason."""

    serial: int
    errno: int


@dataclass(frozen=True)
class HorseExited:
    """The horse and everything below it is gone. `why`: `-`, or `timeout`, `stopped` or `killed` if the fork server itself killed it."""

    serial: int
    #: Raw wait status; `describe_death` puts it in words.
    status: int
    #: KiB.
    maxrss: int
    why: str


@dataclass(frozen=True)
class ServerClosed:
    """The fork server ended, and so did all its horses. `importing`: the module it was importing, if it was."""

    importing: str | None


Message = Ready | ImportFailed | Tainted | Alike | ForkFailed | HorseExited | ServerClosed


def describe_death(status: int) -> str:
    """Describe the raw wait status of a horse that sent no outcome."""
    if os.WIFSIGNALED(status):
        return f"killed by {signal_name(os.WTERMSIG(status))}"
    return f"exited with code {os.waitstatus_to_exitcode(status)} without a result"
