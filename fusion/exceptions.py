"""What Fusion raises. Every message says what to do about it."""

from __future__ import annotations


class FusionError(Exception):
    """Base of everything Fusion raises on purpose."""


class ConfigurationError(FusionError):
    """A setting, flag or server set-up is wrong; retrying does not help."""


class NoRedisError(ConfigurationError):
    """No Redis was named and none was found."""


class StoreUnavailable(FusionError):
    """Redis can't be reached just now; the same call is safe to repeat."""


class NoSuchJobError(FusionError):
    """No job has this id."""


class InvalidJobOperation(FusionError):
    """The job's state does not allow this."""


class DuplicateJob(FusionError):
    """A live job already has this id."""

    def __init__(self, job_id: str, status: str = "") -> None:
        state = f" and is {status}" if status else ""
        super().__init__(f"job id {job_id!r} is taken{state}; use another job_id, or cancel or delete that job first")
        self.job_id = job_id
        self.status = status


class InvalidName(FusionError, ValueError):
    """A queue name or job id has characters that are not allowed."""


class NoSuchEntryError(FusionError):
    """No cron entry has this id."""


class EntryTaken(FusionError):
    """The cron entry of this id is somebody else's: another app's, or made at run time."""


class SerializationError(FusionError, TypeError):
    """A value can't be sent as JSON. Raised where the job is enqueued; nothing was written."""


class DeserializationError(FusionError):
    """Stored arguments or a stored result can't be read back."""


class PayloadTooLarge(FusionError, ValueError):
    """Arguments or result are over the size or depth limit."""


class TaskNotAllowed(FusionError):
    """The task's dotted path is not in the allow-list of this worker."""


class TaskNotFound(FusionError):
    """The task's module or function does not exist."""


class BadSignature(FusionError):
    """A job was not signed with one of this worker's keys, or altered since. Nothing of it was read or imported."""


class WorkHorseTerminated(FusionError):
    """A job's process ended without giving an outcome."""


class JobMemoryExceeded(FusionError):
    """A job's processes held more memory than `max_job_memory` allows and were killed. Raise the limit, or let the task hold less."""


class JobLost(FusionError):
    """A job's worker or process vanished too often, or once with `on_lost="fail"`."""


class ProcessExitError(FusionError):
    """A supervised process ended by itself, unasked; the message says how."""


class ProcessPrunedError(FusionError):
    """A process gave no sign of life and was taken for dead."""


class JobTimeoutException(BaseException):
    """Raised inside a task that runs longer than its timeout.

    A BaseException, so that `except Exception` in a task does not swallow it (users of RQ lost timeouts that way: rq#2296).
    """
