"""Decides which keywords of a call are options and which the task's: a misspelled option never becomes an argument."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from functools import lru_cache
from inspect import CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import Any

from fusion.enqueue.options import NONE, OPTION_NAMES, EnqueueOptions, Func
from fusion.exceptions import OptionError, UnknownOption

_NAMES = frozenset(OPTION_NAMES)
#: RQ's options that Fusion does not have yet. Passed to the task as arguments they would do harm silently.
_NOT_YET = frozenset({"repeat", "group_id", "pipeline"})


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
    code, inner = _codes_of(func)
    if code is None:
        return [(name, "") for name in names]
    closed = "" if code.co_flags & CO_VARKEYWORDS else code.co_name
    known = _parameters(code) if inner is None else (*_parameters(code), *_parameters(inner))
    return [(name, closed) for name in names if name not in known]


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
