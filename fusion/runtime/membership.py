"""A process's entry in Redis: under which name it is listed, its heartbeat, and what it shows of itself."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Protocol

from fusion import __version__
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.runtime.supervised import SupervisorLine
from fusion.settings import Settings
from fusion.store.write.broker import Broker

#: (job id, execution id) of a job that a process holds.
Held = tuple[str, str]


class Listing(Protocol):
    """The list in Redis that one kind of process stands in. redis-py's errors come as they are."""

    def register(self, name: str, incarnation: str, notes: Mapping[str, str]) -> bool:
        """Enter the list, or renew the entry; False if a live other has this name."""
        ...

    def beat(self, name: str, incarnation: str, held: Sequence[Held]) -> tuple[bool, list[str]]:
        """Give a sign of life and renew the leases of what is held: whether the entry was there, and an answer per job."""
        ...

    def leave(self, name: str, incarnation: str) -> int:
        """Take the entry back; return how many jobs that were still held went back."""
        ...


class WorkerListing:
    """The list of workers; couriers stand in it, too. `line`: the supervisor hears each name before it is entered, so that what dies in
    between is not unknown to it."""

    def __init__(self, settings: Settings, broker: Broker, served_queues: ServedQueues, line: SupervisorLine) -> None:
        self._settings, self._broker, self._served_queues, self._line = settings, broker, served_queues, line

    def register(self, name: str, incarnation: str, notes: Mapping[str, str]) -> bool:
        """See `Listing`."""
        fields: dict[str, Any] = {
            "queues": ",".join([*self._served_queues.queues, *self._served_queues.patterns]),
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "version": __version__,
            "waits": 1,
            **notes,
        }
        self._line.say("NAME", f"{name} {incarnation}")
        return self._broker.register(name, incarnation, self._settings.lease, self._settings.worker_ttl, fields)

    def beat(self, name: str, incarnation: str, held: Sequence[Held]) -> tuple[bool, list[str]]:
        """See `Listing`."""
        lease, ttl = self._settings.lease, self._settings.worker_ttl
        return self._broker.extend(name, incarnation, held, lease, ttl, "busy" if held else "idle")

    def leave(self, name: str, incarnation: str) -> int:
        """See `Listing`."""
        return self._broker.deregister(name, incarnation)


class Membership:
    """Keeps one process in its `listing`, under a name of its own.

    - a name that a live other has gets `.1`, `.2`, ...;
    - an entry that vanished (a flushed Redis, a process thought dead) is made anew, after a call of `on_vanished`;
    - a sign of life is due every `every` seconds.
    """

    def __init__(
        self, link: RedisLink, listing: Listing, name: str | None, every: float, on_vanished: Callable[[], None] | None = None
    ) -> None:
        """Without a `name` it is called by its host and process."""
        self._link, self._listing, self._every, self._on_vanished = link, listing, every, on_vanished
        #: The registered name.
        self.name = self._base = name or f"{socket.gethostname()}.{os.getpid()}"
        #: Tells this process from others that had its name, or will have it.
        self.incarnation = secrets.token_hex(8)
        self._notes: dict[str, str] = {}
        self._noted = False
        self._beat_at = inf

    @property
    def next_at(self) -> float:
        """When there is something to tell Redis."""
        return 0.0 if self._noted else self._beat_at

    def note(self, field: str, value: str) -> None:
        """Show `value` to people in the entry, with the next call; empty takes it back."""
        if self._notes.get(field, "") != value:
            self._notes[field] = value
            self._noted = True

    def enter(self, *, patient: bool = True) -> None:
        """Register for the first time; redis-py's errors come as they are.

        Data that this process is too old for are waited for, or raise SchemaMismatch if it is not `patient`.
        """
        self._link.begin(self._register, patient=patient)

    def renew(self) -> None:
        """Register again. RedisAway if Redis does not answer."""
        self._link.attempt(self._register)

    def beat_now(self) -> None:
        """Have the next sign of life given at once."""
        self._beat_at = 0.0

    def tick(self, now: float) -> None:
        """Give a sign of life for a process that holds no jobs. RedisAway or CallRefused: it is not listed any longer than its lease."""
        self.beat(now, ())

    def beat(self, now: float, held: Sequence[Held]) -> list[str]:
        """Do what is due: show notes, give the sign of life, renew the leases of what is `held`. Return an answer per job, none if no
        sign of life was due. RedisAway or CallRefused as for `tick`."""
        if self._noted:
            self.renew()
        if now < self._beat_at:
            return []
        self._beat_at = now + self._every
        try:
            registered, answers = self._link.attempt(lambda: self._listing.beat(self.name, self.incarnation, held))
        except RedisAway:
            self._beat_at = now
            raise
        if not registered:
            if self._on_vanished is not None:
                self._on_vanished()
            self.renew()
        return answers

    def leave(self) -> int:
        """Take the entry back; return how many jobs that were still held went back. RedisAway if Redis does not answer."""
        if self._link.outdated:
            return 0
        return self._link.attempt(lambda: self._listing.leave(self.name, self.incarnation))

    def _register(self) -> None:
        number = 0
        while not self._listing.register(self.name, self.incarnation, self._notes):
            number += 1
            self.name = f"{self._base}.{number}"
        self._noted = False
        # After notes the sign of life stays due when it was: leases are only renewed by it.
        self._beat_at = min(self._beat_at, time.monotonic() + self._every)


def own_fields() -> dict[str, Any]:
    """Fields of an entry that say where a process runs and which version it is."""
    return {"pid": os.getpid(), "hostname": socket.gethostname(), "fusion": __version__}
