"""A worker's entry in Redis: its name, its heartbeat with the leases of what it holds, and what it says of itself."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence

from fusion.runtime.redis_link import RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.settings import Settings
from fusion.store.write.broker import Broker


class Membership:
    """Keeps the worker in the list of workers under a name of its own.

    - a name that a live other has gets `.1`, `.2`, ...;
    - an entry that vanished (a flushed Redis, a worker thought dead) is made anew;
    - `entering` is called with name and incarnation before each registration, so that what dies in between is not unknown;
    - `note` adds a field for people, such as why no job is taken; it is told with the next call;
    - `on_vanished` is called when Redis turns out to know the worker no more.
    """

    on_vanished: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self, settings: Settings, broker: Broker, served_queues: ServedQueues, link: RedisLink, entering: Callable[[str], None]
    ) -> None:
        self._settings, self._broker, self._served_queues, self._link = settings, broker, served_queues, link
        self._entering = entering
        self.name = settings.name or f"{socket.gethostname()}.{os.getpid()}"
        self.incarnation = secrets.token_hex(8)
        self._every = settings.lease / 3
        self._notes: dict[str, str] = {}
        self._noted = False
        self._beat_at = float("inf")

    @property
    def next_at(self) -> float:
        """When there is something to tell Redis."""
        return 0.0 if self._noted else self._beat_at

    def note(self, field: str, value: str) -> None:
        """Show `value` in the worker's entry; empty takes it back."""
        if self._notes.get(field, "") != value:
            self._notes[field] = value
            self._noted = True

    def enter(self, *, patient: bool = True) -> None:
        """Register for the first time; redis-py's errors come as they are. Data that this process is too old for are waited for, or raise
        SchemaMismatch if it is not `patient`."""
        self._link.begin(lambda: self._register(lambda call: call()), patient=patient)

    def leave(self) -> int:
        """Take the entry back; how many jobs that were still held were given back. RedisAway if Redis does not answer."""
        if self._link.outdated:
            return 0
        return self._link.attempt(lambda: self._broker.deregister(self.name, self.incarnation))

    def renew(self) -> None:
        """Register again. RedisAway if Redis does not answer."""
        self._register(self._link.attempt)

    def tell(self, now: float, held: Sequence[tuple[str, str]]) -> list[str]:
        """What is due: notes, and the beat for the (job id, execution id) pairs `held`. An answer per pair; none if no beat was due."""
        if self._noted:
            self.renew()
        if now < self._beat_at:
            return []
        registered, answers = self._link.attempt(
            lambda: self._broker.extend(
                self.name,
                self.incarnation,
                held,
                self._settings.lease,
                self._settings.worker_ttl,
                "busy" if held else "idle",
            )
        )
        self._beat_at = now + self._every
        if not registered:
            self.on_vanished()
            self.renew()
        return answers

    def _register(self, attempt: Callable[[Callable[[], bool]], bool]) -> None:
        base, n = self.name, 0
        fields = {
            "queues": ",".join([*self._served_queues.queues, *self._served_queues.patterns]),
            "pid": os.getpid(),
            "hostname": socket.gethostname(),
            "waits": 1,
            **self._notes,
        }
        lease, ttl = self._settings.lease, self._settings.worker_ttl

        def register() -> bool:
            self._entering(f"{self.name} {self.incarnation}")
            return self._broker.register(self.name, self.incarnation, lease, ttl, fields)

        while not attempt(register):
            n += 1
            self.name = f"{base}.{n}"
        self._noted = False
        # After notes the beat stays due when it was: leases are only renewed by it.
        self._beat_at = min(self._beat_at, time.monotonic() + self._every)
