"""Templates of enqueues: for each queue, function and set of options, all of a call that is the same each time.

The first call is made the general way, through all checks, and what it made is the template for those that follow: of these only the arguments
are encoded and checked. A template never changes, and holds no id and no argument. All of a connection are dropped when the settings (signing
keys among them) or the middleware change, and in a process that was forked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import getpid
from threading import Lock
from types import FunctionType
from typing import Any

from fusion import middleware
from fusion.enqueue.build import JobData, payload_url
from fusion.enqueue.call import NOT_ARGUMENTS, PLAIN, Terms, parameters_of
from fusion.enqueue.options import Func
from fusion.enqueue.ties import DECLARED, declared
from fusion.exceptions import PayloadTooLarge, SerializationError
from fusion.job import Job
from fusion.kernel.gather import MARK
from fusion.kernel.serializers import get_serializer
from fusion.middleware import producers
from fusion.retry import Retry
from fusion.settings import Settings, get_settings
from fusion.store.layout.records import NewJob
from fusion.store.write.enqueue_command import NO_ARGUMENTS, EnqueueCommand, command_of
from fusion.store.write.queue_calls import QueueCalls

#: Most templates of a connection; the oldest are dropped.
MOST = 256
#: Options that mostly have one value for all calls of a function. With others a call is made the general way.
_LASTING = frozenset("priority job_timeout result_ttl ttl failure_ttl log_tag on_lost isolate at_front".split())
#: Those that may be True or False. Of others that means something else than 1 or 0, to which they are equal.
_SWITCHES = frozenset(("isolate", "at_front"))
#: Fields of a record that say more of its call than its arguments do.
_OF_CALLS = frozenset(("unique_key", "parents", "batch", "hooks", "serializer", "func"))
#: Types of a first argument that is no payload with a callback.
_NO_PAYLOAD = frozenset((str, int, float, bool, bytes, list, tuple, type(None)))
_JSON = get_serializer("json", allow_pickle=False)
_KEPT = "_fusion_templates"

#: Names and values of options.
Key = tuple[Any, ...]
Check = Callable[[Any, Mapping[str, Any]], None]


class Template:
    """The calls of one function with one set of options, to one queue, over one connection."""

    __slots__ = ("_facts", "_fields", "_limit", "_new", "_parameters", "command")

    def __init__(self, command: EnqueueCommand, queue: str, func: Func, new: NewJob, limit: int) -> None:
        """`new`: a job like those of this template; `limit`: most bytes of a call."""
        self.command, self._limit, self._facts = command, limit, _facts_of(func)
        # those that can be given by name, as far as that can't change
        self._parameters = frozenset(parameters_of(func) if type(func) is FunctionType else ())
        stored = {name: value for name, value in new.fields.items() if name != "data"}
        self._new = NewJob("", new.priority, stored, new.front, new.ttl)
        common = {"origin": queue, "original_queue": queue, "status": "queued", "priority": new.priority}
        # The empty fields are set in each copy: adding them there would cost as much as the copy.
        self._fields = {"data": b"", **stored, **common, "created_at": "", "enqueued_at": ""}

    def fits(self, func: Func) -> bool:
        """Return True if the function has not changed since this was made: its name, its parameters and the marks of `@job`."""
        facts = self._facts
        if facts is None:
            return type(func) is str
        code, module, name, gathers, ties = facts
        marks: dict[str, Any] = func.__dict__
        same = func.__code__ is code and func.__module__ == module and func.__qualname__ == name  # type: ignore[union-attr]
        return same and marks.get(MARK) == gathers and marks.get(DECLARED) == ties

    def encoded(
        self, func: Func, args: tuple[Any, ...], kwargs: Mapping[str, Any], check: Check | None
    ) -> tuple[bytes, bytes] | None:
        """Return the arguments of a call, encoded, and in their stored form. None if the call is to be made the general way, which says what
        is wrong with it, if anything is. `check` is for the names of arguments that are not known to be right."""
        if not self.fits(func):
            return None
        if not args and not kwargs:
            return NO_ARGUMENTS, NO_ARGUMENTS
        if kwargs and check is not None and not self._parameters.issuperset(kwargs):
            check(func, kwargs)
        if type(args[0] if args else kwargs.get("payload")) not in _NO_PAYLOAD and payload_url(args, kwargs) is not None:
            return None
        try:
            data = _JSON.dumps([list(args), kwargs])
        except (SerializationError, PayloadTooLarge):
            return None
        stored = self.command.stored(data, self._limit)
        return None if stored is None else (data, stored)

    def new(self, job_id: str, data: bytes) -> NewJob:
        """Return a job of this template, to be enqueued the general way."""
        like = self._new
        fields = {"data": self.command.call_of(data), **like.fields}
        return NewJob(job_id, like.priority, fields, like.front, like.ttl, nonce=job_id)

    def job(self, job_id: str, data: bytes, at: str, connection: Any) -> Job:
        """Return a job that was accepted at that time."""
        fields = self._fields.copy()
        fields["data"], fields["created_at"], fields["enqueued_at"] = self.command.call_of(data), at, at
        return Job.of(job_id, fields, connection)


class Templates:
    """Those of one connection, by queue, the queue's own options, function and options. None: such calls are made the general way."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.middleware, self.pid = settings, middleware.registered, getpid()
        self._kept: dict[Key, Template | None] = {}
        self._lock = Lock()
        self.get = self._kept.get

    def __len__(self) -> int:
        return len(self._kept)

    def learn(self, key: Key, data: JobData, terms: Terms, calls: QueueCalls) -> None:
        """Keep what is to be known for more calls like this one, which was accepted."""
        queue, _, func, _ = key
        known = self._kept.get(key)
        if (known is None and key in self._kept) or (known is not None and known.fits(func)):
            return
        made = self._made(queue, func, data, terms, calls)
        with self._lock:
            self._kept.pop(key, None)
            while len(self._kept) >= MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = made

    def _made(self, queue: str, func: Func, data: JobData, terms: Terms, calls: QueueCalls) -> Template | None:
        settings, new = self.settings, data.new
        if terms != PLAIN or settings.keyring is not None or producers(settings.middleware):
            return None
        if not _OF_CALLS.isdisjoint(new.fields) or any(map(callable, (declared(func) or {}).values())):
            return None
        command = command_of(calls, queue, new)
        return None if command is None else Template(command, queue, func, new, settings.max_payload)


