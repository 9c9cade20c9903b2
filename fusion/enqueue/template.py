"""Templates of enqueues: for each queue, function and set of options, all of a call that is the same each time.

The first call is made the general way, through all checks, and what it made is the template for those that follow. Of these only the arguments
and the options that are each call's own (`meta`, `description`, `job_id`) are encoded and checked. A template never changes, and holds no value
of a call but options. All of a connection are dropped when the settings (signing keys among them) or the middleware change, and in a process
that was forked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from os import getpid
from threading import Lock
from types import FunctionType
from typing import Any

from fusion import middleware
from fusion.callbacks import Callback, as_callback
from fusion.enqueue.build import JobData, payload_url
from fusion.enqueue.call import NOT_ARGUMENTS, PLAIN, Terms, parameters_of
from fusion.enqueue.kinds import given_text, mapping
from fusion.enqueue.options import Func
from fusion.enqueue.ties import DECLARED, declared
from fusion.exceptions import FusionError, PayloadTooLarge, SerializationError
from fusion.job import Job
from fusion.kernel.compression import compressed
from fusion.kernel.gather import MARK
from fusion.kernel.serializers import get_serializer
from fusion.middleware import producers
from fusion.retry import Retry
from fusion.settings import Settings, get_settings
from fusion.store.layout.names import check_new_job_id
from fusion.store.layout.records import NewJob
from fusion.store.write.enqueue_command import NO_ARGUMENTS, EnqueueCommand, Own, command_of
from fusion.store.write.queue_calls import QueueCalls

#: Most templates of a connection; the oldest are dropped.
MOST = 256
#: Options that mostly have one value for all calls of a function. With others a call is made the general way.
_LASTING = frozenset("priority job_timeout result_ttl ttl failure_ttl log_tag on_lost isolate at_front".split())
#: Those that may be True or False. Of others that means something else than 1 or 0, to which they are equal.
_SWITCHES = frozenset(("isolate", "at_front"))
#: Options that are functions, or their paths: the key has their stored form.
_FUNCTIONS = frozenset(("on_success", "on_failure", "on_stopped"))
#: Options that are each call's own, with their types: the key has only their names.
_OWN = {"meta": dict, "description": str, "job_id": str}
#: Stands for their values in a key.
_ITS_OWN = object()
#: Fields of a record that say more of its call than its arguments do.
_OF_CALLS = frozenset(("unique_key", "parents", "batch", "hooks", "serializer", "func"))
#: Types of a first argument that is no payload with a callback.
_NO_PAYLOAD = frozenset((str, int, float, bool, bytes, list, tuple, type(None)))
_JSON = get_serializer("json", allow_pickle=False)
_KEPT = "_fusion_templates"

#: Names and values of options.
Key = tuple[Any, ...]
Check = Callable[[Any, Mapping[str, Any]], None]


#: The options of a call: the key for its template, and the values that are its own; mostly there are none.
Given = tuple[Key, dict[str, Any] | None]
_NOTHING: Given = ((), None)


class Template:
    """The calls of one function with one set of options, to one queue, over one connection."""

    __slots__ = ("_facts", "_fields", "_limit", "_new", "_parameters", "_room", "command")

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
        #: Characters that may be added to the texts: with more, their bytes have to be counted.
        self._room = limit // 4 - sum(len(value) for value in stored.values() if isinstance(value, str))

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
        self, func: Func, args: tuple[Any, ...], kwargs: Mapping[str, Any], given: dict[str, Any] | None, check: Check | None
    ) -> tuple[bytes, bytes, Own | None] | None:
        """Return the arguments of a call, encoded, and in their stored form, and what else is its own. None if the call is to be made the
        general way, which says what is wrong with it, if anything is. `check` is for the names of arguments that are not known to be right."""
        if not self.fits(func):
            return None
        own = None
        if given is not None and (own := self._own(given)) is None:
            return None
        if not args and not kwargs:
            return NO_ARGUMENTS, NO_ARGUMENTS, own
        if kwargs and check is not None and not self._parameters.issuperset(kwargs):
            check(func, kwargs)
        if type(args[0] if args else kwargs.get("payload")) not in _NO_PAYLOAD and payload_url(args, kwargs) is not None:
            return None
        try:
            data = _JSON.dumps([list(args), kwargs])
        except (SerializationError, PayloadTooLarge):
            return None
        stored = self.command.stored(data, self._limit)
        return None if stored is None else (data, stored, own)

    def _own(self, given: dict[str, Any]) -> Own | None:
        """Return what is a call's own, checked. None if the call is to be made the general way."""
        job_id, texts, words = None, dict[str, str](), list[bytes]()
        try:
            for name, value in given.items():
                if name == "job_id":
                    job_id = check_new_job_id(value)
                    continue
                text = mapping(name, value) if name == "meta" else given_text(name, value)
                if text is None or text == self._fields.get(name):
                    return None  # it is not stored
                raw = text.encode()
                texts[name] = text
                words += (name.encode(), compressed(raw) if name == "meta" else raw)
        except (FusionError, UnicodeError):
            return None
        return None if sum(map(len, texts.values())) > self._room else Own(job_id, texts, tuple(words))

    def new(self, nonce: str, data: bytes, own: Own | None) -> NewJob:
        """Return a job of this template, to be enqueued the general way."""
        like = self._new
        fields = {"data": self.command.call_of(data), **like.fields, **(own.texts if own else {})}
        job_id = nonce if own is None else own.job_id or nonce
        return NewJob(job_id, like.priority, fields, like.front, like.ttl, nonce=nonce)

    def job(self, nonce: str, data: bytes, own: Own | None, at: str, connection: Any) -> Job:
        """Return a job that was accepted at that time."""
        fields = self._fields.copy()
        fields["data"], fields["created_at"], fields["enqueued_at"] = self.command.call_of(data), at, at
        if own is None:
            return Job.of(nonce, fields, connection)
        fields |= own.texts
        return Job.of(own.job_id or nonce, fields, connection)


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
        func = key[2]
        known = self._kept.get(key)
        if (known is None and key in self._kept) or (known is not None and known.fits(func)):
            return
        made = self._made(key, data, terms, calls)
        with self._lock:
            self._kept.pop(key, None)
            while len(self._kept) >= MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = made

    def _made(self, key: Key, data: JobData, terms: Terms, calls: QueueCalls) -> Template | None:
        queue, _, func, options = key
        settings, new = self.settings, data.new
        if terms != PLAIN or settings.keyring is not None or producers(settings.middleware):
            return None
        if not _OF_CALLS.isdisjoint(new.fields) or any(map(callable, (declared(func) or {}).values())):
            return None
        own = [name for name, value in zip(options[::2], options[1::2], strict=True) if value is _ITS_OWN]
        if own:
            fields = {name: value for name, value in new.fields.items() if name not in own} | {"description": data.func_name}
            if "description" not in own:
                fields["description"] = new.fields["description"]
            new = replace(new, id=new.nonce, fields=fields)
        command = command_of(calls, queue, new, len(own) - ("job_id" in own))
        return None if command is None else Template(command, queue, func, new, settings.max_payload)


