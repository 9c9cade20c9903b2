"""RQ's exceptions. Each is of both families: what Fusion raises is caught by RQ's name, and by Fusion's."""

from __future__ import annotations

from fusion.exceptions import DeserializationError as DeserializationError
from fusion.exceptions import DuplicateJob as DuplicateJobError
from fusion.exceptions import FusionError, OptionError
from fusion.exceptions import InvalidJobOperation as InvalidJobOperation
from fusion.exceptions import JobLost as AbandonedJobError
from fusion.exceptions import NoSuchBatchError as NoSuchGroupError
from fusion.exceptions import NoSuchJobError as NoSuchJobError

__all__ = [
    "AbandonedJobError",
    "DequeueTimeout",
    "DeserializationError",
    "DuplicateJobError",
    "DuplicateSchedulerError",
    "InvalidJobDependency",
    "InvalidJobOperation",
    "InvalidJobOperationError",
    "JobGone",
    "NoSuchGroupError",
    "NoSuchJobError",
    "SchedulerNotFound",
    "ShutDownImminentException",
    "StopRequested",
    "TimeoutFormatError",
]


class JobGone(NoSuchJobError, InvalidJobOperation):
    """A job whose state is wanted is gone; RQ calls that an invalid operation."""


class InvalidJobDependency(OptionError):
    """A job that another should wait for can't be used."""


class InvalidJobOperationError(InvalidJobOperation):
    """An older name of RQ's. RQ and Fusion raise InvalidJobOperation."""


class TimeoutFormatError(OptionError):
    """A timeout is neither a number nor a text like "1h"."""


class DequeueTimeout(FusionError):
    """RQ's end of a wait for a job. Fusion raises it nowhere."""


class SchedulerNotFound(FusionError):
    """No scheduler has this name."""


class DuplicateSchedulerError(FusionError):
    """A live scheduler has this name."""


class StopRequested(FusionError):
    """RQ's sign to its worker to stop. Fusion raises it nowhere."""


class ShutDownImminentException(BaseException):
    """Raised in jobs by RQ's HerokuWorker. Fusion raises it nowhere."""

    def __init__(self, msg: str, extra_info: object = None) -> None:
        self.extra_info = extra_info
        super().__init__(msg)
