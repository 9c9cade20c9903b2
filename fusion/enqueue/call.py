"""From the arguments of an enqueue to the job and the terms of the call: which keywords are options, and what they are worth.

A misspelled option never becomes an argument of the task.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from inspect import CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import Any

from fusion.enqueue.build import JobData, build
from fusion.enqueue.kinds import check_length, seconds
from fusion.enqueue.options import NONE, OF_CALLS, OPTION_NAMES, EnqueueOptions, Func
from fusion.exceptions import OptionError, UnknownOption
from fusion.middleware import producers
from fusion.settings import Settings, get_settings
from fusion.store.layout.records import Replicas, Room

_OF_CALLS = frozenset(OF_CALLS)
_DURABILITIES = ("primary", "replicated")


@dataclass(frozen=True, slots=True)
class Terms:
    """The terms of one call. None: it waits for no replicas, and only the queue's own limit holds."""

    replicas: Replicas | None = None
    room: Room | None = None
    on_commit: bool | None = None

    def with_more(self, to_come: int) -> Terms:
        """Return the same terms for a call that brings `to_come` more jobs after this one."""
        if not to_come:
            return self
        return replace(self, room=Room(self.room.length if self.room else None, to_come))


PLAIN = Terms()


def terms_of(options: EnqueueOptions, settings: Settings) -> Terms:
    """Return the terms that the options and the settings give. OptionError for an invalid one."""
    if options is NONE and settings.durability == "primary":
        return PLAIN
    length = options.max_queue_length
    room = Room(check_length("max_queue_length", length)) if length is not None else None
    return Terms(_replicas(options, settings), room, _on_commit(options.on_commit, settings))


def _on_commit(wanted: Any, settings: Settings) -> bool | None:
    if wanted not in (None, True, False):
        raise OptionError("on_commit", "use True or False", wanted)
    if wanted and not any(found.knows_transactions for found in producers(settings.middleware)):
        rule = "nothing here tracks transactions; with Django use fusion.contrib.django (docs/middleware.md)"
        raise OptionError("on_commit", rule, wanted)
    found: bool | None = wanted
    return found


def _replicas(options: EnqueueOptions, settings: Settings) -> Replicas | None:
    durability = settings.durability if options.durability is None else options.durability
    if durability not in _DURABILITIES:
        raise OptionError("durability", "use 'primary' or 'replicated'", durability)
    if durability == "primary":
        for name in ("replicas", "replicas_timeout"):
            if getattr(options, name) is not None:
                rule = "needs durability='replicated'; to pass it to the task use enqueue_call(func, kwargs={...})"
                raise OptionError(name, rule, getattr(options, name))
        return None
    count: Any = settings.replicas if options.replicas is None else options.replicas
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise OptionError("replicas", "use a whole number from 1", count)
    given = options.replicas_timeout
    return Replicas(count, settings.replicas_timeout if given is None else seconds("replicas_timeout", given))


@dataclass(frozen=True, slots=True)
class QueueDefaults:
    """Options of a queue for jobs that don't set them: `Queue(default_timeout=, serializer=)`. `text` differs where they do."""

    timeout: float | str | None = None
    serializer: str | None = None

    @property
    def text(self) -> str:
        """All of them in one text; empty if there are none."""
        return "" if self.timeout is None and self.serializer is None else repr(self)

    def __post_init__(self) -> None:
        if self.serializer not in (None, "json", "pickle"):
            raise ValueError(f"serializer={self.serializer!r}: use {SERIALIZERS}")


SERIALIZERS = (
    "'json' or 'pickle', or none for the setting serializer (FUSION_SERIALIZER); workers read both, each job says which it is"
)


# -- the calls of a queue


def called(f: Func, args: tuple[Any, ...], kwargs: dict[str, Any], own: QueueDefaults) -> tuple[JobData, Terms]:
    """Build the job of `enqueue(f, *args, **kwargs)`."""
    options, rest = split_options(kwargs)
    if rest:
        if "args" in rest or "kwargs" in rest:
            if args:
                raise ValueError("give the task's arguments either directly or by args= and kwargs=, not both")
            args, apart = tuple(rest.pop("args", None) or ()), rest.pop("kwargs", None) or {}
            check_keywords(f, rest)
            rest = {**apart, **rest}
        else:
            check_keywords(f, rest)
    return called_with(f, args, rest, options, own)


