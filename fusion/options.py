"""The options of an enqueue, spelled once: everything a producer can say about a job besides its function and arguments."""

from __future__ import annotations

import math
import secrets
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from fusion import defaults
from fusion.callbacks import Callback, as_callback, hooks
from fusion.exceptions import PayloadTooLarge, SerializationError
from fusion.importing import func_name_of
from fusion.retry import Retry
from fusion.serializers import JSONSerializer, dumps_call, get_serializer
from fusion.settings import Settings, get_settings
from fusion.signing import SIGNATURE
from fusion.store.keys import check_new_job_id
from fusion.store.records import NewJob
from fusion.store.score import check_priority
from fusion.timeutil import FURTHEST, parse_seconds, to_delay, to_unix

_Func = str | Callable[..., Any]
#: RQ's options that Fusion does not have yet; passed on as arguments of the task they would do harm silently.
_NOT_YET = ("depends_on", "repeat", "group_id", "on_stopped", "unique", "pipeline")


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueOptions:
    """Times in seconds (or "5m", or a timedelta). `ttl`: a job not started by then expires. `on_lost="fail"`: fail instead of running
    again when the worker is lost. `log_tag` like `SMS_OTP` names task and type in the event log. `success_task_handler`,
    `failed_task_handler`, `callback_url` (for either end; also read from a payload): URLs to tell of the job's end, docs/callbacks.md.
    `enqueue_at`, an aware datetime, or `enqueue_in`, by the server's clock: it waits until then, and its `ttl` begins then; a time in
    the past is now. `isolate=True`: a process of its own, in a worker with warm processes too."""

    priority: int | None = None
    job_timeout: float | str | None = None
    result_ttl: float | str | None = None
    ttl: float | str | None = None
    failure_ttl: float | str | None = None
    job_id: str | None = None
    at_front: bool = False
    retry: Retry | None = None
    on_success: Callback | _Func | None = None
    on_failure: Callback | _Func | None = None
    meta: Mapping[str, Any] | None = None
    description: str | None = None
    log_tag: str | None = None
    success_task_handler: str | None = None
    failed_task_handler: str | None = None
    callback_url: str | None = None
    on_lost: str | None = None
    enqueue_at: datetime | None = None
    enqueue_in: float | str | timedelta | None = None
    isolate: bool = False

    def over(self, base: EnqueueOptions) -> EnqueueOptions:
        """These options, with `base` where they say nothing."""
        mine = {name: getattr(self, name) for name in OPTION_NAMES}
        # by identity: 0 is a priority and a result_ttl, and equal to False
        return EnqueueOptions(**{n: getattr(base, n) if own is None or own is False else own for n, own in mine.items()})


OPTION_NAMES = tuple(item.name for item in fields(EnqueueOptions))


def split_options(kwargs: dict[str, Any]) -> tuple[EnqueueOptions, dict[str, Any]]:
    """Part the keywords of `enqueue(func, *args, **kwargs)` into Fusion's options and the task's own arguments."""
    for name in _NOT_YET:
        if kwargs.get(name) is not None:
            raise ValueError(
                f"{name}= is not supported by this version; to pass it to the task use enqueue_call(func, kwargs={{...}})"
            )
    options = {name: kwargs.pop(name) for name in OPTION_NAMES if name in kwargs}
    if "timeout" in kwargs and "job_timeout" not in options and kwargs["timeout"] is None:
        kwargs.pop("timeout")
    return EnqueueOptions(**options), kwargs


def new_nonce() -> str:
    """What makes a resent call recognizable."""
    return secrets.token_hex(6)


@dataclass(frozen=True, slots=True)
class JobData:
    """A job as prepared by `Queue.prepare_data`, ready for `enqueue_many`."""

    func_name: str
    new: NewJob


