"""The errors that Fusion raises. Every message says what to do about it, and ends with a code: docs/errors.md describes each."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing costs every job's process 0.6 MB
    from collections.abc import Callable
    from typing import Any


def coded(text: str, code: str) -> str:
    """Return the text of an error with this code at its end. Codes of other errors that it quotes are left out."""
    import re

    return re.sub(r" \[FUS-\d{3}\]", "", text) + f" [{code}]" if text else text


class FusionError(Exception):
    """Base of everything Fusion raises on purpose. Its text ends with its code: `queue 'sms' is full [FUS-113]`."""

    #: Stable: never changed, and never given to another cause. Some classes have one for each of several causes.
    code = "FUS-100"

    def __init__(self, *args: object, code: str = "") -> None:
        super().__init__(*args)
        if code:
            self.code = code

    def text(self) -> str:
        """Return the message without its code."""
        return BaseException.__str__(self)

    def __str__(self) -> str:
        return coded(self.text(), self.code)


class ConfigurationError(FusionError):
    """A setting, flag or server set-up is wrong; retrying does not help."""

    code = "FUS-200"


class NoRedisError(ConfigurationError):
    """No Redis was named and none was found."""

    code = "FUS-201"


class StoreUnavailable(FusionError):
    """Redis can't be reached, or can't do this just now. Waiting helps. The error of redis-py is the `__cause__`.

    An enqueue that raises this may have been executed, as only its answer may be lost: its jobs may or may not have been accepted. If
    `nothing_written` is true, they were not. Either way `repeat()` is safe. `job_ids` are the ids of the jobs, accepted already or by a
    repetition. For `enqueue_many` they are those of the current chunk: all chunks before it were accepted, none after it was sent.
    """

    code = "FUS-101"
    nothing_written = False
    job_ids: tuple[str, ...] = ()
    #: Makes the steps that repeat the call, for what runs it (`fusion.store.scripting.host`).
    steps: Callable[[], Any] | None = None
    _again: Callable[[], Any] | None = None

    @property
    def job_id(self) -> str:
        """The first of `job_ids`; empty if the call was not an enqueue."""
        return self.job_ids[0] if self.job_ids else ""

    def repeat(self) -> Any:
        """Make the same call again and return its result: jobs that were accepted already are not accepted twice, even if they have ended.
        Goes on where the call stopped, as often as need be. Await it if the call was an AsyncQueue's.

        RuntimeError if this error holds no call to repeat, or was sent to another process. Then make the same call with the same job_id, or
        with the same data of `prepare_data`.
        """
        if self._again is None:
            raise RuntimeError("this error holds no call to repeat; make the call itself again")
        return self._again()

    def repeat_with(self, call: Callable[[], Any]) -> None:
        """Have `repeat()` run this. For code that makes one call out of several, each safe to make again."""
        self._again = call

    def __reduce__(self) -> tuple[Any, ...]:
        # the stored call holds a connection, which no other process can use
        return type(self), self.args, {name: value for name, value in vars(self).items() if name not in ("_again", "steps")}


class StoreFull(StoreUnavailable):
    """Redis has reached its `maxmemory` and refused. Make room there, or wait for the workers to."""

    code = "FUS-102"


class NotReplicated(StoreUnavailable):
    """Too few replicas acknowledged an enqueue with durability="replicated" in time. The jobs are on the primary and will run, unless it is
    lost before its replicas have caught up. `repeat()` waits again."""

    code = "FUS-103"

    #: How many replicas acknowledged.
    acknowledged = 0


class SchemaMismatch(FusionError):
    """The data in Redis are of a newer layout than this process knows, which is `needed`. Nothing was written; upgrade Fusion here."""

    code = "FUS-104"

    def __init__(self, message: str, *, version: int = 0, needed: int = 0) -> None:
        super().__init__(message)
        self.version = version
        self.needed = needed


class DataTooOld(FusionError):
    """The data in Redis are of layout `version`, and what was to be written needs `needed`. Nothing was written."""

    code = "FUS-105"

    def __init__(self, version: int, needed: int) -> None:
        super().__init__(
            f"the data in Redis are of schema {version}, and this needs schema {needed}: once this version of Fusion runs everywhere, "
            "producers included, run the command `schema --raise`"
        )
        self.version = version
        self.needed = needed


class NoSuchJobError(FusionError):
    """No job has this id."""

    code = "FUS-106"


class InvalidJobOperation(FusionError):
    """The job's state does not allow this."""

    code = "FUS-107"