def called_apart(
    func: Func,
    args: Iterable[Any] | None,
    kwargs: Mapping[str, Any] | None,
    timeout: float | str | None,
    options: Mapping[str, Any],
    own: QueueDefaults,
) -> tuple[JobData, Terms]:
    """Build the job of `enqueue_call(func, args, kwargs, timeout=timeout, **options)`."""
    return called_with(func, tuple(args or ()), kwargs or {}, _options(timeout, options), own)


def delayed(
    func: Func, args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | str | None, options: Mapping[str, Any]
) -> tuple[JobData, Terms]:
    """Build the job of `func.delay(*args, **kwargs)`, of a function marked by `@job(..., timeout=timeout, **options)`."""
    check_keywords(func, kwargs, delayed=True)
    return called_apart(func, args, kwargs, timeout, options, QueueDefaults())


def prepared(
    func: Func,
    args: Iterable[Any] | None,
    kwargs: Mapping[str, Any] | None,
    timeout: float | str | None,
    options: Mapping[str, Any],
    serializer: str | None = None,
) -> JobData:
    """Build the job of `prepare_data(func, args, kwargs, timeout=timeout, serializer=serializer, **options)`."""
    known = _options(timeout, options)
    if not _OF_CALLS.isdisjoint(options):
        for name in OF_CALLS:
            if options.get(name) is not None:
                raise OptionError("", f"{name}= belongs to the call that sends the jobs; give it to enqueue_many")
    return build(func, tuple(args or ()), kwargs or {}, known, get_settings(), QueueDefaults(serializer=serializer).serializer)


