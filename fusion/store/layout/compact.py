"""The fields of a job as enqueues store them: none that equals its default, or another field.

A record with the field `func` is such a compact one. Full records are those of callbacks' deliveries, of cron entries' jobs and of other
programs. Everybody but the scripts knows jobs by their full fields: `compact` makes stored ones of them, and `expand` full ones again.
Signatures cover the full ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Any

from fusion.kernel.compression import THRESHOLD, compressed

#: What an absent field means, whatever the settings of a process say: what was accepted stays what it was. Never to be changed.
DEFAULTS = {"timeout": 180, "result_ttl": 500, "retryCount": 7, "priority": 1}
#: Of a field that is absent: the one that has its value.
SAME_AS = {"description": "func", "original_queue": "origin", "enqueued_at": "created_at"}
#: The call's arguments, of which `data` holds no more than these: `[args,kwargs]`. Else it is the whole call.
_ARGUMENTS = b"[["
#: How a whole call begins, and what stands behind the function's name.
_CALL, _NO_INSTANCE = b'["', b'",null,'
_COMPLETE = {"data", "description", "timeout", "result_ttl", "retryCount"}
_figures = itemgetter("timeout", "result_ttl", "retryCount")
_USUAL = _figures(DEFAULTS)

_BYTES = {name.encode(): b"%d" % DEFAULTS[name] for name in ("timeout", "retryCount", "priority")}
_TEXTS = {name: b"%d" % value for name, value in DEFAULTS.items()}


def expand(fields: dict[str, bytes]) -> dict[str, bytes]:
    """The full fields of a record, by texts. Data, results and meta that are compressed stay so."""
    func = fields.get("func")
    if func is None:
        return fields
    full = {**_TEXTS, **fields}
    for name, other in SAME_AS.items():
        if name not in full and other in full:
            full[name] = full[other]
    data = full.get("data")
    if data is not None:
        full["data"] = call_of(func, data)
    return full


def expand_claimed(fields: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The same by bytes, of what a run needs."""
    func = fields.get(b"func")
    if func is None:
        return fields
    full = {**_BYTES, b"description": func, b"enqueued_at": fields.get(b"created_at", b""), **fields}
    full[b"data"] = call_of(func, full.get(b"data", b""))
    return full


def call_of(func: bytes, data: bytes) -> bytes:
    """The call as JSON, if only its arguments are stored. A name that is no plain text is left out: nobody may pass one off as another."""
    if not data.startswith(_ARGUMENTS) or b'"' in func or b"\\" in func:
        return data
    return b'["%b",null,%b' % (func, data[1:])


def sources(names: Sequence[str]) -> list[str]:
    """The fields to read for these full ones: themselves first, in their order."""
    wanted = dict.fromkeys(names)
    for name in names:
        if name in SAME_AS:
            wanted |= {"func": None, SAME_AS[name]: None}
        elif name in DEFAULTS or name == "data":
            wanted["func"] = None
    return list(wanted)


def meant(names: Sequence[str], read: Sequence[str], row: Sequence[bytes | None]) -> dict[str, bytes | None]:
    """These full fields of a row of HMGET, for which their `sources` were read; None for what is absent."""
    full = expand({name: value for name, value in zip(read, row, strict=True) if value is not None})
    return {name: full.get(name) for name in names}


def compact(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the fields to store for full ones, `func` first; None means absent. Return None if the absent ones could not be inferred again,
    from their absence or from the function's name: such a job is stored in full. Of a pickle, which is not looked into, `func` is
    among the fields."""
    if not fields.keys() >= _COMPLETE:
        return None
    data, func = fields["data"], fields.get("func")
    if func is None:
        if fields.get("serializer") is not None:
            return None
        call = data.encode() if isinstance(data, str) else data
        end = call.find(_NO_INSTANCE)
        name = call[2:end]
        if not call.startswith(_CALL) or end < 0 or b"\\" in name:
            return None
        func = name.decode()
        data = compressed(call) if len(call) >= THRESHOLD else call
        if data is call:
            data = b"[" + call[end + len(_NO_INSTANCE) :]
    stored = {"func": func, "data": data}
    if len(fields) == len(_COMPLETE) and fields["description"] == func:
        figures = _figures(fields)
        if figures == _USUAL and float not in map(type, figures):
            return stored  # mostly: no option was given
    for name, value in fields.items():
        default = func if name == "description" else DEFAULTS.get(name)
        if value is None and name in _COMPLETE:
            return None  # to a worker that would be its own setting
        if value is not None and name not in stored and (value != default or type(value) is float):  # 180.0 would be another text
            stored[name] = value
    if "meta" in stored and "serializer" not in stored:  # stock RQ reads the meta of a pickled job
        stored["meta"] = compressed(stored["meta"].encode())
    return stored