class DuplicateJob(FusionError):
    """A live job already has this id, or another has the job's unique key. Nothing was written.

    `job_id` is the id of the job that was to be enqueued, `status` the status of the existing one. With status `coming` its enqueue is not
    over; if its producer died, the job is deleted soon. For a unique key, `unique_key` is the key and `duplicate_of` the job that has it;
    else both are empty.
    """

    code = "FUS-108"

    def __init__(self, job_id: str, status: str = "", duplicate_of: str = "", unique_key: str = "") -> None:
        state = f" and is {status}" if status else ""
        if duplicate_of:
            key = f"the unique key {unique_key!r}" if unique_key else "its unique key"
            super().__init__(f"job {job_id!r} is a duplicate: job {duplicate_of!r} has {key}{state}")
        elif status == "foreign":
            super().__init__(f"job id {job_id!r} is taken by another program's job, RQ's perhaps; use another job_id")
        elif status == "leaving":
            super().__init__(
                f"job id {job_id!r} is taken by an ended job that is still leaving its many parents; try again in a moment"
            )
        elif status == "coming":
            super().__init__(
                f"job id {job_id!r} is that of a job whose enqueue is not over, and if its producer died it is deleted within a minute; "
                "try again in a moment"
            )
        else:
            super().__init__(f"job id {job_id!r} is taken{state}; use another job_id, or cancel or delete that job first")
        self.job_id, self.status = job_id, status
        self.duplicate_of, self.unique_key = duplicate_of, unique_key

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.job_id, self.status, self.duplicate_of, self.unique_key)


class UnknownDependency(NoSuchJobError):
    """A job was to wait for another of which there is no record. Nothing was written."""

    code = "FUS-109"

    def __init__(self, job_id: str, parent_id: str) -> None:
        super().__init__(
            f"job {job_id!r} is to wait for {parent_id!r}, and there is no such job of Fusion's: it was not enqueued before, was deleted, or its "
            "result_ttl is over"
        )
        self.job_id = job_id
        self.parent_id = parent_id


class DependencyCycle(FusionError, ValueError):
    """Jobs that were to be enqueued or put back would wait for each other. Nothing was written. `job_id`: the one that would wait for itself;
    empty if none of them is in Redis yet."""

    code = "FUS-110"
    job_id = ""

    @classmethod
    def of(cls, job_id: str, path: str = "") -> DependencyCycle:
        """Make the error for a job that would wait for itself; `path` names the jobs in between, if it may be shown."""
        shown = f": {path}. Cancel or delete one of these" if path else " by way of others: cancel or delete one of these"
        error = cls(f"job {job_id!r} would wait for itself{shown}, or name other parents")
        error.job_id = job_id
        return error


class GraphDropped(FusionError):
    """The jobs of an enqueue_many that wait for each other were dropped, as their producer was silent for a minute. None of them is left; the
    call repeats itself."""

    code = "FUS-111"


class DependencyFailed(FusionError):
    """A job was not run because a job that it waited for did not finish: the `error_class` of the job that did not run."""

    code = "FUS-112"