def templates_of(connection: Any) -> Templates:
    """Return the templates of a connection, as far as they still hold."""
    settings = get_settings()
    found: Templates | None = connection.__dict__.get(_KEPT)
    if found is None or found.settings is not settings or found.middleware is not middleware.registered or found.pid != getpid():
        found = connection.__dict__[_KEPT] = Templates(settings)
    return found


def parted(kwargs: dict[str, Any]) -> tuple[Key | None, dict[str, Any]]:
    """Split the keywords of `enqueue(func, *args, **kwargs)` into the options, for a key, and the task's own arguments. None: no template is
    for such options."""
    if not kwargs or NOT_ARGUMENTS.isdisjoint(kwargs):
        return (), kwargs
    rest = {name: value for name, value in kwargs.items() if name not in NOT_ARGUMENTS}
    return _key({name: value for name, value in kwargs.items() if name in NOT_ARGUMENTS}), rest


def key_of(timeout: float | str | None, options: Mapping[str, Any]) -> Key | None:
    """Return the key of options that are given separately from the arguments."""
    return _key({"job_timeout": timeout, **options} if options or timeout is not None else {})


def _key(options: Mapping[str, Any]) -> Key | None:
    found: list[Any] = []
    for name, value in options.items():
        if value is None and name in _LASTING:
            continue
        kind = type(value)
        if kind is Retry and name == "retry":  # a policy can change: the key has its present content
            value = value.to_json()
        elif name not in _LASTING or not (kind is int or kind is str or (kind is bool and name in _SWITCHES)):
            return None
        found += (name, value)
    return tuple(found)


def _facts_of(func: Any) -> tuple[Any, ...] | None:
    """Return what a template takes of a function."""
    if type(func) is not FunctionType:
        return None
    marks = func.__dict__
    return func.__code__, func.__module__, func.__qualname__, marks.get(MARK), marks.get(DECLARED)
