"""From a call to a job that can be sent: checks and encodes everything, writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from os import urandom
from string import ascii_letters, digits
from types import FunctionType, MethodType
from typing import Any

from fusion import middleware
from fusion.callbacks import hooks
from fusion.dependency import at_front
from fusion.enqueue.kinds import number, seconds
from fusion.enqueue.options import NONE, OPTIONS, EnqueueOptions, Func
from fusion.enqueue.ties import GATHERED, declared, note_unique, tie, with_declared
from fusion.exceptions import OptionError, PayloadTooLarge
from fusion.kernel import defaults
from fusion.kernel.gather import marked
from fusion.kernel.importing import func_name_of, method_name
from fusion.kernel.sentences import FIELDS_SIZE
from fusion.kernel.serializers import dumps_call, get_serializer
from fusion.kernel.signing import SIGNATURE
from fusion.kernel.timeutil import to_delay, to_unix
from fusion.settings import Settings
from fusion.store.layout.names import check_new_job_id
from fusion.store.layout.records import NewJob
from fusion.store.layout.score import check_priority

#: Byte -> letter or digit, nearly evenly: 22 of them hold 130 bits.
_CHARACTERS = bytes((ascii_letters + digits).encode()[byte % 62] for byte in range(256))


def new_id() -> bytes:
    """Return a random id; it is also the nonce, so that two calls differ."""
    return urandom(22).translate(_CHARACTERS)


def identity() -> str:
    """Return such an id as a text."""
    return new_id().decode()


@dataclass(slots=True)
class JobData:
    """A job as prepared by `Queue.prepare_data`, ready for `enqueue_many`. It can be stored and sent to another process. It stays one job,
    however often it is enqueued."""

    func_name: str
    new: NewJob
    #: Approximate number of bytes to send.
    size: int = 0
    #: The arguments as given, if there is middleware that sees them.
    call: tuple[tuple[Any, ...], Mapping[str, Any]] | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return JobData, (self.func_name, self.new, self.size)

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        # pickled by a version that had no `call`
        self.call = None
        for name, value in state[1].items():
            setattr(self, name, value)


def build(
    func: Func,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    options: EnqueueOptions,
    settings: Settings,
    serializer_name: str | None = None,
) -> JobData:
    """Check and encode everything, before anything is written. Raises OptionError, SerializationError or PayloadTooLarge; TypeError for an
    `enqueue_at` that is not a datetime. `serializer_name` replaces the setting's; ConfigurationError if it is pickle and that is not allowed."""
    instance = None
    if type(func) is MethodType and not isinstance(func.__self__, type):
        name, instance = method_name(func), func.__self__
        if options.unique:
            raise OptionError(
                "unique", "compares the function and its arguments, not the object whose method it is; use unique_key="
            )
    else:
        name = func_name_of(func)
    wanted = serializer_name or settings.serializer
    allowed = settings.allow_pickle or settings.serializer == "pickle"
    serializer = _JSON if wanted == "json" else get_serializer(wanted, allow_pickle=allowed)
    data = dumps_call(serializer, name, args, dict(kwargs), settings.max_payload, instance)
    call = (args, kwargs) if middleware.registered or settings.middleware else None
    of_settings, usual = _usual
    stored: dict[str, Any] = {"data": data, "description": name, **(usual if of_settings is settings else _usual_of(settings))}
    if serializer is not _JSON:
        stored["serializer"], stored["func"] = serializer.name, name
    url = options.callback_url or payload_url(args, kwargs)
    ends = options.success_task_handler, options.failed_task_handler
    if url is not None or ends != (None, None):
        stored |= hooks(*ends, url, settings)
    if type(func) is FunctionType:  # @job declares options for a real function only
        if (gathered := marked(func)) is not None:
            stored |= {"gather": gathered, "ties": GATHERED}
        if (ties := declared(func)) is not None:
            options = with_declared(ties, args, kwargs, options)
    if options is NONE:
        job_id = identity()
        return JobData(name, NewJob(job_id, 1, stored, nonce=job_id), len(data) + _OVERHEAD, call)
    ttl = _add(stored, options)
    letters = stored.get("ties", "") + note_unique(name, args, kwargs, options, stored) + ("p" if "parents" in stored else "")
    tie(name, stored, letters)
    size = check_options(name, stored, settings.max_payload)
    priority = check_priority(1 if options.priority is None else options.priority)
    job_id = nonce = identity()
    if options.job_id is not None:
        job_id = check_new_job_id(options.job_id)
    due, delay = _time(options)
    front = options.at_front or at_front(options.depends_on)
    return JobData(name, NewJob(job_id, priority, stored, front, ttl, due, delay, nonce), len(data) + size + _OVERHEAD, call)


