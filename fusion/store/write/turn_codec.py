"""Encodes the arguments and decodes the reply of a turn: nothing here sends anything."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, starmap
from typing import Any

from fusion.store.layout import codec
from fusion.store.layout.records import Claimed, Turn, TurnRequest
from fusion.store.scripting.host import to_texts
from fusion.store.scripting.minutes import minute


def arguments(request: TurnRequest) -> tuple[dict[str, Any], list[Any]]:
    """Make ARGV of turn.lua: the named arguments, and the sections behind them, in the order in which turn.lua finds them."""
    filtered = request.claim_filter
    outcomes = _outcomes(request)
    number, text = minute()
    rest = [
        *request.queues,
        *chain.from_iterable(request.begun),
        *filtered.sets,
        *chain.from_iterable(filtered.lacking.items()),
        *outcomes,
    ]
    slots = request.slots
    args = {
        "name": request.name,
        "incarnation": request.incarnation,
        "token": request.token,
        "lease_ms": int(request.lease * 1e3),
        "worker_ttl": int(request.worker_ttl),
        "special": _special(request),
        "n_queues": len(request.queues),
        "n_slots": len(slots),
        "lowest": slots[0] if len({*slots}) == 1 else " ".join(map(str, slots)),
        "n_outcomes": len(request.commits),
        "minute": number,
        "minute_text": text,
    }
    return args, rest


def _special(request: TurnRequest) -> str:
    """The argument for what most turns do not have; empty if this one has none of it."""
    own = request.claim_filter
    counts = request.ahead, len(request.begun), len(own.sets), len(own.lacking)
    flags = int(own.alone or own.only), int(own.only), int(request.listed)
    return " ".join(map(str, (*flags, *counts, own.known))) if own.known or any(flags) or any(counts) else ""


def _outcomes(request: TurnRequest) -> list[Any]:
    flat: list[Any] = []
    for one in request.commits:
        pairs = codec.to_pairs(one.fields)
        if one.attempt:
            pairs += ("attempt", json.dumps(one.attempt))
        elapsed, age, delay = int(one.elapsed * 1e6), int(one.age * 1e6), int(one.delay * 1e3)
        kind = "keyed" if one.keyed and one.kind == "finished" else one.kind
        flat += (kind, one.job_id, one.execution_id, elapsed, age, len(pairs), *pairs)
        if one.kind != "finished":
            flat += (delay, one.reason)
    return flat


def turn(outcomes: int, answer: Any) -> Turn:
    """Read the reply of turn.lua. `outcomes`: how many it was to commit."""
    status, answers, more, *words = answer
    bad, again, releases, next_ms, waits, opens_ms = more or (None, 0, 0, -1, None, None)
    return Turn(
        status.decode(),
        ["ok"] * outcomes if answers == b"ok" else answers.decode("utf-8", "replace").split("\n") if answers else [],
        claims(words),
        [(codec.text(queue), codec.text(error)) for queue, error in bad or ()],
        bool(again),
        None if next_ms < 0 else next_ms / 1000,
        (codec.text(waits[0]), to_texts(waits[1:])) if waits else None,
        None if opens_ms is None else opens_ms / 1000,
        bool(releases),
    )


def claims(words: list[Any]) -> list[Claimed]:
    """Read the words of claimed jobs at the end of a reply."""
    return list(starmap(claimed, _rows(words)))


def _rows(words: list[Any]) -> Iterator[list[Any]]:
    """Split the words of jobs: each has its number of words before them."""
    at = 0
    while at < len(words):
        first, at = at + 1, at + 1 + words[at]
        yield words[first:at]


def claimed(queue: bytes, job_id: bytes, execution_id: bytes, *fields: bytes | None) -> Claimed:
    """Read a claimed job from its row in a reply."""
    lossy = ("utf-8", "replace")
    return Claimed(queue.decode(*lossy), job_id.decode(*lossy), execution_id.decode(), codec.run_fields(queue, fields))
