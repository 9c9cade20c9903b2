"""Parse and check a call of a task in JSON, the body of `POST /api/v1/jobs`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fusion.enqueue.build import JobData, build
from fusion.enqueue.call import Terms, did_you_mean, terms_of
from fusion.enqueue.copying import Edit
from fusion.enqueue.kinds import one_line, seconds
from fusion.enqueue.options import SPELLINGS, EnqueueOptions, from_text, spelling_of
from fusion.exceptions import InvalidName, NameTooLong, OptionError, PayloadTooLarge, SerializationError, TaskNotAllowed
from fusion.kernel import defaults
from fusion.kernel.importing import check_path, how_to_allow, is_allowed
from fusion.settings import get_settings
from fusion.store.layout.names import check_queue_name
from fusion.web.exchange import HttpError, listed
from fusion.web.openapi.shapes import TEXT, Schema, fields, maybe, none_or
from fusion.web.routing import Body

#: Seconds for which one request may block a thread of the server to wait for replicas.
LONGEST_WAIT = 30.0


@dataclass(frozen=True, slots=True)
class TaskCall:
    """One call of a task, ready to be enqueued on these terms. `named`: the caller chose the job's id."""

    queue: str
    data: JobData
    named: bool
    terms: Terms


def read_call(body: Mapping[str, Any], tasks: Sequence[str], *, job_id: str = "", enqueue_in: float | None = None) -> TaskCall:
    """Check and encode a call without writing anything. `tasks`: modules whose functions may be named. `job_id`: used if the body names none.
    `enqueue_in`: a fixed delay in seconds; the body may then name no time.

    HttpError: 422 names the field, 403 for a function outside of `tasks`, 413 for arguments that are too large.
    """
    given = dict(body)
    queue = _queue(given.pop("queue", defaults.QUEUE))
    func = _function(given.pop("func", None), tasks)
    args, kwargs = _arguments(given)
    options = _options(given, fixed=enqueue_in is not None)
    named = options.job_id is not None
    if enqueue_in is not None:
        options.enqueue_in = enqueue_in
    try:
        data = build(func, tuple(args), kwargs, options, get_settings())
        terms = _terms(options)
    except PayloadTooLarge as error:
        raise HttpError(413, "payload_too_large", str(error)) from None
    except SerializationError as error:
        raise _invalid("args", str(error)) from None
    except OptionError as error:
        spelling = spelling_of(error.name)
        field = spelling.field if spelling else ""
        raise _invalid(field, error.spelled(field or error.name)) from None
    except ValueError as error:
        raise _invalid("", str(error)) from None
    if job_id and not named:
        data.new.id = job_id
    return TaskCall(queue, data, named, terms)


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """A request to pause a queue. `duration`: seconds, None until it is resumed; `reason`: why."""

    duration: float | None = None
    reason: str = ""


#: Bodies that several routes accept.
PAUSE = Body(
    "Pause",
    fields(
        duration=maybe({"description": "Seconds, or 90s, 5m, 2h, 1d; none: until it is resumed."}), reason=maybe(none_or(TEXT))
    ),
)
PURGE = Body("Purge", fields(purge=maybe({"type": "boolean", "description": "For good, not into the trash."})), needed=False)
_CALL: Schema = {
    "type": "object",
    "properties": {
        "queue": {"type": "string", "default": "default"},
        "func": {"type": "string", "description": "The task by its dotted path."},
        "args": {"type": "array"},
        "kwargs": {"type": "object"},
        "payload": {"description": "For `args` of this alone."},
        **{name: {"description": f"{one.meaning} Takes: {one.reads.takes}"} for name, one in SPELLINGS.items()},
    },
    "required": ["func"],
    "additionalProperties": False,
}
CALL = Body("Call", _CALL)
PUT_BACK_OR_CALL = Body("PutBackOrCall", {"anyOf": [fields(job_id=TEXT), _CALL]})


