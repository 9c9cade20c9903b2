"""The fields of a job's record as Python values: the properties of `Job` that need no call to Redis."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

from fusion.exceptions import BadSignature, DeserializationError
from fusion.jobs.attempts import Attempt, parse_history
from fusion.kernel.progress import Progress, parse_progress
from fusion.kernel.serializers import JSONSerializer, get_serializer, loads_call
from fusion.kernel.signing import as_claimed
from fusion.kernel.timeutil import from_iso
from fusion.retry import Retry
from fusion.settings import get_settings
from fusion.store.layout.codec import number, text


class JobFields:
    """The fields of a job's hash as they were last read."""

    id: str
    _fields: dict[str, Any]

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
        """The dotted path of its function. Like `args` and `kwargs` it raises DeserializationError if the data are invalid, ConfigurationError
        for a pickle while pickles are off, and, with keys, BadSignature for a pickle that none of them has signed."""
        return self._call[0]

    @property
    def args(self) -> tuple[Any, ...]:
        return self._call[1]

    @property
    def kwargs(self) -> dict[str, Any]:
        return self._call[2]

    @property
    def last_status(self) -> str:
        """Its state when it was last read; empty if its record was gone."""
        return self._text("status")

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
        except ValueError:  # missing, or written by another program
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
        """The key whose limit it shares; empty if it has none."""
        return self._text("concurrency_key")

    @property
    def unique_key(self) -> str:
        """The key that only one job has at a time; empty if it has none."""
        return self._text("unique_key")

    @property
    def worker_name(self) -> str:
        return self._text("worker_name")

    @property
    def attempts(self) -> int:
        """Runs that failed."""
        return number(self._text("attempts"))

    @property
    def lost(self) -> int:
        """The number of times that its worker or process vanished since its last outcome."""
        return number(self._text("lost"))

    @property
    def deliveries(self) -> int:
        """The number of times that a worker received it."""
        return number(self._text("deliveries"))

    @property
    def retry_count(self) -> int:
        """The field `retryCount`: it starts at 7, and each retry adds one."""
        return number(self._text("retryCount"), 7)

    @property
    def retryCount(self) -> int:
        """The same as `retry_count`, under the name of the stored field."""
        return self.retry_count

    @property
    def retry(self) -> Retry | None:
        raw = self._text("retry")
        try:
            return Retry.from_json(raw) if raw else None
        except (ValueError, TypeError, RecursionError) as error:
            raise DeserializationError(f"job {self.id}: its retry policy is invalid: {error}") from None

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
        """The reason why it ended, or waits for another attempt, in one line; empty if its status says everything."""
        return self._text("reason")

    @property
    def error_class(self) -> str:
        """The dotted class of the error with which its last run failed; empty if it did not fail."""
        return self._text("error_class")

    @property
    def error_frame(self) -> str:
        """The place in its own code where that error was raised, as `module:function:line`: the last frame outside of libraries and Fusion."""
        return self._text("error_frame")

    @property
    def callback_error(self) -> str:
        """The error that its `on_success`, `on_failure` or `on_stopped` last raised, like `on_success: RuntimeError: ...`; empty if none did.
        The job's outcome is not affected."""
        return self._text("callback_error")

    @property
    def quarantined(self) -> str:
        """The reason why it was quarantined, that is kept from requeueing; empty if it was not."""
        return self._text("quarantined")

    @property
    def progress(self) -> Progress | None:
        """Its progress, as its task last set it by `get_current_job().progress(...)`; None if it set none. Like all fields it is as last read:
        call `refresh()` first for a running job."""
        return parse_progress(self._text("progress"))

    @property
    def cursor(self) -> Any:
        """The position where its next run continues, as stored by `checkpoint` or `iterate`; None if there is none, or it can't be read."""
        raw = self._text("cursor")
        try:
            return JSONSerializer().loads(raw.encode()) if raw else None
        except DeserializationError:
            return None

    @property
    def attempt_history(self) -> list[Attempt]:
        """The last 10 executions that ended but did not finish, oldest first."""
        return parse_history(self._text("history"))
