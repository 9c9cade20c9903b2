"""Unique keys: makes the key of a call, and checks that its options are compatible."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from fusion.exceptions import OptionError, SerializationError
from fusion.kernel.serializers import get_serializer

if TYPE_CHECKING:
    from fusion.enqueue.options import EnqueueOptions

#: Options that refine a unique key.
_MORE = ("unique_until", "unique_window", "on_duplicate", "max_delay")
#: Characters of a function's name that its key shows; the hash behind them covers the whole name.
_SHOWN = 120


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