def read_pause(body: Mapping[str, Any]) -> PauseRequest:
    """Read the body of `POST /api/v1/queues/{name}/pause`. HttpError 422 names the wrong field."""
    if unknown := sorted(body.keys() - {"duration", "reason"}):
        raise _invalid(unknown[0][:80], f"there is no field {unknown[0][:80]} here; there are duration and reason")
    duration, reason = body.get("duration"), body.get("reason")
    try:
        return PauseRequest(
            None if duration is None else seconds("duration", duration), one_line("reason", "" if reason is None else reason)
        )
    except OptionError as error:
        raise _invalid(error.name, str(error)) from None


def read_edit(body: Mapping[str, Any]) -> Edit:
    """Read the body of `POST /api/v1/jobs/{id}/copy`. HttpError 422 names the wrong field."""
    names = {"args", "kwargs", "queue", "priority"}
    if unknown := sorted(body.keys() - names):
        raise _invalid(unknown[0][:80], f"there is no field {unknown[0][:80]} here; there are {listed(names)}")
    given = {name: value for name, value in body.items() if value is not None}
    args, kwargs = given.get("args"), given.get("kwargs")
    if args is not None and not isinstance(args, list):
        raise _invalid("args", "args: use a list")
    if kwargs is not None and not isinstance(kwargs, dict):
        raise _invalid("kwargs", "kwargs: use an object")
    queue = _queue(given["queue"]) if "queue" in given else None
    priority = _read("priority", given["priority"]) if "priority" in given else None
    return Edit(args, kwargs, queue, priority)


def read_since(value: str) -> float:
    """Return the seconds of `?since=`. HttpError 422 unless it is a duration over 0."""
    try:
        return seconds("since", value)
    except OptionError as error:
        raise _invalid(error.name, str(error)) from None


def _terms(options: EnqueueOptions) -> Terms:
    found = terms_of(options, get_settings())
    if options.replicas_timeout is not None and found.replicas is not None and found.replicas.timeout > LONGEST_WAIT:
        raise OptionError(
            "replicas_timeout", f"use up to {LONGEST_WAIT:g} s here: the request waits for that time", options.replicas_timeout
        )
    return found


def _invalid(field: str, message: str) -> HttpError:
    return HttpError(422, "invalid_value", message, field=field)


def _queue(value: Any) -> str:
    try:
        return check_queue_name(value)
    except InvalidName as error:
        raise _invalid("queue", str(error)) from None


def _function(value: Any, tasks: Sequence[str]) -> str:
    if not isinstance(value, str) or not value:
        raise _invalid("func", "func: name the task by its dotted path, like tasks.sms.sendSMS")
    try:
        check_path(value)
    except (NameTooLong, TaskNotAllowed) as error:
        raise _invalid("func", f"func: {error}") from None
    module = value.rpartition(".")[0]
    if not module:
        raise _invalid("func", f"func: {value!r} has no module; a task is named like tasks.sms.sendSMS")
    check_task(value, tasks)
    return value


def check_task(value: str, tasks: Sequence[str]) -> None:
    """Raise HttpError 403 for a function outside of the server's task modules."""
    module = value.rpartition(".")[0]
    if not is_allowed(module, tasks):
        raise HttpError(
            403,
            "task_not_allowed",
            f"{value} is not among the tasks of this server; {how_to_allow(module, 'start the server with')}",
        )


def _arguments(given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return args and kwargs. `payload` is short for `args` with this one value."""
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


def _options(given: dict[str, Any], *, fixed: bool) -> EnqueueOptions:
    times = {"enqueue_at", "enqueue_in"} if fixed else set()
    for name in given:
        if name not in SPELLINGS or name in times:
            known = {"queue", "func", "args", "kwargs", "payload", *SPELLINGS} - times
            hint = did_you_mean(name[:80], known)
            raise _invalid(name[:80], f"there is no field of this name here{hint}; there are {listed(known)}")
    read = {name: _read(name, value) for name, value in given.items() if value is not None}
    if "retry_interval" in read and not (read.get("retry_max") or "retry_within" in read):
        raise _invalid("retry_interval", "retry_interval: needs retry_max or retry_within")
    return from_text(read)


def _read(field: str, value: Any) -> Any:
    try:
        return SPELLINGS[field].reads.from_json(value)
    except ValueError as error:
        raise _invalid(field, f"{field}: {error}") from None