class QueueFull(FusionError):
    """A queue is full. Nothing was written, except by `enqueue_many` the jobs `accepted`.

    `queue` is its name, `length` how many jobs waited, `limit` how many may, `wanted` how many the call was to add.
    Waiting helps, as workers catch up. It is then safe to make the same call again with the same job_id, or with the same data.
    """

    code = "FUS-113"

    #: Of `enqueue_many`: the jobs of the chunks before.
    accepted: tuple[Any, ...] = ()

    def __init__(self, queue: str, length: int, limit: int, wanted: int = 1) -> None:
        super().__init__(queue, length, limit, wanted)
        self.queue, self.length, self.limit, self.wanted = queue, length, limit, wanted

    def text(self) -> str:
        """Return the message without its code."""
        what = "is full" if self.wanted == 1 else f"has no room for {self.wanted} more jobs"
        return (
            f"queue {self.queue!r} {what}: {self.length} of {self.limit} wait (max_queue_length). Try again when workers have caught up, start "
            f"more of them, or raise the limit: Queue({self.queue!r}).set_max_length(N)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        # jobs hold a connection, which no other process can use
        return type(self), self.args


class InvalidName(FusionError, ValueError):
    """A queue name or job id has characters that are not allowed."""

    code = "FUS-114"


class NameTooLong(InvalidName):
    """A task's name is longer than 255 bytes, or has more than 32 dots: refused where it comes in, failed where a worker meets it."""

    code = "FUS-115"


class InvalidQuery(FusionError, ValueError):
    """A query can't be parsed; the text names what to write instead. `column`: the position of the error, from 1 on; 0 if it has none.
    `field`: the parameter that was wrong, `query` or `after`."""

    code = "FUS-116"

    def __init__(self, message: str, column: int = 0, field: str = "query") -> None:
        super().__init__(message, column, field)
        self.message, self.column, self.field = message, column, field

    def text(self) -> str:
        """Return the message without its code."""
        place = f"column {self.column}: " if self.column else "" if self.field == "query" else f"{self.field}: "
        return place + self.message


class OptionError(FusionError, ValueError):
    """An option of an enqueue has an invalid value, or one that conflicts with others. Nothing was written.

    `name` is the option's; empty where several conflict. `rule` says what to use instead; a value given after it is shown in front.
    """

    code = "FUS-117"

    def __init__(self, name: str, rule: str, *value: Any) -> None:
        super().__init__(name, rule, *value)
        self.name, self.rule, self.value = name, rule, value

    def text(self) -> str:
        """Return the message without its code."""
        return self.spelled(self.name)

    def spelled(self, name: str, sign: str = "=") -> str:
        """Return the message for a reader who knows the option by another name: `spelled("--timeout", " ")`."""
        shown = f"{name}{sign}{self.value[0]!r}" if self.value else name
        return f"{shown}: {self.rule}" if name else self.rule


class UnknownOption(OptionError, TypeError):
    """There is no option of this name; `rule` is the whole message."""

    code = "FUS-118"

    def spelled(self, name: str, sign: str = "=") -> str:
        """Return the message; an unknown option has no other spelling."""
        return self.rule


class NoSuchEntryError(FusionError):
    """No cron entry has this id."""

    code = "FUS-119"


class EntryTaken(FusionError):
    """The cron entry of this id belongs to another app, or was made at run time."""

    code = "FUS-120"


class NoSuchBatchError(FusionError):
    """No batch has this id: it never existed, or it was over for longer than its `keep`."""

    code = "FUS-121"


class BatchClosed(FusionError):
    """A batch takes no more jobs; nothing was written. `reason`: `closed` (by its producer, or because it was idle for `open_for`), or
    `canceled`."""

    code = "FUS-122"

    def __init__(self, batch: str, reason: str) -> None:
        hint = "; jobs of a closed batch can be added by its own jobs alone, while they run" if reason == "closed" else ""
        super().__init__(f"batch {batch} is {reason} and takes no more jobs{hint}")
        self.batch, self.reason = batch, reason

    def __reduce__(self) -> tuple[type[BatchClosed], tuple[str, str]]:
        return type(self), (self.batch, self.reason)


def batch_refusal(batch: str, why: str) -> BatchClosed | NoSuchBatchError:
    """Return the error for a batch that takes no more jobs, for this reason."""
    if why == "missing":
        return NoSuchBatchError(f"no batch {batch!r}: it never existed, or it was over long ago and forgotten")
    return BatchClosed(batch, why)


class SerializationError(FusionError, TypeError):
    """A value can't be sent as JSON. Raised where the job is enqueued; nothing was written."""

    code = "FUS-123"


class DeserializationError(FusionError):
    """Stored arguments or a stored result can't be read back."""

    code = "FUS-124"


class PayloadTooLarge(FusionError, ValueError):
    """Arguments or result are over the size or depth limit."""

    code = "FUS-125"


class TaskNotAllowed(FusionError):
    """The task's dotted path is not in the allow-list of this worker."""

    code = "FUS-301"


class TaskNotFound(FusionError):
    """The task's module or function does not exist."""

    code = "FUS-304"


class BadSignature(FusionError):
    """A job was not signed with one of this worker's keys, or was altered since. None of its data was read or imported."""

    code = "FUS-126"


class LockTimeout(FusionError, TimeoutError):
    """A lock was not free within the time that the task waits for it. A job that lets it pass is retried, as after any TimeoutError. `lock`: its
    name; `wait`: how long it waited, in seconds."""

    code = "FUS-135"

    def __init__(self, lock: str, wait: float) -> None:
        super().__init__(f"the lock {lock!r} was not free within {wait:g} s; wait longer, or let the job be retried")
        self.lock, self.wait = lock, wait

    def __reduce__(self) -> tuple[type[LockTimeout], tuple[str, float]]:
        return type(self), (self.lock, self.wait)


class LockError(FusionError, RuntimeError):
    """A lock can't be taken here, and waiting does not help: the message says why."""

    code = "FUS-136"


class NotAudited(FusionError):
    """Masked values of a job are not shown, because the entry in the audit could not be written."""

    code = "FUS-137"


class WorkHorseTerminated(FusionError):
    """A job's process ended without reporting an outcome."""

    code = "FUS-150"


class JobMemoryExceeded(FusionError):
    """A job's processes held more memory than `max_job_memory` allows and were killed. Raise the limit, or let the task hold less."""

    code = "FUS-151"


class JobLost(FusionError):
    """A job's worker or process vanished too often, or once with `on_lost="fail"`."""

    code = "FUS-152"


class ProcessExitError(FusionError):
    """A supervised process ended by itself, unasked; the message says how."""

    code = "FUS-153"


class ProcessPrunedError(FusionError):
    """A process gave no sign of life and was taken for dead."""

    code = "FUS-154"


class JobInterrupted(BaseException):
    """Raised by `checkpoint` and `iterate` when the job's worker must end: finished work is kept, and the job resumes at its cursor in
    another run, with no attempt spent. Clean up and let it pass. It is a BaseException, so that `except Exception` lets it pass, too.
    """

    code = "FUS-155"

    def text(self) -> str:
        """Return the message without its code."""
        return super().__str__()

    def __str__(self) -> str:
        return coded(self.text(), self.code)


class JobStopped(BaseException):
    """Raised inside a task that is to stop (`Job.stop`): there are `timeout_grace` seconds to clean up, then its processes are killed.

    A BaseException, so that `except Exception` in a task does not swallow it; one that is swallowed all the same is raised again.
    """

    code = "FUS-156"

    def text(self) -> str:
        """Return the message without its code."""
        return super().__str__()

    def __str__(self) -> str:
        return coded(self.text(), self.code)


class JobTimeoutException(BaseException):
    """Raised inside a task that runs longer than its timeout.

    A BaseException, so that `except Exception` in a task does not swallow it (users of RQ lost timeouts that way: rq#2296).
    """

    code = "FUS-157"

    def text(self) -> str:
        """Return the message without its code."""
        return super().__str__()

    def __str__(self) -> str:
        return coded(self.text(), self.code)