def timed(name: str, time: Any, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keywords of `enqueue` that do what `enqueue_at` and `enqueue_in` do."""
    if time is None:
        raise TypeError(f"{name}() needs a time, got None; to run it at once use enqueue()")
    if "enqueue_at" in kwargs or "enqueue_in" in kwargs:
        raise ValueError(f"{name}() has its time already, as its first argument; remove enqueue_at= and enqueue_in=")
    return {**kwargs, name: time}


def _options(timeout: float | str | None, options: Mapping[str, Any]) -> EnqueueOptions:
    if timeout is None and not options:
        return NONE
    return options_of({"job_timeout": timeout, **options})


def called_with(
    func: Func, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: EnqueueOptions, own: QueueDefaults
) -> tuple[JobData, Terms]:
    """Return the encoded call and its terms; the queue's own defaults replace options that are not given."""
    if own.timeout is not None and options.job_timeout is None:
        options = options.over(EnqueueOptions(job_timeout=own.timeout))
    settings = get_settings()
    return build(func, args, kwargs, options, settings, own.serializer), terms_of(options, settings)


# -- options and arguments

_NAMES = frozenset(OPTION_NAMES)
#: RQ's options that Fusion does not have yet. Passed to the task as arguments they would do harm silently.
_NOT_YET = frozenset({"repeat", "group_id", "pipeline"})
#: Keywords of `enqueue` that are, or may be, other than arguments of the task.
NOT_ARGUMENTS = _NAMES | _NOT_YET | {"timeout", "args", "kwargs"}


def split_options(kwargs: dict[str, Any]) -> tuple[EnqueueOptions, dict[str, Any]]:
    """Split the keywords of `enqueue(func, *args, **kwargs)` into Fusion's options and the task's own arguments."""
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
            raise OptionError("", f"{name}= is not supported by this version; {_ANYWAY}")


_ANYWAY = "to pass it to the task use enqueue_call(func, kwargs={...})"


def options_of(given: Mapping[str, Any]) -> EnqueueOptions:
    """Return options that were given separately from the task's arguments. UnknownOption if there is no such option."""
    if not _NAMES.issuperset(given):
        name = min(given.keys() - _NAMES)
        raise UnknownOption(name, f"there is no option {name}={did_you_mean(name, OPTION_NAMES)}")
    return EnqueueOptions(**given)


def check_keywords(func: Func, names: Iterable[str], *, delayed: bool = False) -> None:
    """Raise UnknownOption for a keyword that would reach the task although an option was meant. That is one that the function does not take,
    as far as can be seen without an import, or a misspelled option. `delayed`: the call is `.delay()`, which takes no options."""
    for name, closed in _not_parameters(func, names):
        if name == "timeout" and not closed and not delayed:
            _tell_timeout()
        if closed:
            told = f"{closed}() takes no argument {name}=, and "
            told += "options go to @job(...) or Queue.enqueue" if delayed else "there is no such option"
            raise UnknownOption(
                name, f"{told}{'' if delayed and name in _NAMES else did_you_mean(name, OPTION_NAMES)}; {_ANYWAY}"
            )
        if (near := _misspelled(name)) is not None or (delayed and name in _NAMES):
            meant = f"options like {near or name}= go to @job(...) or Queue.enqueue" if delayed else f"did you mean {near}=?"
            raise UnknownOption(name, f"{name}= is not an option but looks like one; {meant}; {_ANYWAY}")


def _tell_timeout() -> None:
    """Warn at the line that called Fusion: a task may have an argument of that name, and this code can't see whether it does."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fusion."):
        level, frame = level + 1, frame.f_back
    text = f"timeout= goes to the task; the job's own limit is job_timeout=. If that is meant, {_ANYWAY}"
    warnings.warn(text, stacklevel=level)


def check_arguments(func: Func, names: Iterable[str]) -> None:
    """Raise UnknownOption for an argument that the function does not take, as far as can be seen. Names of options are arguments here."""
    for name, closed in _not_parameters(func, names):
        if closed:
            raise UnknownOption(name, f"{closed}() takes no argument {name}=; options go into options(...)")


def _not_parameters(func: Func, names: Iterable[str]) -> list[tuple[str, str]]:
    """Return names that are no parameters of the function, each with the function's name; that is empty if the function takes any, or can't
    be seen."""
    code, _ = _codes_of(func)
    if code is None:
        return [(name, "") for name in names]
    closed = "" if code.co_flags & CO_VARKEYWORDS else code.co_name
    known = parameters_of(func)
    return [(name, closed) for name in names if name not in known]


def parameters_of(func: Func) -> tuple[str, ...]:
    """Return the parameters of the function that can be given by name, as far as they can be seen."""
    code, inner = _codes_of(func)
    if code is None:
        return ()
    return _parameters(code) if inner is None else (*_parameters(code), *_parameters(inner))


def _codes_of(func: Func) -> tuple[CodeType | None, CodeType | None]:
    """Return the code of the function, if this process has it, and of what it wraps."""
    found: Any = func
    if isinstance(func, str):
        module, _, name = func.rpartition(".")
        loaded = sys.modules.get(module)
        found = None if loaded is None else getattr(loaded, "__dict__", {}).get(name)
    if not isinstance(found, FunctionType):
        return None, None
    inner = found.__dict__.get("__wrapped__")
    return found.__code__, inner.__code__ if isinstance(inner, FunctionType) else None


def _parameters(code: CodeType) -> tuple[str, ...]:
    """Return the parameters that can be given by name."""
    return code.co_varnames[code.co_posonlyargcount : code.co_argcount + code.co_kwonlyargcount]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence that suggests the nearest known name; empty if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name.lower(), known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


@lru_cache(maxsize=4096)
def _misspelled(name: str) -> str | None:
    """Return the option that this name misspells: `job_timout`, `jobTimeout`. A plural is a word of its own: `job_ids`."""
    from difflib import get_close_matches

    if name in _NAMES or name.removesuffix("s") in _NAMES:
        return None
    letters = name.replace("_", "").lower()
    bare = {option.replace("_", ""): option for option in (*OPTION_NAMES, *_NOT_YET)}
    swapped = (letters[:i] + letters[i + 1] + letters[i] + letters[i + 2 :] for i in range(len(letters) - 1))
    near = [one for one in swapped if one in bare and len(one) > 4] or get_close_matches(letters, bare, n=1, cutoff=0.85)
    return bare[near[0]] if near else None