def payload_url(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the `callback_url` of a payload that has `callback: 1`; None without one. The payload is the first argument, or the one called
    `payload`. The option `callback_url=` takes precedence."""
    payload = args[0] if args else kwargs.get("payload")
    if not isinstance(payload, Mapping) or payload.get("callback") not in (1, "1"):  # True equals 1
        return None
    return payload.get("callback_url")


def _usual_of(settings: Settings) -> dict[str, Any]:
    """Return the fields that the settings give to every job."""
    global _usual
    fields = {
        "timeout": number(settings.job_timeout),
        "result_ttl": settings.result_ttl,
        "retryCount": defaults.RETRY_COUNT_START,
    }
    _usual = settings, fields
    return fields


#: The last settings, with these fields.
_usual: tuple[Settings | None, dict[str, Any]] = (None, {})
_JSON = get_serializer("json", allow_pickle=False)
#: Bytes of a job besides its data and texts.
_OVERHEAD = 300


#: Of the options stored in the record: their fields, their names, and the functions that make the stored value.
_FIELDS, _NAMES, _STORES = zip(*((option.stored, option.name, option.store) for option in OPTIONS if option.store), strict=True)
_given = attrgetter(*_NAMES)


def _add(stored: dict[str, Any], options: EnqueueOptions) -> float | None:
    """Check the given options and add them in their stored form. Returns the ttl in seconds."""
    for stored_as, name, store, value in zip(_FIELDS, _NAMES, _STORES, _given(options)):  # noqa: B905 - hot
        if value is not None and (kept := store(name, value)) is not None:
            stored[stored_as] = kept
    if options.ttl is None:
        return None
    ttl = seconds("ttl", options.ttl)
    stored["ttl"] = number(ttl)
    return ttl


def sealed(queue: str, jobs: Iterable[NewJob], settings: Settings) -> list[NewJob]:
    """Return the jobs as they are sent to Redis: signed, if there are `secret_keys`. Every enqueue calls this once the queue is known."""
    keyring = settings.keyring
    if keyring is None:
        return list(jobs)
    return [replace(job, fields={**job.fields, SIGNATURE: keyring.sign(job.id, queue, job.priority, job.fields)}) for job in jobs]


def check_options(name: str, stored: Mapping[str, Any], limit: int) -> int:
    """Return the size of what is stored besides the arguments: `meta`, `description`, callbacks ... PayloadTooLarge if it is over the limit."""
    texts = [value for value in stored.values() if isinstance(value, str)]
    size = sum(map(len, texts))
    if size * 4 > limit and (size := sum(len(text.encode()) for text in texts)) > limit:
        raise PayloadTooLarge(
            f"the options of {name} (meta, description, retry ...) {FIELDS_SIZE.format(n=size, n_limit=limit)} (max_payload, "
            "FUSION_MAX_PAYLOAD). Store big data elsewhere and keep its key"
        )
    return size


def _time(options: EnqueueOptions) -> tuple[float | None, float | None]:
    if options.enqueue_at is not None and options.enqueue_in is not None:
        raise OptionError("", "give enqueue_at or enqueue_in, not both")
    due = None if options.enqueue_at is None else to_unix(options.enqueue_at, "enqueue_at")
    return due, None if options.enqueue_in is None else to_delay(options.enqueue_in, "enqueue_in")
