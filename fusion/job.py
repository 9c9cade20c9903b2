"""A job as producers and tools see it. Reading goes through the Inspector, every change through the Broker."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta, timezone
from typing import Any

from redis import Redis

from fusion.exceptions import BadSignature, DeserializationError, InvalidJobOperation, NoSuchJobError
from fusion.jobs.attempts import Attempt, parse_history
from fusion.jobs.meta import to_stored
from fusion.kernel.importing import CallableModule
from fusion.kernel.nonces import new_nonce
from fusion.kernel.serializers import JSONSerializer, get_serializer, loads_call
from fusion.kernel.signing import as_claimed
from fusion.kernel.timeutil import from_iso, to_delay, to_unix
from fusion.retry import Retry
from fusion.settings import get_settings
from fusion.status import TERMINAL, JobStatus, refuse_foreign, why_not
from fusion.store.access import broker_of, inspector_of
from fusion.store.client.connections import get_current_connection
from fusion.store.client.errors import repeatable
from fusion.store.layout.codec import number, text


class Job:
    """A view of a job's hash as of the last `refresh()`.

    Arguments are decoded when asked for, and pickled ones only if settings allow it: looking at a job never runs its data.
    """

    def __init__(self, id: str, fields: Mapping[str, Any], connection: Redis | None = None) -> None:
        self.id = id
        self.connection = connection if connection is not None else get_current_connection()
        self._fields = dict(fields)
        self._meta: dict[str, Any] | None = None
        self._outdated = False  # a newer status is known than the other fields tell of

    @classmethod
    def of(cls, id: str, fields: dict[str, Any], connection: Redis) -> Job:
        """Make a Job of fields that nobody else keeps: cheaper than `Job(...)`, which copies them."""
        job = cls.__new__(cls)
        job.id, job.connection, job._fields, job._meta, job._outdated = id, connection, fields, None, False
        return job

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.description!r} {self._text('status')}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    # -- finding

    @classmethod
    def fetch(cls, id: str, connection: Redis | None = None) -> Job:
        """The job with this id; NoSuchJobError if there is none (it may have passed its `result_ttl`)."""
        job = cls(id, {}, connection)
        job.refresh()
        return job

    @classmethod
    def fetch_many(cls, job_ids: Iterable[str], connection: Redis | None = None) -> list[Job | None]:
        """A job or None per id, in one round trip."""
        ids = list(job_ids)
        connection = connection if connection is not None else get_current_connection()
        rows = inspector_of(connection).jobs(ids)
        return [cls(i, row, connection) if row else None for i, row in zip(ids, rows, strict=True)]

    @classmethod
    def exists(cls, id: str, connection: Redis | None = None) -> bool:
        """A record of this id is there."""
        connection = connection if connection is not None else get_current_connection()
        return inspector_of(connection).fields(id, "status")[0] is not None

    def refresh(self) -> None:
        """Read the job again. NoSuchJobError if it is gone."""
        fields = inspector_of(self.connection).job(self.id)
        if not fields:
            raise NoSuchJobError(f"no job {self.id!r}: it never existed, was deleted, or its result_ttl is over")
        self._fields = dict(fields)
        self._meta, self._outdated = None, False

    def _text(self, name: str, default: str = "") -> str:
        value = self._fields.get(name)
        return str(value) if isinstance(value, (int, float)) else text(value, default)

    def _time(self, name: str) -> datetime | None:
        return from_iso(self._fields.get(name))

    @property
    def _call(self) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
        serializer = get_serializer(self._text("serializer", "json"), allow_pickle=get_settings().allow_pickle)
        keyring = get_settings().keyring if serializer.name == "pickle" else None
        if keyring and (flaw := keyring.flaw(self.id, self.origin, as_claimed(self._fields))):
            raise BadSignature(f"job {self.id}: its arguments are a pickle, and are not loaded: {flaw}")
        return loads_call(serializer, self._fields["data"])

    @property
    def func_name(self) -> str:
        """As `args` and `kwargs` it raises DeserializationError if the data is none, ConfigurationError for a pickle while that is off,
        and, with keys, BadSignature for a pickle that was not signed by one of them."""
        return self._call[0]

    @property
    def args(self) -> tuple[Any, ...]:
        return self._call[1]

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._call[2]

    @property
    def description(self) -> str:
        return self._text("description")

    @property
    def origin(self) -> str:
        return self._text("origin")

    @property
    def original_queue(self) -> str:
        return self._text("original_queue") or self.origin

    @property
    def priority(self) -> int:
        return number(self._text("priority"), 1)

    @property
    def timeout(self) -> float:
        """Seconds it may run; -1 for no limit."""
        try:
            found = float(self._text("timeout"))
        except ValueError:  # none, or what an outsider wrote
            found = math.nan
        return found if math.isfinite(found) else float(get_settings().job_timeout)

    @property
    def result_ttl(self) -> int:
        return number(self._text("result_ttl"), get_settings().result_ttl)

    @property
    def log_tag(self) -> str:
        return self._text("log_tag")

    @property
    def concurrency_key(self) -> str:
        """The key that it shares a limit with; empty without."""
        return self._text("concurrency_key")

    @property
    def worker_name(self) -> str:
        return self._text("worker_name")

    @property
    def attempts(self) -> int:
        """Runs that failed."""
        return number(self._text("attempts"))

    @property
    def lost(self) -> int:
        """Times its worker or process vanished since the last outcome."""
        return number(self._text("lost"))

    @property
    def deliveries(self) -> int:
        """Times it was handed to a worker."""
        return number(self._text("deliveries"))

    @property
    def retry_count(self) -> int:
        """`retryCount`: starts at 7, one more for each retry."""
        return number(self._text("retryCount"), 7)

    @property
    def retry(self) -> Retry | None:
        raw = self._text("retry")
        try:
            return Retry.from_json(raw) if raw else None
        except (ValueError, TypeError, RecursionError) as error:
            raise DeserializationError(f"job {self.id}: its retry policy is none: {error}") from None

    @property
    def created_at(self) -> datetime | None:
        return self._time("created_at")

    @property
    def enqueued_at(self) -> datetime | None:
        return self._time("enqueued_at")

    @property
    def started_at(self) -> datetime | None:
        return self._time("started_at")

    @property
    def ended_at(self) -> datetime | None:
        return self._time("ended_at")

    @property
    def exc_info(self) -> str | None:
        """The traceback of the last failed attempt."""
        return self._text("exc_info") or None

    @property
    def reason(self) -> str:
        """Why it ended as it did, or waits for another attempt, in one line, where there is more to say than its status."""
        return self._text("reason")

    @property
    def error_class(self) -> str:
        """Dotted class of the error its last run failed with; empty if it did not fail."""
        return self._text("error_class")

    @property
    def error_frame(self) -> str:
        """Where that was raised in its own code: `module:function:line`, the last frame outside of libraries and Fusion."""
        return self._text("error_frame")

    @property
    def callback_error(self) -> str:
        """The error that its `on_success` or `on_failure` last raised, `on_success: RuntimeError: ...`; its outcome stands. Empty without."""
        return self._text("callback_error")

    @property
    def quarantined(self) -> str:
        """Why it was set aside from requeueing; empty if it was not."""
        return self._text("quarantined")

    @property
    def attempt_history(self) -> list[Attempt]:
        """The last 10 executions that ended without finishing, oldest first."""
        return parse_history(self._text("history"))

    # -- how it stands

    def get_status(self, refresh: bool = True) -> JobStatus:
        """Its state now, or with `refresh=False` as last read. NoSuchJobError if it is gone."""
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
    def result(self) -> Any:
        """The return value of the task; None while it has not finished, or if it returned None or the result was dropped. A pickle is loaded
        only if that is allowed and there are no keys: BadSignature, since results are not signed."""
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

    def return_value(self) -> Any:
        """RQ's newer name of `result`."""
        return self.result

    def get_position(self) -> int | None:
        """The number of jobs of its queue that are claimed before it; None if it does not wait."""
        return inspector_of(self.connection).position(self.origin, self.id)

    def scheduled_at(self) -> datetime | None:
        """When it is due, whether it was enqueued for that time or waits for a retry; None if it waits for no time."""
        return inspector_of(self.connection).due_at(self.id)

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Wait until the job has ended and return how; one that waits for a retry has not. TimeoutError after `timeout` seconds, NoSuchJobError
        if it vanishes. Looks at ever longer intervals, up to a fifth of a second."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.002
        while True:
            status = self.get_status()
            if status in TERMINAL:
                self.refresh()
                return status
            left = float("inf") if deadline is None else deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"job {self.id} is {status} after {timeout} s")
            time.sleep(min(pause, left))
            pause = min(pause * 1.5, 0.2)

    @property
    def meta(self) -> dict[str, Any]:
        """Notes on the job, by whoever holds it: a dict of what arguments may be. `save_meta()` stores it."""
        if self._meta is None:
            raw = self._fields.get("meta")
            loaded = JSONSerializer().loads(raw if isinstance(raw, bytes) else str(raw).encode()) if raw else {}
            self._meta = loaded if isinstance(loaded, dict) else {}
        return self._meta

    @meta.setter
    def meta(self, value: dict[str, Any]) -> None:
        self._meta = value

    def save_meta(self) -> None:
        """Store `meta`, whoever holds the job. NoSuchJobError, InvalidJobOperation (not Fusion's job) or SerializationError if it can't be."""
        self._check(broker_of(self.connection).save_meta(self.id, to_stored(self.meta, self._fields)))

    def _check(self, answer: str) -> None:
        if answer == "missing":
            raise NoSuchJobError(f"no job {self.id!r}")
        refuse_foreign(self.id, answer)

    # -- changing its state

    def cancel(self) -> str:
        """A waiting job will not run: `canceled`. A running one will not run again: `pending`, it ends as canceled unless this run
        finishes or fails. Canceled already is no error; InvalidJobOperation if it has ended otherwise, NoSuchJobError if it is gone."""
        self._check(answer := broker_of(self.connection).cancel(self.id))
        if answer not in ("canceled", "pending"):
            raise InvalidJobOperation(f"job {self.id} can't be canceled: {why_not(answer)}")
        self._fields["status"] = "canceled" if answer == "canceled" else "started"
        return answer

    def reschedule(self, when: datetime | timedelta | float | str) -> datetime:
        """Have it wait for another time, and return that: an aware datetime, or how long from now by the server's clock (a timedelta,
        seconds, "5m"). One in the past: now. For a job that waits for a time, be it a retry's; InvalidJobOperation for any other,
        NoSuchJobError if it is gone, ValueError or TypeError for a time that `Queue.enqueue_at` would refuse."""
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

    def requeue(self, *, keep_place: bool = False) -> None:
        """Start over in the queue it came from, at its old priority, behind those waiting (`keep_place`: where it stood).

        InvalidJobOperation unless it failed, was canceled or stopped; NoSuchJobError if it is gone.
        """
        nonce = new_nonce()
        repeatable(lambda: self._requeue(nonce, keep_place))

    def _requeue(self, nonce: str, keep_place: bool) -> None:
        (answer,) = broker_of(self.connection).requeue([self.id], nonce, keep_place=keep_place)
        self._check(answer)
        if answer.startswith("error: "):
            raise InvalidJobOperation(f"job {self.id} can't be put back: {answer}")
        if answer == "corrupt":
            raise InvalidJobOperation(f"job {self.id} has no data to run; delete it")
        if answer != "ok":
            raise InvalidJobOperation(f"job {self.id} is {answer}; only failed, canceled or stopped jobs are requeued")
        self._fields["status"] = "queued"

    def delete(self) -> None:
        """Forget the job. InvalidJobOperation while it runs; a job that is gone already is no error."""
        (answer,) = broker_of(self.connection).delete([self.id])
        if answer == "started":
            raise InvalidJobOperation(f"job {self.id} is running; cancel() it, and delete it when its run has ended")
        if answer not in ("deleted", "missing"):
            raise InvalidJobOperation(f"job {self.id} can't be deleted: {why_not(answer)}")


sys.modules[__name__].__class__ = CallableModule
