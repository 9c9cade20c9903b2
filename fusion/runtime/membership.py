"""A process's entry in Redis: its name, its heartbeat, and the notes it shows."""

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
    """The list in Redis for one kind of process. redis-py's errors pass through."""

    def register(self, name: str, incarnation: str, notes: Mapping[str, str]) -> bool:
        """Enter the list, or renew the entry; False if a live other has this name."""
        ...

    def beat(self, name: str, incarnation: str, held: Sequence[Held]) -> tuple[bool, list[str]]:
        """Send a heartbeat and renew the leases of held jobs. Return whether the entry was there, and an answer for each job."""
        ...

    def leave(self, name: str, incarnation: str) -> int:
        """Remove the entry. Return how many jobs that it still held went back."""
        ...


class WorkerListing:
    """The list of workers and couriers.

    `line`: the supervisor receives each name before it is entered, so that it knows the name of a worker that dies in between.
    """

    def __init__(self, settings: Settings, broker: Broker, served_queues: ServedQueues, line: SupervisorLine) -> None:
        self._settings, self._broker, self._served_queues, self._line = settings, broker, served_queues, line

    def register(self, name: str, incarnation: str, notes: Mapping[str, str]) -> bool:
        """See `Listing`."""
        fields: dict[str, Any] = {
            "queues": ",".join([*self._served_queues.queues, *self._served_queues.patterns]),
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "version": __version__,
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

    - if another live process has the name, `.1`, `.2`, ... is appended;
    - an entry that vanished (a flushed Redis, a process taken for dead) is made again, after a call of `on_vanished`;
    - a heartbeat is due each `every` seconds.
    """

    def __init__(
        self, link: RedisLink, listing: Listing, name: str | None, every: float, on_vanished: Callable[[], None] | None = None
    ) -> None:
        """`name`: default: host name and process id."""
        self._link, self._listing, self._every, self._on_vanished = link, listing, every, on_vanished
        #: The registered name.
        self.name = self._base = self._known_as = name or f"{socket.gethostname()}.{os.getpid()}"
        #: Tells this process from others that had its name, or will have it.
        self.incarnation = secrets.token_hex(8)
        self._notes: dict[str, str] = {}
        self._noted = False
        self._beat_at = inf
        #: When the next heartbeat or note is due.
        self.next_at = inf
        #: Called after this process has registered under another name than before.
        self.on_renamed: Callable[[], None] | None = None

    def note(self, field: str, value: str) -> None:
        """Set a note in the entry, sent with the next call; an empty `value` removes it."""
        if self._notes.get(field, "") != value:
            self._notes[field] = value
            self._noted, self.next_at = True, 0.0

    def enter(self, *, patient: bool = True) -> None:
        """Register for the first time; redis-py's errors pass through.

        If this process is too old for the data, wait until it is not; without `patient`, raise SchemaMismatch.
        """
        self._link.begin(self._register, patient=patient)

    def renew(self) -> None:
        """Register again. RedisAway if Redis does not answer."""
        self._link.attempt(self._register)

    def beat_now(self) -> None:
        """Have the next heartbeat sent at once."""
        self._beat_at = self.next_at = 0.0

    def tick(self, now: float) -> None:
        """Send the heartbeat of a process that holds no jobs. After RedisAway or CallRefused the entry lasts until its lease expires."""
        self.beat(now, ())

    def beat(self, now: float, held: Sequence[Held]) -> list[str]:
        """Send notes and the heartbeat if they are due; the heartbeat renews the leases of `held` jobs.

        Return an answer for each job; none if no heartbeat was due. RedisAway or CallRefused as for `tick`.
        """
        if self._noted:
            self.renew()
        if now < self._beat_at:
            return []
        self._beat_at = self.next_at = now + self._every
        try:
            registered, answers = self._link.attempt(lambda: self._listing.beat(self.name, self.incarnation, held))
        except RedisAway:
            self._beat_at = self.next_at = now
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
        # Notes don't move the time of the next heartbeat: only a heartbeat renews leases.
        self._beat_at = self.next_at = min(self._beat_at, time.monotonic() + self._every)
        if self.name != self._known_as:
            self._known_as = self.name
            if self.on_renamed is not None:
                self.on_renamed()


def own_fields() -> dict[str, Any]:
    """Return the fields of an entry that show where a process runs, and its version."""
    return {"pid": os.getpid(), "hostname": socket.gethostname(), "fusion": __version__}
