"""A job as producers and tools see it. Reading goes through the Inspector, every change through the Broker."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from copy import deepcopy
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from redis import Redis

from fusion.absent import absent
from fusion.exceptions import (
    BadSignature,
    DependencyCycle,
    DeserializationError,
    DuplicateJob,
    InvalidJobOperation,
    NoSuchJobError,
)
from fusion.jobs.awaiting import wait_steps
from fusion.jobs.fields import JobFields
from fusion.jobs.meta import to_stored
from fusion.jobs.results import Result, ResultType, results_of
from fusion.jobs.tree import JobTree, tree
from fusion.kernel.importing import CallableModule
from fusion.kernel.nonces import new_nonce
from fusion.kernel.serializers import JSONSerializer, get_serializer
from fusion.kernel.timeutil import to_delay, to_unix
from fusion.settings import get_settings
from fusion.status import JobStatus, check_called_off, refuse_foreign, why_not
from fusion.store.access import broker_of, inspector_of, reads_of, sheet_inspector_of
from fusion.store.client.connections import get_current_connection
from fusion.store.client.errors import repeatable
from fusion.store.scripting.host import run

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault  # every type checker knows it, Python 3.11 does not

    from fusion.store.read.job_facts import StoredLog

    T = TypeVar("T")
    R = TypeVarWithDefault("R", covariant=True, default=Any)

    class _Unknown:
        """Nothing has this type, so only a `Job[Any]` can be taken for a `Job[_Unknown]`: its result is Any, without a None to ask for."""

    class _ResultProperty:
        """A property whose type follows from that of the job."""

        def __init__(self, read: Callable[[Job[Any]], Any]) -> None: ...
        @overload
        def __get__(self, job: Job[_Unknown], kind: Any = None) -> Any: ...
        @overload
        def __get__(self, job: Job[T], kind: Any = None) -> T | None: ...
        def __get__(self, job: Any, kind: Any = None) -> Any: ...

else:
    R, _ResultProperty = TypeVar("R", covariant=True), property


class Job(JobFields, Generic[R]):
    """A view of a job's hash as of the last `refresh()`. To a type checker `Job[int]` is one whose task returns an int.

    Arguments are decoded on first use, and pickles only if the settings allow it: reading a job never runs its data.
    """

    #: For a job that an enqueue returned: the id of the job that already had the unique key. With `skip` it is the returned job itself, as
    #: nothing was enqueued; with `replace` it is the job that was replaced. None if there was none; not kept in Redis.
    duplicate_of: str | None = None
    #: For a job that an enqueue returned: what sends it later, if a middleware holds it (`fusion.middleware.Held`).
    _held: Any = None

    def __init__(self, id: str, fields: Mapping[str, Any], connection: Redis | None = None) -> None:
        self.id = id
        self.connection = connection if connection is not None else get_current_connection()
        self._fields = dict(fields)
        self._meta: dict[str, Any] | None = None
        self._outdated = False  # the status is newer than the other fields

    @classmethod
    def of(cls, id: str, fields: dict[str, Any], connection: Redis) -> Job:
        """Make a Job that keeps this dict itself, so the caller must not: cheaper than `Job(...)`, which copies it."""
        job = cls.__new__(cls)
        job.id, job.connection, job._fields, job._meta, job._outdated = id, connection, fields, None, False
        return job

    def __deepcopy__(self, memo: dict[int, Any]) -> Job:
        """Return a copy with its own fields and meta. It has the same connection, since nobody can copy that."""
        copied = type(self).__new__(type(self))
        for name, value in vars(self).items():
            setattr(copied, name, value if name in ("connection", "_held") else deepcopy(value, memo))
        return copied

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.description!r} {self._text('status')}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    if not TYPE_CHECKING:  # a type checker would take them for members
        locals().update(
            absent(
                "job",
                "is_deferred get_meta get_id save create set_status dependency fetch_dependencies to_dict perform func "
                "retries_left last_heartbeat failure_ttl ttl",
            )
        )

    # -- finding

    @classmethod
    def fetch(cls, id: str, connection: Redis | None = None) -> Job:
        """Return the job with this id; NoSuchJobError if there is none (it may have passed its `result_ttl`)."""
        job = cls(id, {}, connection)
        job.refresh()
        return job

    @classmethod
    def fetch_many(cls, job_ids: Iterable[str], connection: Redis | None = None) -> list[Job | None]:
        """Return a job or None for each id, in one round trip."""
        ids = list(job_ids)
        connection = connection if connection is not None else get_current_connection()
        rows = inspector_of(connection).jobs(ids)
        return [cls(i, row, connection) if row else None for i, row in zip(ids, rows, strict=True)]

    @classmethod
    def exists(cls, id: str, connection: Redis | None = None) -> bool:
        """Return True if there is a record of this id."""
        connection = connection if connection is not None else get_current_connection()
        return inspector_of(connection).fields(id, "status")[0] is not None

    def refresh(self) -> None:
        """Read the job again. NoSuchJobError if it is gone."""
        fields = inspector_of(self.connection).job(self.id)
        if not fields:
            raise NoSuchJobError(f"no job {self.id!r}: it never existed, was deleted, or its result_ttl is over")
        self._fields = dict(fields)
        self._meta, self._outdated = None, False

    # -- how it stands

    def get_status(self, refresh: bool = True) -> JobStatus:
        """Return its state now, or with `refresh=False` as last read. NoSuchJobError if it is gone."""
        if refresh:
            (status,) = inspector_of(self.connection).fields(self.id, "status")
            if status is None:
                raise NoSuchJobError(f"no job {self.id!r}")
            self._outdated = self._outdated or status != self._fields.get("status")
            self._fields["status"] = status
        return JobStatus(self._text("status"))

    @property
    def is_queued(self) -> bool:
        return self.get_status() is JobStatus.QUEUED

    @property
    def is_started(self) -> bool:
        return self.get_status() is JobStatus.STARTED

    @property
    def is_finished(self) -> bool:
        return self.get_status() is JobStatus.FINISHED

    @property
    def is_failed(self) -> bool:
        return self.get_status() is JobStatus.FAILED

    @property
    def is_scheduled(self) -> bool:
        return self.get_status() is JobStatus.SCHEDULED

    @property
    def is_canceled(self) -> bool:
        return self.get_status() is JobStatus.CANCELED

    @property
    def is_stopped(self) -> bool:
        return self.get_status() is JobStatus.STOPPED

    @_ResultProperty
    def result(self) -> Any:
        """The return value of the task. None while it has not finished, if it returned None, or if the result was dropped. A pickled result
        is loaded only if pickles are allowed and no secret keys are set. With keys it raises BadSignature, since results are not signed."""
        if self._outdated or self._fields.get("status") not in (b"finished", "finished"):
            self.refresh()
        raw = self._fields.get("result")
        if raw is None:
            return None
        serializer = get_serializer(self._text("serializer", "json"), allow_pickle=get_settings().allow_pickle)
        if serializer.name == "pickle" and get_settings().keyring:
            raise BadSignature(
                f"job {self.id}: its result is a pickle, which no signature covers, so it is not loaded while there are secret_keys; "
                "let the task store what it returns elsewhere, or use JSON"
            )
        return serializer.loads(raw)

    @overload
    def return_value(self: Job[_Unknown]) -> Any: ...
    @overload
    def return_value(self: Job[T]) -> T | None: ...
    def return_value(self) -> Any:
        """The same as `result`; RQ's newer name for it."""
        return self.result

    def results(self) -> list[Result]:
        """Return how its runs ended, the newest first: the one that finished, and the last 10 before it. Reads the job again; NoSuchJobError if
        it is gone."""
        self.refresh()
        finished, load = None, lambda: self.result
        if self._text("status") == JobStatus.FINISHED:
            kind = ResultType.SUCCESSFUL
            finished = Result(self.id, kind, self.ended_at, self.worker_name, None, self.started_at, load)
        return results_of(self.id, self.attempt_history, self.exc_info, finished, load)

    def latest_result(self, timeout: float = 0) -> Result | None:
        """Return how its last run ended; None if no run has. With a `timeout` in seconds, wait for a job without a result until it has ended."""
        found = self.results()
        if not found and timeout > 0:
            with suppress(TimeoutError):
                self.wait(timeout)
            found = self.results()
        return found[0] if found else None

    def get_log(self) -> StoredLog | None:
        """Return the last lines that it printed and logged, masked, each with its time; None if there are none, or they are not kept. `lines` are
        pairs of a time and a text, the oldest first; `left_out` counts lines before them; `attempt` is the number of the run's attempt."""
        return sheet_inspector_of(self.connection).log(self.id, self.created_at)

    def get_position(self) -> int | None:
        """Return how many jobs of its queue are claimed before it; None if it does not wait."""
        return inspector_of(self.connection).position(self.origin, self.id)

    def scheduled_at(self) -> datetime | None:
        """The time at which it is due, its own or that of a retry; None if it waits for no time."""
        return inspector_of(self.connection).due_at(self.id)

    def wait(self, timeout: float | None = None, *, tree: bool = False) -> JobStatus:
        """Wait until the job has ended, and return its status; one that waits for a retry has not ended. TimeoutError after `timeout`
        seconds, NoSuchJobError if it vanishes. Polls at growing intervals, up to 0.2 seconds.

        `tree`: wait also for all jobs that depend on it, directly or through others. Jobs that come to depend on an already ended one are not
        waited for. One poll reads at most a hundred jobs."""
        steps = wait_steps(reads_of(self.connection), self.id, timeout, tree, self._saw)
        ended = run(steps, self.connection)
        try:
            self.refresh()
        except NoSuchJobError:  # the jobs that depend on it may have outlived it
            if not tree:
                raise
        return ended

    def _saw(self, status: str) -> None:
        self._outdated = self._outdated or status != self._text("status")
        self._fields["status"] = status

    @property
    def meta(self) -> dict[str, Any]:
        """Notes on the job, at any stage of it: a dict of values that arguments may have. `save_meta()` stores it."""
        if self._meta is None:
            raw = self._fields.get("meta")
            loaded = JSONSerializer().loads(raw if isinstance(raw, bytes) else str(raw).encode()) if raw else {}
            self._meta = loaded if isinstance(loaded, dict) else {}
        return self._meta

    @meta.setter
    def meta(self, value: dict[str, Any]) -> None:
        self._meta = value

    @property
    def dependency_ids(self) -> list[str]:
        """The ids of the jobs that it waits for, or waited for, in the order in which they were named."""
        raw = self._text("parents")
        if not raw:
            return []
        try:
            listed = [*json.loads(raw), *inspector_of(self.connection).further_parents(self.id)]
        except (ValueError, TypeError, RecursionError):
            raise DeserializationError(f"job {self.id}: its list of parents can't be read") from None
        return [str(one).lstrip("?~") for one in listed]

    @property
    def dependencies(self) -> list[Job]:
        """Return these jobs as they are now, each with its `result`. Those that are gone are left out."""
        return [job for job in Job.fetch_many(self.dependency_ids, self.connection) if job is not None]

    @property
    def dependent_ids(self) -> list[str]:
        """Return the ids of the jobs that wait, or waited, for this one and have not ended; at most a thousand."""
        return inspector_of(self.connection).children(self.id)

    def tree(self, limit: int = 1000) -> JobTree:
        """Return the graph around it as it is now: the jobs that it waits or waited for, and those that wait or waited for it, however far
        away. At most `limit` jobs, the nearest first. NoSuchJobError if it is gone."""
        return tree(inspector_of(self.connection), self.id, limit)

    def save_meta(self) -> None:
        """Store `meta`, even while the job runs. NoSuchJobError; InvalidJobOperation if it is not Fusion's job; SerializationError if it
        can't be stored."""
        self._check(broker_of(self.connection).save_meta(self.id, to_stored(self.meta, self._fields)))

    def _check(self, answer: str) -> None:
        if answer == "missing":
            raise NoSuchJobError(f"no job {self.id!r}")
        refuse_foreign(self.id, answer)

    # -- changing its state

    def cancel(self) -> str:
        """Cancel the job. A waiting one will not run: returns `canceled`. A running one will not run again: returns `pending`, and the job
        ends as canceled unless this run finishes or fails. Canceled already is no error; InvalidJobOperation if it has ended otherwise,
        NoSuchJobError if it is gone."""
        return self._cancel()

    def _cancel(self, dependents: bool = False) -> str:
        check_called_off(self.id, answer := broker_of(self.connection).cancel(self.id, dependents), "canceled")
        self._fields["status"] = "canceled" if answer == "canceled" else "started"
        return answer

    def stop(self) -> str:
        """Stop the job. A waiting one will not run: returns `stopped`. For a running one returns `pending`: its worker raises JobStopped in
        the task, and kills what still runs after `timeout_grace`. The job ends as stopped unless it finishes or fails before. Stopped already
        is no error; InvalidJobOperation if it has ended otherwise, NoSuchJobError if it is gone."""
        check_called_off(self.id, answer := broker_of(self.connection).stop(self.id), "stopped")
        self._fields["status"] = "stopped" if answer == "stopped" else "started"
        return answer

    def reschedule(self, when: datetime | timedelta | float | str) -> datetime:
        """Change the time that it waits for, and return the new one. `when` is an aware datetime, or a delay from now by the server's clock
        (a timedelta, seconds, "5m"). A time in the past means now. Only for a job that waits for a time, or for its retry; InvalidJobOperation
        for any other, NoSuchJobError if it is gone, ValueError or TypeError for a time that `Queue.enqueue_at` would refuse."""
        if isinstance(when, date):  # a datetime is one
            due = to_unix(when, "reschedule")
        else:
            due = to_delay(when, "reschedule") + inspector_of(self.connection).now().timestamp()  # a resend changes nothing
        due = round(due, 3)  # as it is stored
        self._check(answer := broker_of(self.connection).reschedule(self.id, due))
        if answer != "ok":
            raise InvalidJobOperation(f"job {self.id} is {answer}; only a scheduled one, which waits for a time, can be moved")
        self._fields["status"] = "scheduled"
        return datetime.fromtimestamp(due, timezone.utc)

    def requeue(self, *, keep_place: bool = False, at_front: bool = False, nonce: str = "") -> None:
        """Requeue the job in the queue it came from, at its old priority, behind those waiting (`keep_place`: where it stood; `at_front`: before
        all others of its priority). A second call with the same `nonce` is a repetition, which changes nothing.

        InvalidJobOperation unless it failed, was canceled or stopped; DuplicateJob if another has its unique key by now;
        DependencyCycle if it would wait for itself; NoSuchJobError if it is gone.
        """
        given = nonce or new_nonce()
        repeatable(lambda: self._requeue(given, keep_place, at_front))

    def _requeue(self, nonce: str, keep_place: bool, at_front: bool) -> None:
        (answer,) = broker_of(self.connection).requeue([self.id], nonce, keep_place=keep_place, at_front=at_front)
        self._check(answer)
        if answer.startswith("error: "):
            raise InvalidJobOperation(f"job {self.id} can't be put back: {answer}")
        if answer.startswith("duplicate "):
            raise DuplicateJob(self.id, "", answer.removeprefix("duplicate "), self.unique_key)
        if answer.startswith("cycle "):
            raise DependencyCycle.of(self.id, answer.removeprefix("cycle "))
        if answer == "corrupt":
            raise InvalidJobOperation(f"job {self.id} has no data to run; delete it")
        if answer != "ok":
            raise InvalidJobOperation(f"job {self.id} is {answer}; only failed, canceled or stopped jobs are requeued")
        self._fields["status"] = "queued"

    def delete(self, *, purge: bool = False) -> bool:
        """Delete the job; `Trash` restores it for an hour, unless `purge`. Returns whether it can be restored: the trash may be full.
        InvalidJobOperation while it runs. A job that is gone already is no error."""
        from fusion.trash import Trash

        answer = Trash(self.connection).delete([self.id], purge=purge)[self.id]
        if answer == "started":
            raise InvalidJobOperation(f"job {self.id} is running; stop() it, and delete it when its run has ended")
        if answer not in ("kept", "deleted", "missing"):
            raise InvalidJobOperation(f"job {self.id} can't be deleted: {why_not(answer)}")
        return answer == "kept"


sys.modules[__name__].__class__ = CallableModule
