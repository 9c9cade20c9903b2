"""Between Redis's bytes and what Python holds: the fields of a job hash."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from fusion.store.layout.compact import expand_claimed

#: What a run needs, in the order in which `turn` returns it, up to the last that the job has: a plain job has the first three
#: alone, one with a concurrency key and no other option the first four (lua/include/job/claim.lua).
RUN_FIELDS = (
    "data",
    "func",
    "created_at",
    "ties",
    "origin",
    "log_tag",
    "serializer",
    "timeout",
    "ttl",
    "meta",
    "priority",
    "description",
    "attempts",
    "retryCount",
    "retry",
    "enqueued_at",
    "on_success",
    "on_failure",
    "held_since",
    "isolate",
    "on_stopped",
    # for the check of the signature alone
    "success_task_handler",
    "failed_task_handler",
    "callback_url",
    "on_lost",
    "signature",
    "cursor",
    "suspect",
    "keep_logs",
)
#: What a run needs of a job with ties besides: its answer has these behind all of those.
TIED_FIELDS = ("takes", "batch", "given", "given_as", "gather", "repeats_left", "repeat_intervals")
#: And of a job with a concurrency key that was claimed ahead: the key, and the execution in whose slot it runs.
CHAIN_FIELDS = ("concurrency_key", "follows")
#: What the id of an execution ends in if it was claimed ahead, to wait behind running jobs, and if its worker runs nothing beside it.
AHEAD, ALONE = "a", "s"
#: Longest whole number that is one, its sign included: a clock in microseconds has 16.
_DIGITS = 20
_RUN_BYTES = tuple(name.encode() for name in RUN_FIELDS + TIED_FIELDS + CHAIN_FIELDS)


def run_fields(queue: bytes, values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    """Name the values of a job claimed from this queue, behind which others may be missing; what is absent though it has a default of the
    layout is filled in."""
    fields = {name: value for name, value in zip(_RUN_BYTES, values, strict=False) if value is not None}
    fields.setdefault(b"origin", queue)
    return expand_claimed(fields)


def to_pairs(fields: Mapping[str, Any]) -> list[Any]:
    """Flat field, value, ... as HSET takes it; None means absent."""
    flat: list[Any] = []
    for name, value in fields.items():
        if value is not None:
            flat += (name, value)
    return flat


def digest(text: str) -> str:
    """Stands for a text, such as a URL with a token in it, that is compared and never shown."""
    return hashlib.sha256(text.encode()).hexdigest()


def text(value: bytes | str | None, default: str = "") -> str:
    """A stored text; bytes that are no UTF-8 show as U+FFFD."""
    if value is None:
        return default
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def number(value: bytes | str | None, default: int = 0) -> int:
    """A whole number from a hash; garbage counts as absent, since old producers wrote what they liked, and so does what no counter and no
    clock reaches: it would be no float either."""
    try:
        return int(value) if value is not None and len(value) <= _DIGITS else default
    except ValueError:
        return default
