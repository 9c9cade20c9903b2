"""RQ's attributes of a job, on the fields of Fusion's record. Setting one counts before the job is accepted; after that, `meta` alone is saved."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from fusion.kernel.timeutil import from_iso, to_iso
from fusion.retry import Retry, retries_done
from fusion.rq.utils import get_call_string, parse_timeout


def attribute(read: Callable[[Any], Any], write: Callable[[Any, Any], None]) -> property:
    """Return an attribute that can be set."""
    return property(read, write, doc=read.__doc__)


def _number(field: str, default: int | None) -> property:
    def read(job: Any) -> int | None:
        raw = job._text(field)
        return int(float(raw)) if raw else default

    def write(job: Any, value: Any) -> None:
        job._put(field, parse_timeout(value))

    return attribute(read, write)


def _kept(field: str) -> property:
    """Return an attribute that is None for what the job was not given, as in RQ. Its record has the default then, and its name in `usual`."""

    def read(job: Any) -> int | None:
        return None if field in job._text("usual").split() else job._seconds(field)

    def write(job: Any, value: Any) -> None:
        usual = [one for one in job._text("usual").split() if one != field]
        job._put("usual", " ".join(usual) or None)
        job._put(field, parse_timeout(value))

    return attribute(read, write)


def _time(field: str) -> property:
    def read(job: Any) -> datetime | None:
        found: datetime | None = job._time(field)
        return found

    def write(job: Any, value: datetime | None) -> None:
        job._put(field, None if value is None else to_iso(value))

    return attribute(read, write)


def _words(field: str) -> property:
    def read(job: Any) -> str | None:
        found: str | None = job._text(field) or None
        return found

    def write(job: Any, value: str | None) -> None:
        job._put(field, value)

    return attribute(read, write)


def _text(field: str) -> property:
    def read(job: Any) -> str:
        found: str = job._text(field)
        return found

    def write(job: Any, value: str | None) -> None:
        job._put(field, value)

    return attribute(read, write)


class RQFields:
    """The attributes of RQ's Job that Fusion's does not have, or has in another form."""

    _fields: dict[str, Any]
    _text: Callable[..., str]

    timeout = _kept("timeout")
    result_ttl = _kept("result_ttl")
    ttl = _number("ttl", None)
    failure_ttl = _kept("failure_ttl")
    created_at = _time("created_at")
    ended_at = _time("ended_at")
    last_heartbeat = _time("last_heartbeat")
    origin = _text("origin")
    worker_name = _words("worker_name")
    group_id = _words("group_id")

    def _seconds(self, field: str) -> int | None:
        raw = self._text(field)
        return int(float(raw)) if raw else None

    @property
    def enqueued_at(self) -> datetime | None:
        """When it came into its queue; None while it waits for others, or for its time."""
        if self._text("status") in ("deferred", "scheduled") and not self.number_of_retries_done:
            return None
        return from_iso(self._fields.get("enqueued_at"))

    @enqueued_at.setter
    def enqueued_at(self, value: datetime | None) -> None:
        self._put("enqueued_at", None if value is None else to_iso(value))

    @property
    def started_at(self) -> datetime | None:
        """When its last try began; None while it waits for its first try, and after a requeue."""
        if self._text("status") == "queued" and not self.number_of_retries_done:
            return None
        return from_iso(self._fields.get("started_at"))

    @started_at.setter
    def started_at(self, value: datetime | None) -> None:
        self._put("started_at", None if value is None else to_iso(value))

    def _put(self, field: str, value: Any) -> None:
        if value is None:
            self._fields.pop(field, None)
        else:
            self._fields[field] = value

    @property
    def description(self) -> str | None:
        """The text that was given for lists, else the call as Python writes it."""
        found = self._text("description")
        if "data" not in self._fields:
            return found or None
        return found if found and found != self.func_name else self.get_call_string()  # type: ignore[attr-defined]

    @description.setter
    def description(self, value: str | None) -> None:
        self._put("description", value or self.func_name)  # type: ignore[attr-defined]

    def get_call_string(self) -> str | None:
        """Return the call as Python writes it, with long arguments cut."""
        job: Any = self
        return get_call_string(job.func_name, job.args, job.kwargs, max_length=75)

    # -- its callbacks

    def _callback(self, field: str) -> dict[str, Any]:
        raw = self._text(field)
        found: dict[str, Any] = json.loads(raw) if raw else {}
        return found

    def _callback_name(self, field: str) -> str | None:
        return self._callback(field).get("func")

    def _callback_timeout(self, field: str) -> int:
        return int(self._callback(field).get("timeout") or 60)

    @property
    def success_callback_timeout(self) -> int:
        """Seconds that `on_success` may take."""
        return self._callback_timeout("on_success")

    @property
    def failure_callback_timeout(self) -> int:
        """Seconds that `on_failure` may take."""
        return self._callback_timeout("on_failure")

    @property
    def stopped_callback_timeout(self) -> int:
        """Seconds that `on_stopped` may take."""
        return self._callback_timeout("on_stopped")

    # -- its retries

    @property
    def _policy(self) -> Retry | None:
        raw = self._text("retry")
        policy = Retry.from_json(raw) if raw else None
        return policy if policy is not None and policy.max else None

    @property
    def retries_left(self) -> int | None:
        """How many retries its policy still has; None without one."""
        policy = self._policy
        return None if policy is None else max(0, policy.max - self.number_of_retries_done)

    @retries_left.setter
    def retries_left(self, value: int | None) -> None:
        self._change_policy(max=(value or 0) + self.number_of_retries_done)
        self._put("on_lost", "requeue" if value else "fail")

    @property
    def number_of_retries_done(self) -> int:
        """How many retries it has had."""
        return retries_done((self._text("retryCount") or "7").encode())

    @property
    def number_of_retries(self) -> int | None:
        """How many retries it has had; None if it had none."""
        return self.number_of_retries_done or None

    @property
    def retry_intervals(self) -> list[float] | None:
        """The intervals of its policy."""
        policy = self._policy
        return None if policy is None else list(policy.intervals)

    @retry_intervals.setter
    def retry_intervals(self, value: list[float] | None) -> None:
        self._change_policy(interval=value or [0], keep_slot=not any(value or ()))

    @property
    def enqueue_at_front_on_retry(self) -> bool:
        """True if a retried job goes to its old place."""
        policy = self._policy
        return policy is not None and policy.place == "keep"

    @enqueue_at_front_on_retry.setter
    def enqueue_at_front_on_retry(self, value: bool) -> None:
        self._change_policy(place="keep" if value else "back")

    def _change_policy(self, **changed: Any) -> None:
        self._put("retry", json.dumps({**json.loads(self._text("retry") or '{"max": 0}'), **changed, "as": "rq"}))

    @property
    def should_retry(self) -> bool:
        """True if it has retries left."""
        return bool(self.retries_left)

    def get_retry_interval(self) -> float:
        """Return the seconds before its next retry."""
        policy = self._policy
        return 0 if policy is None else policy.delay(self.number_of_retries_done)

    # -- its repeats

    repeats_left = _number("repeats_left", None)

    @property
    def repeat_intervals(self) -> list[float] | None:
        """The seconds before each of the runs that are left; the last one repeats. None for a job that is not repeated."""
        raw = self._text("repeat_intervals")
        return json.loads(raw) if raw else None

    @repeat_intervals.setter
    def repeat_intervals(self, value: list[float] | None) -> None:
        self._put("repeat_intervals", None if value is None else json.dumps(value))

    # -- its limit

    rate_limit_key = _words("concurrency_key")
    rate_limit_concurrency = _number("max_concurrent", None)

    @property
    def has_rate_limit(self) -> bool:
        """True if it has a key and a limit."""
        return bool(self.rate_limit_key and self.rate_limit_concurrency is not None)

    # -- its parents

    @property
    def allow_dependency_failures(self) -> bool | None:
        """True if a parent that failed counts as finished."""
        raw = self._text("parents")
        return raw.startswith('["?') if raw else None

    def get_ttl(self, default_ttl: int | None = None) -> int | None:
        """Return its `ttl`, or this."""
        return default_ttl if self.ttl is None else self.ttl

    def get_result_ttl(self, default_ttl: int) -> int:
        """Return its `result_ttl`, or this."""
        return default_ttl if self.result_ttl is None else self.result_ttl
