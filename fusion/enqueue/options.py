"""The options of an enqueue, spelled once: everything a producer can say about a job besides its function and arguments."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from functools import lru_cache
from inspect import CO_VARKEYWORDS
from os import urandom
from types import CodeType, FunctionType
from typing import Any

from fusion.callbacks import Callback, as_callback, hooks, payload_url
from fusion.exceptions import PayloadTooLarge
from fusion.jobs.meta import to_json
from fusion.kernel import defaults
from fusion.kernel.importing import func_name_of
from fusion.kernel.serializers import dumps_call, get_serializer
from fusion.kernel.signing import SIGNATURE
from fusion.kernel.timeutil import FURTHEST, parse_seconds, to_delay, to_unix
from fusion.retry import Retry
from fusion.settings import Settings
from fusion.store.layout.keys import check_new_job_id
from fusion.store.layout.records import NewJob
from fusion.store.layout.score import check_priority

_Func = str | Callable[..., Any]
#: RQ's options that Fusion does not have yet; passed on as arguments of the task they would do harm silently.
_NOT_YET = frozenset({"depends_on", "repeat", "group_id", "on_stopped", "unique", "pipeline"})


# Neither this nor JobData is frozen: made for every job, each would take three times as long.
@dataclass(slots=True, kw_only=True)
class EnqueueOptions:
    """`priority`: "high", "moderate", "low", or 0 to 255. Times in seconds (or "5m", or a timedelta). `ttl`: a job not started by then
    expires. `on_lost="fail"`: fail instead of running again when the worker is lost. `log_tag` like `SMS_OTP` names task and type in the
    event log. `success_task_handler`, `failed_task_handler`, `callback_url` (for either end; also read from a payload): URLs to tell of
    the job's end, docs/callbacks.md. `enqueue_at`, an aware datetime, or `enqueue_in`, by the server's clock: it waits until then, and its
    `ttl` begins then; a time in the past is now. Of the call, not of the job: `durability="replicated"` waits until so many `replicas`
    have it, for at most `replicas_timeout`; `"primary"` waits for none (docs/producers.md). `isolate=True`: a process of its own, in
    a worker with warm processes too."""

    priority: int | str | None = None
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
    durability: str | None = None
    replicas: int | None = None
    replicas_timeout: float | str | None = None
    isolate: bool = False

    def over(self, base: EnqueueOptions) -> EnqueueOptions:
        """These options, with `base` where they say nothing."""
        mine = {name: getattr(self, name) for name in OPTION_NAMES}
        # by identity: 0 is a priority and a result_ttl, and equal to False
        return EnqueueOptions(**{n: getattr(base, n) if own is None or own is False else own for n, own in mine.items()})


OPTION_NAMES = tuple(item.name for item in fields(EnqueueOptions))
_NAMES = frozenset(OPTION_NAMES)
#: None given: of all enqueues the most frequent.
NONE = EnqueueOptions()


def split_options(kwargs: dict[str, Any]) -> tuple[EnqueueOptions, dict[str, Any]]:
    """Part the keywords of `enqueue(func, *args, **kwargs)` into Fusion's options and the task's own arguments."""
    if not kwargs:
        return NONE, kwargs
    if not _NOT_YET.isdisjoint(kwargs):
        _refuse(kwargs)
    options = {name: kwargs.pop(name) for name in _NAMES & kwargs.keys()}
    if "timeout" in kwargs and "job_timeout" not in options and kwargs["timeout"] is None:
        kwargs.pop("timeout")
    return EnqueueOptions(**options) if options else NONE, kwargs


def _refuse(kwargs: Mapping[str, Any]) -> None:
    for name in _NOT_YET:
        if kwargs.get(name) is not None:
            raise ValueError(f"{name}= is not supported by this version; {_ANYWAY}")


_ANYWAY = "to pass it to the task use enqueue_call(func, kwargs={...})"


def options_of(given: dict[str, Any]) -> EnqueueOptions:
    """Options given apart from the task's arguments. TypeError for one that there is not."""
    for name in given:
        if name not in _NAMES:
            raise TypeError(f"there is no option {name}={did_you_mean(name, OPTION_NAMES)}")
    return EnqueueOptions(**given)