def build(func: _Func, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: EnqueueOptions, settings: Settings) -> JobData:
    """Check and encode everything, before anything is written. Raises ValueError, SerializationError or PayloadTooLarge; TypeError for
    an `enqueue_at` that is no datetime."""
    name = func_name_of(func)
    serializer = get_serializer(settings.serializer, allow_pickle=True)
    data = dumps_call(serializer, name, args, dict(kwargs), max_payload=settings.max_payload)
    if options.on_lost not in (None, "requeue", "fail"):
        raise ValueError(f"on_lost={options.on_lost!r}: use 'requeue' or 'fail'")
    if options.retry is not None and not isinstance(options.retry, Retry):
        raise ValueError(f"retry={options.retry!r}: use Retry(max=...)")
    stored: dict[str, Any] = {
        "data": data,
        "serializer": None if serializer.name == "json" else serializer.name,
        "description": options.description or name,
        "timeout": _number(_seconds("job_timeout", options.job_timeout, settings.job_timeout, endless=True)),
        "result_ttl": _whole("result_ttl", options.result_ttl, settings.result_ttl),
        "failure_ttl": None if options.failure_ttl is None else _whole("failure_ttl", options.failure_ttl, 0),
        "retryCount": defaults.RETRY_COUNT_START,
        "retry": options.retry and options.retry.to_json(),
        "log_tag": options.log_tag,
        "on_success": as_callback(options.on_success),
        "on_failure": as_callback(options.on_failure),
        "meta": to_json("meta", options.meta) if options.meta else None,
        **hooks(
            options.success_task_handler,
            options.failed_task_handler,
            options.callback_url,
            args,
            kwargs,
            settings.callback_allow_http,
        ),
        "on_lost": options.on_lost if options.on_lost == "fail" else None,
        "isolate": 1 if options.isolate else None,
    }
    ttl = None if options.ttl is None else _seconds("ttl", options.ttl, 0)
    if ttl is not None:
        stored["ttl"] = _number(ttl)
    _check_options(name, stored, settings.max_payload)
    priority = check_priority(1 if options.priority is None else options.priority)
    job_id = check_new_job_id(options.job_id) if options.job_id is not None else str(uuid.uuid4())
    due, delay = _time(options)
    return JobData(name, NewJob(job_id, priority, stored, options.at_front, ttl, due, delay))


def sealed(queue: str, jobs: Iterable[NewJob], settings: Settings) -> list[NewJob]:
    """The jobs as they go to Redis: signed, if there are `secret_keys`. What is enqueued goes through here once its queue is known."""
    keyring = settings.keyring
    if keyring is None:
        return list(jobs)
    return [replace(job, fields={**job.fields, SIGNATURE: keyring.sign(job.id, queue, job.priority, job.fields)}) for job in jobs]


def _check_options(name: str, stored: Mapping[str, Any], limit: int) -> None:
    """What is stored besides the arguments counts too: `meta`, `description`, callbacks, a long list of retry intervals."""
    texts = [value for value in stored.values() if isinstance(value, str)]
    if sum(map(len, texts)) * 4 > limit and (size := sum(len(text.encode()) for text in texts)) > limit:
        raise PayloadTooLarge(
            f"the options of {name} (meta, description, retry ...) take {size} bytes; the limit is {limit} (max_payload, "
            "FUSION_MAX_PAYLOAD). Store big data elsewhere and keep its key"
        )


def _time(options: EnqueueOptions) -> tuple[float | None, float | None]:
    if options.enqueue_at is not None and options.enqueue_in is not None:
        raise ValueError("give enqueue_at or enqueue_in, not both")
    due = None if options.enqueue_at is None else to_unix(options.enqueue_at, "enqueue_at")
    return due, None if options.enqueue_in is None else to_delay(options.enqueue_in, "enqueue_in")


def _seconds(name: str, value: Any, default: float, *, endless: bool = False) -> float:
    if value is None:
        return default
    seconds = _parsed(name, value)
    if endless and seconds == -1:
        return -1
    if seconds <= 0 or seconds > FURTHEST:
        raise ValueError(f"{name}={value!r}: use a duration over 0" + (", or -1 for no limit" if endless else ""))
    return seconds


def _whole(name: str, value: Any, default: float) -> int:
    seconds = default if value is None else _parsed(name, value)
    if seconds != -1 and not 0 <= seconds <= FURTHEST:
        raise ValueError(f"{name}={value!r}: use seconds from 0, or -1 to keep it for ever")
    return math.ceil(seconds)  # half a second is not none at all


def _parsed(name: str, value: Any) -> float:
    try:
        return parse_seconds(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def to_json(name: str, value: Mapping[str, Any]) -> str:
    """SerializationError or PayloadTooLarge (nested too deeply, or over `max_result`) with `name` in front."""
    try:
        raw = JSONSerializer().dumps(dict(value))
    except (SerializationError, PayloadTooLarge) as error:
        raise type(error)(f"{name}: {error}") from None
    limit = get_settings().max_result
    if len(raw) > limit:
        raise PayloadTooLarge(f"{name} takes {len(raw)} bytes; the limit is {limit} (max_result, FUSION_MAX_RESULT)")
    return raw.decode()


def _number(seconds: float) -> float:
    return int(seconds) if float(seconds).is_integer() else seconds
