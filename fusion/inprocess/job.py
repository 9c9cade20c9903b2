"""A job from a plan, its run in a worker, and the outcome of the run."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fusion.kernel.redaction import cut, printable

#: Most characters of a traceback that a plan receives.
_LONGEST = 20_000


class JobState(str, Enum):
    """States of a job. The plan stores Pending and Complete. Queued and Active exist only in the manager, and end with its process."""

    PENDING = "pending"
    QUEUED = "queued"
    ACTIVE = "active"
    COMPLETE = "complete"


@dataclass(frozen=True)
class ReadyJob:
    """A job that may run now. `id`: unique in its plan. `name`: for display.

    A worker calls `run` without arguments: bind them with functools.partial or a lambda. `timeout`: seconds for this job in place of the
    manager's `job_timeout_seconds`; 0 = no limit. TypeError or ValueError if a field is invalid.
    """

    id: Hashable
    name: str
    run: Callable[[], Any]
    timeout: float | None = None
    #: Name and id, as shown in the log.
    label: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        hash(self.id)
        if not isinstance(self.name, str):
            raise TypeError(f"the name of job {self.id!r} is of type {type(self.name).__name__}; use a str")
        if not callable(self.run):
            raise TypeError(f"run of job {self.name!r} is of type {type(self.run).__name__}; use a function without arguments")
        if self.timeout is not None and not self.timeout >= 0:
            raise ValueError(f"the timeout of job {self.name!r} is {self.timeout!r}; use seconds, or 0 for any time")
        object.__setattr__(self, "label", f"{self.name!r} ({cut(printable(repr(self.id)), 100)})")


@dataclass(frozen=True)
class Outcome:
    """The end of a run: `result`, or `error`, a text for the plan. `reason`: the same on one line."""

    result: Any = None
    error: str | None = None
    reason: str = ""

    @classmethod
    def failed(cls, reason: str) -> Outcome:
        """Return the outcome of a run that was cut off."""
        return cls(error=reason, reason=reason)

    @classmethod
    def raised(cls, error: BaseException) -> Outcome:
        """Return the outcome of a run that raised: its traceback, or the end of a very long one."""
        text = "".join(traceback.format_exception(error))[-_LONGEST:].replace("\0", "\\0")
        # Databases refuse lone surrogates, which some file names contain.
        return cls(error=text.encode("utf-8", "backslashreplace").decode(), reason=said(error))


@dataclass(eq=False)
class ActiveRun:
    """An active job. JobQueue's lock guards it."""

    job: ReadyJob
    #: When its time is over, by the queue's clock; inf = never.
    deadline: float
    #: The thread that has it: a worker, or after its death a stand-in that reports to the plan.
    thread: threading.Thread = field(default_factory=threading.current_thread)
    #: None while it runs. The first outcome counts: a result that comes after the run was given up is dropped.
    outcome: Outcome | None = None
    #: True if its time was over before it had an outcome.
    overdue: bool = False


def said(error: BaseException) -> str:
    """Return class and message of an error on one line, for the log."""
    return cut(printable("".join(traceback.format_exception_only(error)).strip()), 500)