def check_keywords(func: _Func, names: Iterable[str], *, delayed: bool = False) -> None:
    """TypeError for a keyword that would reach the task although an option was meant: one that the function does not take, as far as that
    can be seen without importing anything, or a misspelled option's name. `delayed`: of `.delay()`, which takes no options."""
    code, inner = _codes_of(func)
    for name in names:
        if any(name in _parameters(found) for found in (code, inner) if found is not None):
            continue
        if code is not None and not code.co_flags & CO_VARKEYWORDS:
            told = f"{code.co_name}() takes no argument {name}=, and "
            told += "options go to @job(...) or Queue.enqueue" if delayed else "there is no such option"
            raise TypeError(f"{told}{'' if delayed and name in _NAMES else did_you_mean(name, OPTION_NAMES)}; {_ANYWAY}")
        if (near := _misspelled(name)) is not None or (delayed and name in _NAMES):
            meant = f"options like {near or name}= go to @job(...) or Queue.enqueue" if delayed else f"did you mean {near}=?"
            raise TypeError(f"{name}= is no option but looks like one; {meant}; {_ANYWAY}")


def _codes_of(func: _Func) -> tuple[CodeType | None, CodeType | None]:
    """Of the function, if this process has it, and of what it wraps."""
    found: Any = func
    if isinstance(func, str):
        module, _, name = func.rpartition(".")
        found = getattr(sys.modules.get(module), "__dict__", {}).get(name)
    if not isinstance(found, FunctionType):
        return None, None
    inner = found.__dict__.get("__wrapped__")
    return found.__code__, inner.__code__ if isinstance(inner, FunctionType) else None


def _parameters(code: CodeType) -> tuple[str, ...]:
    """Those that can be given by name."""
    return code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


@lru_cache(maxsize=4096)
def _misspelled(name: str) -> str | None:
    """The option that this is a misspelling of: `job_timout`, `jobTimeout`. A plural is a word of its own: `job_ids`."""
    from difflib import get_close_matches

    if name in _NAMES or name.removesuffix("s") in _NAMES:
        return None
    letters = name.replace("_", "").lower()
    bare = {option.replace("_", ""): option for option in (*OPTION_NAMES, *_NOT_YET)}
    swapped = (letters[:i] + letters[i + 1] + letters[i] + letters[i + 2 :] for i in range(len(letters) - 1))
    near = [one for one in swapped if one in bare and len(one) > 4] or get_close_matches(letters, bare, n=1, cutoff=0.85)
    return bare[near[0]] if near else None


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


def _identity() -> tuple[str, str]:
    """A random UUID and a nonce."""
    digits = urandom(22).hex()
    rest = f"4{digits[13:16]}-{_VARIANT[digits[16]]}{digits[17:20]}-{digits[20:32]}"
    return f"{digits[:8]}-{digits[8:12]}-{rest}", digits[32:]


@dataclass(slots=True)
class JobData:
    """A job as prepared by `Queue.prepare_data`, ready for `enqueue_many`. It can be kept and sent to another process; however often it is
    enqueued, it is one job."""

    func_name: str
    new: NewJob
    #: Bytes that it takes on its way, about.
    size: int = 0


def build(
    func: _Func,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: EnqueueOptions,
    settings: Settings,
    serializer_name: str | None = None,
) -> JobData:
    """Check and encode everything, before anything is written. Raises ValueError, SerializationError or PayloadTooLarge; TypeError for
    an `enqueue_at` that is no datetime; ConfigurationError for a `serializer_name` of pickle, in place of the settings', that is not allowed."""
    name = func_name_of(func)
    wanted = serializer_name or settings.serializer
    allowed = settings.allow_pickle or settings.serializer == "pickle"
    serializer = _JSON if wanted == "json" else get_serializer(wanted, allow_pickle=allowed)
    data = dumps_call(serializer, name, args, dict(kwargs), max_payload=settings.max_payload)
    stored: dict[str, Any] = {
        "data": data,
        "description": name,
        "timeout": _number(settings.job_timeout),
        "result_ttl": settings.result_ttl,
        "retryCount": defaults.RETRY_COUNT_START,
    }
    if serializer is not _JSON:
        stored["serializer"] = serializer.name
    url = options.callback_url or payload_url(args, kwargs)
    ends = options.success_task_handler, options.failed_task_handler
    if url is not None or ends != (None, None):
        stored |= hooks(*ends, url, settings.callback_allow_http)
    if options is NONE:
        job_id, nonce = _identity()
        return JobData(name, NewJob(job_id, 1, stored, nonce=nonce), len(data) + _OVERHEAD)
    ttl = _add(stored, options)
    size = _check_options(name, stored, settings.max_payload)
    priority = check_priority(1 if options.priority is None else options.priority)
    job_id, nonce = _identity()
    if options.job_id is not None:
        job_id = check_new_job_id(options.job_id)
    due, delay = _time(options)
    return JobData(name, NewJob(job_id, priority, stored, options.at_front, ttl, due, delay, nonce), len(data) + size + _OVERHEAD)


