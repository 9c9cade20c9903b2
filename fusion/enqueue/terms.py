"""The options of a call that enqueues: how many replicas it waits for, and how full the queue may be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from fusion.enqueue.kinds import MOST, one_line, seconds
from fusion.enqueue.options import NONE, EnqueueOptions
from fusion.exceptions import OptionError
from fusion.middleware import producers
from fusion.settings import Settings
from fusion.store.layout.pauses import this_user
from fusion.store.layout.records import Replicas, Room

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


def check_length(name: str, length: Any) -> int:
    """Return a number of jobs that may wait in a queue. OptionError for the option `name`."""
    if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= MOST:
        raise OptionError(name, f"use a whole number from 1 to {MOST:,}", length)
    return length


def pause_terms(duration: float | str | timedelta | None, reason: str, by: str) -> tuple[float | None, dict[str, str]]:
    """Return for how many seconds a queue is paused, None for no end, and the texts shown to people. OptionError."""
    time = None if duration is None else seconds("duration", duration)
    return time, {name: one_line(name, value) for name, value in (("reason", reason), ("by", by or this_user()))}


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
