"""Work that any process does for the whole fleet.

Recover jobs of dead workers, move due jobs, release jobs that waited for others, end expired jobs, clean, record how much waits, and resume
bulk operations.

No leader is needed for any of it: each process plans all of it. A script that has done its work publishes that, with the next instants that it
found; each process that receives it (`Maintenance.heard`) plans the same a moment later than the one that did it. So one process does it for all.
If that one stops, whenever it does, the next one comes a moment after it should have.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from functools import partial
from math import expm1, inf, log1p
from os import getpid
from socket import gethostname
from typing import TYPE_CHECKING

from redis.exceptions import ResponseError

from fusion.runtime.redis_link import RedisLink
from fusion.runtime.served_queues import ServedQueues
from fusion.settings import Settings
from fusion.store.client.connections import classify, one_line
from fusion.store.write.broker import Broker

if TYPE_CHECKING:
    from fusion.metrics.figures import Figures
    from fusion.operations.carrier import Carrier

#: Most seconds between two searches for due and expired jobs, and so the longest delay until one is noticed.
_PROMOTE_INTERVAL = 1.0
#: Seconds between two records of how much waits in each queue.
_SAMPLE_INTERVAL = 10.0
#: Seconds between two searches for operations to resume; that one part may take; and that the loop then has for its jobs.
_LOOK_INTERVAL, _PART, _BETWEEN_PARTS = 5.0, 0.01, 0.02
#: Most jobs that such a part reads.
_PAGE = 200
#: Seconds until a pass over all queues' names goes on.
_BREATH = 0.05
#: Calls of one bounded script in a row, so that a backlog never keeps the loop from its jobs.
_ROUNDS = 5
#: The part of an interval after which a process that did the work does it again; and one that heard of it: from, to.
_OWN, _OTHERS = 0.9, (0.91, 0.995)
#: Seconds after a known instant at which those act that only heard of it: from, to. Nobody else did, then.
_LATER = (0.005, 0.03)
#: How much rarer the first part of such a span is than its last one, in powers of e. Fleets of up to a thousand processes are meant.
_RARER = 7.0
#: Fewest seconds between two searches for due jobs, unless some are left.
_LEAST = 0.01


class Maintenance:
    """Pieces of work and their times. Each `tick` makes at most a handful of bounded calls.

    Jobs of `served_queues` are recovered first.
    """

    def __init__(
        self,
        settings: Settings,
        broker: Broker,
        link: RedisLink,
        served_queues: ServedQueues,
        log: logging.Logger,
    ) -> None:
        self._lease = settings.lease
        # check several times within one lease, even if a test or a user made it short
        self._reap_every = min(settings.reap_interval, settings.lease / 4)
        self._clean_every = settings.maintenance_interval
        self._broker, self._link, self._served_queues, self._log = broker, link, served_queues, log
        self._failing: dict[str, str] = {}
        self._settings = settings
        self._carrier: Carrier | None = None
        self._parts = 0
        #: Jobs that this process moved to their queues, and jobs of the dead that it gave back.
        self.promoted = self.recovered = 0
        self._reap_at = self._clean_at = self._promote_at = self._sample_at = self._carry_at = 0.0
        self._expire_at = self._release_at = self._tend_at = inf
        #: Duties that this process has done and not yet heard of.
        self._echoes: set[str] = set()
        #: When the first of them is due.
        self.next_at = 0.0

    def due(self, at: float) -> None:
        """Have due jobs moved at this monotonic time, or a moment later if that is planned."""
        if at + _LATER[1] < self._promote_at:
            self._promote_at = at
            self.next_at = min(self.next_at, at)

    def heard(self, text: str) -> None:
        """Plan a duty anew, as some process has just done it. `text`: its name, and milliseconds to what it found; -1 for nothing."""
        try:
            what, *found = text.split()
            if what in self._echoes:
                self._echoes.remove(what)
            else:
                self._heard(what, [int(word) for word in found], time.monotonic())
        except ValueError:  # of another version
            return
        self._set_next()

    def _heard(self, what: str, found: list[int], now: float) -> None:
        part, later = _moment(*_OTHERS), now + _moment(*_LATER)
        if what == "promote":
            due, self._expire_at, self._tend_at = (later + ms / 1000 if ms >= 0 else inf for ms in found)
            self._promote_at = min(due, now + _PROMOTE_INTERVAL * part)
        elif what == "due":
            (ms,) = found
            self.due(later + ms / 1000)
        elif what == "expire":
            (ms,) = found
            self._expire_at = later + ms / 1000 if ms >= 0 else inf
        elif what == "tend":
            (ms,) = found
            self._tend_at = later + ms / 1000 if ms >= 0 else inf
        elif what == "recover":
            age, operations = found
            self._reap_at = now - age / 1000 + self._reap_every * part
            if self._carrier is None:
                self._carry_at = later if operations else now + _LOOK_INTERVAL
        elif what == "sample":
            self._sample_at = now + _SAMPLE_INTERVAL * part
        elif what == "clean":
            self._clean_at = now + self._clean_every * part

    def measure(self, figures: Figures) -> None:
        """Add what this process did for the fleet, for `/metrics`."""
        from fusion.metrics.catalogue import PROMOTED, RECOVERED

        figures.put(PROMOTED, self.promoted)
        figures.put(RECOVERED, self.recovered)

    def releases(self) -> None:
        """Have jobs released soon: some no longer wait for others."""
        if self._release_at == inf:  # else the last search set the time
            self._release_at = self.next_at = 0.0

    def tick(self, now: float) -> None:
        """Do what is due. RedisAway if Redis does not answer.

        A step that fails for a key of the wrong type is logged once and tried again when it is due next.
        """
        try:
            self._link.attempt(partial(self._run, now), look=True)
        finally:
            self._set_next()

    def _set_next(self) -> None:
        self.next_at = min(
            *(self._reap_at, self._clean_at, self._promote_at, self._expire_at),
            *(self._release_at, self._tend_at, self._sample_at, self._carry_at),
        )

    def _run(self, now: float) -> None:
        if now >= self._reap_at:
            self._reap_at = now + self._reap_every * _OWN
            self._do("recovering what the dead held", self._recover)
        if now >= self._promote_at:
            self._promote_at = now + _PROMOTE_INTERVAL * _OWN
            self._do("moving due jobs to their queues", partial(self._promote, now))
        if now >= self._release_at:
            self._release_at = inf
            self._do("releasing jobs that waited for others", partial(self._release, now))
        if now >= self._expire_at:
            self._expire_at = inf  # the next search for due jobs tells
            self._do("ending what has expired", partial(self._expire, now))
        if now >= self._tend_at:
            self._tend_at = inf  # as above
            self._do("seeing to batches", partial(self._tend, now))
        if now >= self._clean_at:
            self._clean_at = now + self._clean_every * _OWN
            self._do("cleaning", partial(self._clean, now))
        if now >= self._sample_at:
            self._sample_at = now + _SAMPLE_INTERVAL * _OWN
            self._do("noting how much waits", partial(self._sample, now))
        if now >= self._carry_at:
            self._carry_at = now + _LOOK_INTERVAL
            self._do("carrying on an operation", partial(self._carry, now))

    def _do(self, what: str, step: Callable[[], None]) -> None:
        try:
            step()
        except ResponseError as error:
            if classify(error) != "bug":
                raise
            if self._failing.get(what) != str(error):
                self._failing[what] = str(error)
                self._log.error("%s failed, and is tried again: %s", what, one_line(error))
        else:
            if self._failing.pop(what, None):
                self._log.warning("%s works again", what)

    def _promote(self, now: float) -> None:
        for _ in range(_ROUNDS):
            moved, next_in, over_in, batch_in = self._broker.promote()
            self.promoted += moved
            self._expire_at, self._tend_at = (inf if wait is None else now + wait for wait in (over_in, batch_in))
            if next_in is None or next_in > 0:
                self._echoes.add("promote")
                break
        else:
            self._promote_at = now
        if next_in:
            self._promote_at = min(self._promote_at, now + max(next_in, _LEAST))

    def _release(self, now: float) -> None:
        for _ in range(_ROUNDS):
            _, next_in = self._broker.release()
            if next_in is None or next_in > 0:
                break
        if next_in is not None:
            self._release_at = now + next_in

    def _expire(self, now: float) -> None:
        for _ in range(_ROUNDS):
            _, next_in = self._broker.expire()
            if next_in is None or next_in > 0:
                self._echoes.add("expire")
                break
        if next_in is not None:
            self._expire_at = now + next_in

    def _tend(self, now: float) -> None:
        for _ in range(_ROUNDS):
            _, next_in = self._broker.tend_batches()
            if next_in is None or next_in > 0:
                self._echoes.add("tend")
                break
        if next_in is not None:
            self._tend_at = now + next_in

    def _clean(self, now: float) -> None:
        if all(self._broker.clean(interval=self._clean_every / 2) for _ in range(_ROUNDS)):
            self._clean_at = now + _BREATH

    def _sample(self, now: float) -> None:
        if all(self._broker.sample(_SAMPLE_INTERVAL * 0.8) for _ in range(_ROUNDS)):
            self._sample_at = now + _BREATH

    def _carry(self, now: float) -> None:
        running = self._broker.running_operations()
        if not running:
            self._carrier = None
            return
        if self._carrier is None:
            from fusion.operations.carrier import Carrier  # loaded here, as there is seldom an operation to resume

            self._carrier = Carrier(
                self._broker.connection, self._settings, f"{gethostname()}.{getpid()}", page=_PAGE, part=_PART
            )
        self._parts += 1
        first = self._parts % len(running)
        for operation in (running[first:] + running[:first])[:_ROUNDS]:
            if self._carrier.carry(operation, _PART / 2)[0] in ("running", "done"):  # one part in a row
                self._carry_at = now + _BETWEEN_PARTS
                return

    def _recover(self) -> None:
        for _ in range(_ROUNDS):
            recovered, again = self._broker.reap(self._lease, self._reap_every, self._served_queues.queues)
            self.recovered += recovered
            if recovered:
                self._log.warning("recovered %d job(s) whose lease had run out", recovered)
            if not again:
                break
        for name, jobs in self._broker.prune(self._lease):
            self.recovered += jobs
            self._log.warning("worker %s is gone; its registration was removed and %d job(s) recovered", name, jobs)


def _moment(first: float, last: float) -> float:
    """Return a random time in this span, mostly a late one, so that few of many processes come first.

    What the first one publishes needs time to reach the others, most of all on a busy machine. All that come before it reaches them
    do the same work again.
    """
    return first + (last - first) * log1p(random.random() * expm1(_RARER)) / _RARER