_JSON = get_serializer("json", allow_pickle=False)
#: Bytes of a job besides its data and texts.
_OVERHEAD = 300


def _add(stored: dict[str, Any], options: EnqueueOptions) -> float | None:
    """What is given, checked, as it will be stored. Returns the ttl in seconds."""
    if options.on_lost not in (None, "requeue", "fail"):
        raise ValueError(f"on_lost={options.on_lost!r}: use 'requeue' or 'fail'")
    if options.retry is not None and not isinstance(options.retry, Retry):
        raise ValueError(f"retry={options.retry!r}: use Retry(max=...)")
    if options.description:
        stored["description"] = options.description
    if options.job_timeout is not None:
        stored["timeout"] = _number(seconds("job_timeout", options.job_timeout, endless=True))
    if options.result_ttl is not None:
        stored["result_ttl"] = _whole("result_ttl", options.result_ttl)
    if options.failure_ttl is not None:
        stored["failure_ttl"] = _whole("failure_ttl", options.failure_ttl)
    if options.retry is not None:
        stored["retry"] = options.retry.to_json()
    if options.log_tag is not None:
        stored["log_tag"] = options.log_tag
    if options.on_success is not None:
        stored["on_success"] = as_callback(options.on_success)
    if options.on_failure is not None:
        stored["on_failure"] = as_callback(options.on_failure)
    if options.meta:
        stored["meta"] = to_json("meta", options.meta)
    if options.on_lost == "fail":
        stored["on_lost"] = "fail"
    if options.isolate:
        stored["isolate"] = 1
    if options.ttl is None:
        return None
    ttl = seconds("ttl", options.ttl)
    stored["ttl"] = _number(ttl)
    return ttl


def sealed(queue: str, jobs: Iterable[NewJob], settings: Settings) -> list[NewJob]:
    """The jobs as they go to Redis: signed, if there are `secret_keys`. What is enqueued goes through here once its queue is known."""
    keyring = settings.keyring
    if keyring is None:
        return list(jobs)
    return [replace(job, fields={**job.fields, SIGNATURE: keyring.sign(job.id, queue, job.priority, job.fields)}) for job in jobs]


def _check_options(name: str, stored: Mapping[str, Any], limit: int) -> int:
    """What is stored besides the arguments counts too: `meta`, `description`, callbacks, a long list of retry intervals. Its size."""
    texts = [value for value in stored.values() if isinstance(value, str)]
    size = sum(map(len, texts))
    if size * 4 > limit and (size := sum(len(text.encode()) for text in texts)) > limit:
        raise PayloadTooLarge(
            f"the options of {name} (meta, description, retry ...) take {size} bytes; the limit is {limit} (max_payload, "
            "FUSION_MAX_PAYLOAD). Store big data elsewhere and keep its key"
        )
    return size


def _time(options: EnqueueOptions) -> tuple[float | None, float | None]:
    if options.enqueue_at is not None and options.enqueue_in is not None:
        raise ValueError("give enqueue_at or enqueue_in, not both")
    due = None if options.enqueue_at is None else to_unix(options.enqueue_at, "enqueue_at")
    return due, None if options.enqueue_in is None else to_delay(options.enqueue_in, "enqueue_in")


def seconds(name: str, value: Any, *, endless: bool = False) -> float:
    """A duration over 0, or with `endless` -1. ValueError with `name` in front."""
    found = _parsed(name, value)
    if endless and found == -1:
        return -1
    if found <= 0 or found > FURTHEST:
        raise ValueError(
            f"{name}={value!r}: use a duration over 0, up to {FURTHEST:.0f} s (31 years)"
            + (", or -1 for no limit" if endless else "")
        )
    return found


def _whole(name: str, value: Any) -> int:
    seconds = _parsed(name, value)
    if seconds != -1 and not 0 <= seconds <= FURTHEST:
        raise ValueError(f"{name}={value!r}: use seconds from 0 to {FURTHEST:.0f} (31 years), or -1 to keep it for ever")
    return math.ceil(seconds)  # half a second is not none at all


def _parsed(name: str, value: Any) -> float:
    try:
        return parse_seconds(value)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _number(seconds: float) -> float:
    return int(seconds) if float(seconds).is_integer() else seconds
