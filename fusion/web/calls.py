"""A call of a task as JSON, checked field by field: what `POST /api/v1/jobs` takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fusion.enqueue.options import EnqueueOptions, JobData, build, did_you_mean
from fusion.exceptions import InvalidName, PayloadTooLarge, SerializationError, TaskNotAllowed
from fusion.kernel import defaults
from fusion.kernel.importing import check_path, how_to_allow, is_allowed
from fusion.kernel.timeutil import FURTHEST, parse_moment, parse_seconds
from fusion.retry import Retry
from fusion.settings import get_settings
from fusion.store.layout.keys import check_new_job_id, check_queue_name
from fusion.store.layout.score import check_priority
from fusion.web.exchange import HttpError, listed

#: Characters of a text that lists show.
_LONGEST = 500
#: Arguments of `EnqueueOptions` that have another name here.
_NAMES = {"job_timeout": "timeout"}


@dataclass(frozen=True, slots=True)
class Call:
    queue: str
    data: JobData
    #: Whether the caller chose the id.
    named: bool


def read_call(body: Mapping[str, Any], tasks: Sequence[str], *, job_id: str = "", enqueue_in: float | None = None) -> Call:
    """Everything checked and encoded, nothing written. `tasks`: modules whose functions may be named. `job_id`: if the body names none.
    `enqueue_in`: the time of all such calls, which the body may not name then.

    HttpError: 422 names the field, 403 for a function outside of `tasks`, 413 for arguments that are too large.
    """
    given = dict(body)
    queue = _checked("queue", given.pop("queue", defaults.QUEUE), check_queue_name)
    func = _function(given.pop("func", None), tasks)
    args, kwargs = _arguments(given)
    options = _options(given, fixed=enqueue_in is not None)
    named = options.get("job_id") is not None
    if enqueue_in is not None:
        options["enqueue_in"] = enqueue_in
    try:
        data = build(func, tuple(args), kwargs, EnqueueOptions(**options), get_settings())
    except PayloadTooLarge as error:
        raise HttpError(413, "payload_too_large", str(error)) from None
    except SerializationError as error:
        raise _invalid("args", str(error)) from None
    except ValueError as error:
        raise _of(error) from None
    if job_id and not named:
        data.new.id = job_id
    return Call(queue, data, named)


def _of(error: ValueError) -> HttpError:
    """Messages of options begin with the option's name."""
    word = re.match(r"\w*", str(error))
    name = word[0] if word else ""
    spelled = _NAMES.get(name, name)
    return _invalid(
        spelled if spelled in _READERS else "", str(error).replace(name, spelled, 1) if name in _NAMES else str(error)
    )


def _invalid(field: str, message: str) -> HttpError:
    return HttpError(422, "invalid_value", message, field=field)


def _checked(field: str, value: Any, check: Callable[[Any], Any]) -> Any:
    try:
        return check(value)
    except (ValueError, InvalidName) as error:
        raise _invalid(field, str(error) if str(error).startswith(field) else f"{field}: {error}") from None


def _function(value: Any, tasks: Sequence[str]) -> str:
    if not isinstance(value, str) or not value:
        raise _invalid("func", "func: name the task by its dotted path, like tasks.sms.sendSMS")
    try:
        check_path(value)
    except TaskNotAllowed as error:
        raise _invalid("func", f"func: {error}") from None
    module = value.rpartition(".")[0]
    if not module:
        raise _invalid("func", f"func: {value!r} has no module; a task is named like tasks.sms.sendSMS")
    if not is_allowed(module, tasks):
        raise HttpError(
            403,
            "task_not_allowed",
            f"{value} is not among the tasks of this server; {how_to_allow(module, 'start the server with')}",
        )
    return value


def _arguments(given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """`payload`, the one argument that the service's own tasks take, stands for `args` of that."""
    args, kwargs = given.pop("args", None), given.pop("kwargs", None)
    if "payload" in given:
        payload = given.pop("payload")
        if args is not None or kwargs is not None:
            raise _invalid("payload", "payload: give the payload or args and kwargs, not both")
        return [payload], {}
    if args is not None and not isinstance(args, list):
        raise _invalid("args", "args: use a list")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise _invalid("kwargs", "kwargs: use an object")
    return args or [], kwargs or {}


def _options(given: dict[str, Any], *, fixed: bool) -> dict[str, Any]:
    times = {"enqueue_at", "enqueue_in"} if fixed else set()
    for name in given:
        if name not in _READERS or name in times:
            known = {"queue", "func", "args", "kwargs", "payload", *_READERS} - times
            hint = did_you_mean(name[:80], known)
            raise _invalid(name[:80], f"there is no field of this name here{hint}; there are {listed(known)}")
    read = {name: _READERS[name](name, value) for name, value in given.items() if value is not None}
    retries, intervals = read.pop("retry_max", 0), read.pop("retry_interval", None)
    if intervals is not None and not retries:
        raise _invalid("retry_interval", "retry_interval: needs retry_max")
    if retries:
        read["retry"] = Retry(retries, intervals or 0)
    return {("job_timeout" if name == "timeout" else name): value for name, value in read.items()}


def _text(field: str, value: Any) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        raise _invalid(field, f"{field}: use a text of up to {_LONGEST} characters without control characters")
    return value


def _priority(field: str, value: Any) -> int:
    found: int = _checked(field, value, check_priority)
    return found


def _duration(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise _invalid(field, f"{field}: use seconds, or a text like 90s, 5m, 2h, 1d")
    found: float = _checked(field, value, parse_seconds)
    return found


def _moment(field: str, value: Any) -> datetime:
    if not isinstance(value, str):
        raise _invalid(field, f"{field}: use ISO 8601 with a zone, like 2030-01-31T09:00+01:00 or 2030-01-31T08:00Z")
    found: datetime = _checked(field, value, parse_moment)
    return found


def _flag(field: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise _invalid(field, f"{field}: use true or false")
    return value


def _count(field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 1000:
        raise _invalid(field, f"{field}: use a whole number from 0 to 1000")
    return value


def _intervals(field: str, value: Any) -> list[float]:
    figures = value if isinstance(value, list) else [value]
    found = [_duration(field, figure) for figure in figures]
    if not found or len(found) > 1000 or not all(0 <= figure <= FURTHEST for figure in found):
        raise _invalid(field, f"{field}: use seconds from 0 to {FURTHEST:.0f}, one figure or a list")
    return found


def _job_id(field: str, value: Any) -> str:
    found: str = _checked(field, value, check_new_job_id)
    return found


def _url(field: str, value: Any) -> str:
    """As a producer's: looked at where all options are, and never shown."""
    if not isinstance(value, str):
        raise _invalid(field, f"{field}: use a text, like https://hooks.example.com/jobs")
    return value


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "priority": _priority,
    "timeout": _duration,
    "result_ttl": _duration,
    "ttl": _duration,
    "failure_ttl": _duration,
    "description": _text,
    "job_id": _job_id,
    "at_front": _flag,
    "enqueue_in": _duration,
    "enqueue_at": _moment,
    "retry_max": _count,
    "retry_interval": _intervals,
    "log_tag": _text,
    "success_task_handler": _url,
    "failed_task_handler": _url,
    "callback_url": _url,
}
