"""The process that forwards an outbox: `fusion outbox`, `manage.py fusion_outbox`."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time

from fusion.contrib.outbox.forwarder import Forwarder
from fusion.contrib.outbox.ledger import Ledger
from fusion.exceptions import FusionError
from fusion.runtime.backoff import Backoff
from fusion.runtime.probes import HealthReport
from fusion.runtime.process import Phase, Process
from fusion.runtime.redis_link import RedisAway
from fusion.settings import Settings
from fusion.store.client.connections import describe
from fusion.store.write.broker import Broker

log = logging.getLogger("fusion.outbox")

#: Seconds for which a process is the forwarder unless it renews that; seconds between two checks for lost batches and old rows.
LEASE, TIDY = 15.0, 5.0
#: Seconds for which accepted rows are kept.
KEEP = 600.0
#: Seconds between two polls for rows.
POLL = 0.25
#: Most seconds that a poll may take while there is more to do.
_LONGEST = 1.0


class OutboxProcess(Process):
    """Forwards the rows of one outbox. Any number may run, and one of them works. If that dies, another takes over within 15 s, or within the
    setting `lease` if that is less.

    - it may be killed at any instant: the next one continues where it stopped, and no row becomes two jobs;
    - INT or TERM: the batch under way is finished;
    - without Redis, or without the database, it waits, and logs that once.
    """

    kind = "outbox"

    def __init__(
        self,
        settings: Settings,
        ledger: Ledger,
        *,
        keep: float = KEEP,
        poll: float = POLL,
        lease: float = LEASE,
        burst: bool = False,
    ) -> None:
        """`burst`: end when nothing is left to forward."""
        super().__init__(settings, log, "rows wait in the database")
        self._broker = Broker.of(self.connection, settings)
        self._ledger, self._lease, self._burst = ledger, min(LEASE, settings.lease), burst
        self._forwarder = Forwarder(ledger, self._broker, keep=keep)
        self._holder = f"{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
        #: None: unknown, it has not tried yet.
        self._leads: bool | None = None
        self._lead_until = 0.0
        #: The last state of another forwarder, and since when it has that.
        self._other: tuple[tuple[str, float] | None, float] = (None, 0.0)
        self._backoff, self._closed_until = Backoff(0.1, 5.0, jitter=True), 0.0
        #: The present error of the database, and the errors logged since the database went away.
        self._trouble, self._told = "", set[str]()
        self.timers.every(self._lease / 3, self._lead)
        self._tidy_timer = self.timers.every(TIDY, self._tidy, redis=True)
        self._poll = poll
        self._step_timer = self.timers.every(poll, self._step, redis=True)

    def boot(self) -> None:
        """Check that Redis and the database can be used."""
        self.link.begin(self._broker.check_writer)
        log.info("outbox forwarder %s; Redis: %s", self._holder, describe(self.connection))

    def _lead(self, now: float) -> None:
        if now < self._closed_until:
            return
        led = self._leads
        try:
            self._leads = self._try_to_lead(now)
        except Exception as error:
            self._database_away(now, error)
            return
        self._lead_until = now + self._lease
        if self._leads != led:
            log.info("it forwards now" if self._leads else f"another forwards: {(self._other[0] or ('',))[0]}")
        if not self._leads:
            self._database_back()

    def _try_to_lead(self, now: float) -> bool:
        """Become the forwarder if the lease has expired, or if the forwarder has been silent for the length of a lease: its clock may be
        ahead."""
        if self._ledger.lead(self._holder, time.time(), self._lease):
            return True
        held = self._ledger.held()
        if held is None:  # the tables were emptied
            self._ledger.identity()
        elif held != self._other[0]:
            self._other = (held, now)
        elif now - self._other[1] >= self._lease:
            return self._ledger.succeed(held, self._holder, time.time() + self._lease)
        return False

    def _tidy(self, now: float) -> None:
        if self._may(now):
            self._guarded(self._forwarder.tidy, now)

    def _step(self, now: float) -> None:
        if not self._may(now):
            return
        more = True
        while more and self.phase < Phase.DRAINING and time.monotonic() - now < _LONGEST:
            more = self._guarded(self._forwarder.forward, now)
            self.obey()
        if more:
            self._step_timer.next_at = now
        elif self._burst and not self._trouble:
            left = self._guarded(self._ledger.work, now)
            if not left and not self._trouble:
                self.drain("nothing is left")

    def _may(self, now: float) -> bool:
        return bool(self._leads) and now < self._lead_until and now >= self._closed_until

    def _guarded(self, call: object, now: float) -> bool:
        """Run the call; False if there is nothing more to do, or the database is away. RedisAway."""
        assert callable(call)
        try:
            answer = bool(self.link.attempt(call))
        except RedisAway:
            raise
        except Exception as error:
            self._database_away(now, error)
            return False
        self._database_back()
        return answer

    def _database_back(self) -> None:
        if self._trouble:
            log.warning("the database is back")
            self._trouble = ""
            self._told.clear()
        self._backoff.reset()

    def _database_away(self, now: float, error: Exception) -> None:
        """Handle any error of a driver by waiting: no rows are lost by that."""
        told = f"{type(error).__name__}: {' '.join(str(getattr(error, 'orig', error)).split())[:500]}"
        outage = self._ledger.is_outage(error)
        if not self._told:
            what = "rows can't be forwarded" if isinstance(error, FusionError) else "the database can't be used"
            log.error("%s: %s; rows wait, it is tried again", what, told, exc_info=None if outage else error)
        elif told not in self._told:
            log.info("still so: %s", told)
        self._told.add(told)
        self._trouble = told
        self._leads = None
        self._closed_until = now + self._backoff.next()
        try:
            self._ledger.reset()
        except Exception as worse:
            log.debug("nor can its connection be closed: %s", worse)

    def due(self, now: float) -> None:
        """Do nothing: the timers do all the work."""

    def end(self) -> int:
        """Let another forward at once."""
        try:
            self._ledger.leave(self._holder)
        except Exception as error:
            log.warning("the lease in the database could not be released: %s; another forwards after %.0f s", error, self._lease)
        log.info(
            "outbox forwarder %s ended: %d rows forwarded, %d parked",
            self._holder,
            self._forwarder.forwarded,
            self._forwarder.parked,
        )
        return 0

    def status(self) -> tuple[str, bool]:
        """Return `away` without Redis or the database, else `idle`."""
        away = bool(self.link.away_since or self._trouble)
        return "away" if away else "idle", not self.link.outdated

    def live(self) -> HealthReport:
        """Report that its loop runs; else there would be no reply."""
        return HealthReport([], {"outbox": self._holder, "pid": os.getpid(), "forwards": bool(self._leads)})

    def ready(self) -> HealthReport:
        """Report not ready without Redis or the database."""
        return HealthReport([*self.link.trouble, *([self._trouble] if self._trouble else [])], self.live().facts)
