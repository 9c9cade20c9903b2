"""Relations of a job to others: its concurrency key, its unique key, and the options of a task's `@job` that hold for every call of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from types import FunctionType
from typing import Any

from fusion.context import get_current_job
from fusion.enqueue.kinds import key
from fusion.enqueue.options import EnqueueOptions, Func
from fusion.exceptions import OptionError, SerializationError
from fusion.kernel.serializers import get_serializer

#: Options that refine a unique key.
_MORE = ("unique_until", "unique_window", "on_duplicate", "max_delay")
#: Characters of a function's name that its key shows; the hash behind them covers the whole name.
_SHOWN = 120
#: The letter for a call that may be batched with others, see `fusion.kernel.gather`.
GATHERED = "m"
#: The attribute of a function with the options that `@job` gives every call of it.
DECLARED = "__fusion_ties__"


def declared(func: Func) -> Mapping[str, Any] | None:
    """Return the options that `@job` gives every call of the function; None if there are none, or the function is given by its name."""
    return func.__dict__.get(DECLARED) if isinstance(func, FunctionType) else None


def with_declared(
    ties: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any], options: EnqueueOptions
) -> EnqueueOptions:
    """Return the options of a call; those that it does not set come from the task's declaration. A callable is called with the call's
    arguments; if it raises, nothing is enqueued. OptionError if it does not return a text."""
    found = dict(ties)
    for name, value in ties.items():
        if callable(value) and getattr(options, name) is None:
            found[name] = value(*args, **kwargs)
            if not isinstance(found[name], str):
                raise OptionError(name, "the function that @job was given must return a text", found[name])
    return options.over(type(options)(**found))


def tie(name: str, stored: dict[str, Any], letters: str = "") -> None:
    """Note in the record of a call of the function `name` how it is related to other jobs. Scripts read one letter for each relation, without
    the other fields; `letters`: those that are known. OptionError for options that require others."""
    if "concurrency_key" in stored or "max_concurrent" in stored or "rate" in stored:
        stored["concurrency_key"] = key("concurrency_key", stored.get("concurrency_key", name))
        letters = "k" + "".join(letter for field, letter in _LETTERS.items() if field in stored) + letters
    else:
        for field in _LETTERS:
            if field in stored:
                raise OptionError(field, "needs concurrency_key; or max_concurrent or rate, for a limit of the function")
    if "batch" in stored:
        letters += "b"
        stored["batch_by"] = joining(stored["batch"])
    if letters:
        stored["ties"] = letters


def joining(batch: str) -> str | None:
    """Return the job that adds another to that batch: the job that this process runs, if it is a member itself. A closed batch accepts what
    its members add."""
    job = get_current_job()
    return job.id if job is not None and job.batch_id == batch else None


#: `discard` is read when a job first arrives, and then dropped.
_LETTERS = {"on_conflict": "d", "limit_duration": "t"}


# -- unique keys


def note_unique(
    name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: EnqueueOptions, stored: dict[str, Any]
) -> str:
    """Add the unique key to the record of a call of the function `name`. Returns the letter for the record's `ties`: `u`; empty if the job
    never holds a key, as one that is released when it is accepted. OptionError for options that conflict."""
    if "unique_key" not in stored:
        if not options.unique:
            for option in _MORE:
                if getattr(options, option) is not None:
                    raise OptionError(option, "needs unique_key, or unique=True for one of the function and its arguments")
            return ""
        stored["unique_key"] = key_of(name, args, kwargs)
    if "max_delay" in stored and options.on_duplicate != "replace":
        raise OptionError(
            "max_delay", "needs on_duplicate='replace': it bounds for how long newer jobs put off the first of them"
        )
    if options.unique_until != "accept":
        return "u"
    if "unique_window" not in stored:
        raise OptionError("unique_until", "'accept' needs unique_window: for how long after it no other is accepted")
    return ""


def key_of(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return the key of a call: its function's name, and a hash of name and arguments. Keywords and the keys of dicts may come in any order;
    `f(1)` and `f(x=1)` differ. OptionError for arguments that are no JSON."""
    try:
        data = get_serializer("json", allow_pickle=False).dumps([args, dict(kwargs)])
    except SerializationError as error:
        raise OptionError("unique", f"its arguments are not JSON and make no key; give unique_key ({error})") from None
    canonical = json.dumps([name, json.loads(data)], sort_keys=True, separators=(",", ":"))
    return f"{name[-_SHOWN:]}:{sha256(canonical.encode()).hexdigest()[:32]}"