def templates_of(connection: Any) -> Templates:
    """Return the templates of a connection, as far as they still hold."""
    settings = get_settings()
    found: Templates | None = connection.__dict__.get(_KEPT)
    if found is None or found.settings is not settings or found.middleware is not middleware.registered or found.pid != getpid():
        found = connection.__dict__[_KEPT] = Templates(settings)
    return found


def parted(kwargs: dict[str, Any]) -> tuple[Given | None, dict[str, Any]]:
    """Split the keywords of `enqueue(func, *args, **kwargs)` into the options and the task's own arguments. None: no template is for such
    options."""
    if not kwargs or NOT_ARGUMENTS.isdisjoint(kwargs):
        return _NOTHING, kwargs
    rest = {name: value for name, value in kwargs.items() if name not in NOT_ARGUMENTS}
    return _given({name: value for name, value in kwargs.items() if name in NOT_ARGUMENTS}), rest


def given_by(timeout: float | str | None, options: Mapping[str, Any]) -> Given | None:
    """Return the options that are given separately from the arguments, as `parted` does."""
    return _given({"job_timeout": timeout, **options} if options or timeout is not None else {})


def for_calls(timeout: float | str | None, options: Mapping[str, Any]) -> Callable[[], Given | None]:
    """Return what returns options that are the same for many calls: at each call, as values such as a Retry and a dict can change."""
    if not _LASTING.issuperset(options):
        return partial(given_by, timeout, options)
    given = given_by(timeout, options)
    return lambda: given


def _given(options: Mapping[str, Any]) -> Given | None:
    found: list[Any] = []
    own: dict[str, Any] | None = None
    for name, value in options.items():
        kind = type(value)
        if name in _LASTING:
            if value is None:
                continue
            if not (kind is int or kind is str or (kind is bool and name in _SWITCHES)):
                return None
        elif kind is _OWN.get(name):
            own = own or {}
            own[name], value = value, _ITS_OWN
        elif kind is Retry and name == "retry":  # a policy can change: the key has its present content
            value = value.to_json()
        elif name in _FUNCTIONS and (kind is FunctionType or kind is Callback or kind is str):
            try:
                value = as_callback(value)
            except (FusionError, TypeError):
                return None
        elif value is None and name in _OWN:
            continue
        else:
            return None
        found += (name, value)
    return tuple(found), own


def _facts_of(func: Any) -> tuple[Any, ...] | None:
    """Return what a template takes of a function."""
    if type(func) is not FunctionType:
        return None
    marks = func.__dict__
    return func.__code__, func.__module__, func.__qualname__, marks.get(MARK), marks.get(DECLARED)
