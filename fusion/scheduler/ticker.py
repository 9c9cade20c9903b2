"""Cron ticks: reads due entries, decides their ticks, and has Redis enqueue the jobs. Any number may run; the first to decide a tick
wins."""

from __future__ import annotations

import logging
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from fusion.cron.entry import Entry
from fusion.kernel.nonces import new_nonce
from fusion.runtime.job_log import one_line
from fusion.runtime.redis_link import CallRefused, RedisLink, ServerFull, refusable
from fusion.store.layout.history import BOUNDS, bucket
from fusion.store.layout.records import StoredEntry, Tick
from fusion.store.write.cron_broker import CronBroker

if TYPE_CHECKING:
    from fusion.metrics.figures import Figures

#: Seconds by which the server's clock may drift from ours between two checks before it counts as set.
_JUMP = 5.0
#: Longest seconds between two checks without a doorbell: a token may be lost with the scheduler that took it.
_LONGEST = 5.0
#: Seconds to the next check after one in which other schedulers decided every entry first.
_BEATEN = 0.1
_LIMIT = 50
#: Seconds between two attempts while Redis is full.
_FULL = 2.0
#: Entries whose parsed form is kept.
_KNOWN = 2000


class ClockGuard:
    """Notices when the server's clock was set (or another server, with another clock, took over).

    Then no tick is decided for `hold` seconds: if the clock is soon set back, no tick ran too early. A scheduler that starts later does not
    know of the change.
    """

    def __init__(self, hold: float, log: logging.Logger) -> None:
        self._hold, self._log = hold, log
        self._ahead: tuple[float, float] | None = None
        self.until = 0.0

    def holds(self, server: float, asked: float, answered: float) -> bool:
        """Compare the server's time with the monotonic times before and after the request for it. True if ticks must wait.

        This works however long the process was stopped. Each check gives two bounds for the lead of the server's clock. The clock was set
        only if the bounds of two checks do not overlap.
        """
        low, high = server - answered, server - asked
        before_low, before_high = self._ahead or (low, high)
        self._ahead = low, high
        moved = max(low - before_high, 0.0) + min(high - before_low, 0.0)
        if abs(moved) > _JUMP:
            self.until = answered + self._hold
            self._log.warning("the clock of Redis was set by %+.0f s: no cron tick is decided for %g s", moved, self._hold)
            if moved < 0:
                self._log.warning("until it shows again what it showed, cron entries wait; cron pause and cron resume end that")
        return answered < self.until


class Ticker:
    """Asks Redis which entries are due, decides their ticks, and has Redis enqueue them. `hold`: seconds for `ClockGuard`."""

    def __init__(self, broker: CronBroker, link: RedisLink, hold: float, log: logging.Logger) -> None:
        self._broker, self._link, self._log = broker, link, log
        self._guard = ClockGuard(hold, log)
        self._known: dict[str, tuple[str, Entry]] = {}
        #: Ticks that this process decided; the jobs that it enqueued for them; those that it found missed.
        self._ticks = self._jobs = self._missed = 0
        #: How late ticks were decided: counts by bucket, and the sum in seconds.
        self._late = [0] * len(BOUNDS)
        self._late_seconds = 0.0
        self.next_at = 0.0

    def tick(self, now: float) -> None:
        """Decide the due ticks.

        RedisAway if Redis does not answer, ServerFull if it is full: the undecided ticks stay due. CallRefused if the index of entries
        can't be read.
        """
        self.next_at = 0.0
        asked = time.monotonic()
        try:
            found = self._link.attempt(refusable(lambda: self._broker.cron_due(_LIMIT)), look=True)
        except CallRefused:
            self.next_at = asked + _LONGEST
            raise
        answered = time.monotonic()
        if self._guard.holds(found.now, asked, answered):
            self.next_at = min(self._guard.until, answered + _LONGEST)
            return
        try:
            decided = [self.decide(stored, found.now) for stored in found.entries]
        except ServerFull:
            self.next_at = time.monotonic() + _FULL
            raise
        if any(decided):
            self.next_at = 0.0  # an entry may be due again already; its own time decides
        elif decided:
            self.next_at = time.monotonic() + _BEATEN
        else:
            self.next_at = answered + min(_LONGEST, _LONGEST if found.next_in is None else found.next_in)

    def measure(self, figures: Figures) -> None:
        """Add what was counted, for `/metrics`."""
        from fusion.metrics import catalogue

        figures.put(catalogue.TICKS, self._ticks)
        figures.put(catalogue.TICK_JOBS, self._jobs)
        figures.put(catalogue.TICK_MISSED, self._missed)
        figures.put_spread(catalogue.TICK_LATENESS, self._late, self._late_seconds)

    def _count(self, tick: Tick, enqueued: int, now: float) -> None:
        self._ticks += len(tick.runs) + tick.missed
        self._jobs += enqueued
        self._missed += tick.missed
        if tick.runs:
            late = max(0.0, now - tick.runs[-1][0])
            self._late[bucket(late)] += 1
            self._late_seconds += late

    def decide(self, stored: StoredEntry, now: float) -> bool:
        """Decide one entry. False if there was nothing left to decide."""
        try:
            entry = self._entry(stored)
            tick = entry.decide(int(float(stored.mark)) if stored.mark else None, now)
        except Exception as error:  # only this entry fails; the others go on
            return self._put_off(stored, f"can't be planned: {error}")
        try:
            status, enqueued, skipped = self._link.attempt(refusable(lambda: self._enqueue(stored, entry, tick)))
        except ServerFull:
            raise
        except CallRefused as error:
            return self._put_off(stored, f"can't be enqueued: {error}")
        if status == "ok" or status.startswith("taken"):
            self._count(tick, enqueued, now)
            self._report(entry, tick, enqueued, skipped)
            if status != "ok":
                self._log.error(
                    "cron entry %s: a tick did not run, the job id %s is taken by a job that is not of this entry; "
                    "see who made it, and delete it",
                    entry.id,
                    one_line(status.removeprefix("taken "), 200),
                )
        elif status == "early" and tick.upto > now:
            self._log.warning(
                "cron entry %s has run up to %s and waits for that, the clock of Redis was set back; cron pause and cron resume end that",
                entry.id,
                _shown(tick.upto),
            )
        elif status.startswith("error"):
            self._log.error("cron entry %s: %s; looked at again in half a minute", entry.id, status)
        return status != "stale"

    def _enqueue(self, stored: StoredEntry, entry: Entry, tick: Tick) -> tuple[str, int, int]:
        return self._broker.cron_tick(stored, tick, entry.job, entry.queue, new_nonce(), overlap=entry.overlap)

    def _put_off(self, stored: StoredEntry, why: str) -> bool:
        try:
            told = self._link.attempt(refusable(lambda: self._broker.cron_fault(stored, why[:1000])))
        except CallRefused as error:
            told, why = True, f"{why}, nor can it be put off: {error}"
        if told:  # else another scheduler has logged it, or the entry has changed
            again = "looked at again in half a minute" if stored.rev else "nothing is left of it, it has to be declared again"
            self._log.error("cron entry %s %s; %s", stored.id, one_line(why), again)
        return told

    def _entry(self, stored: StoredEntry) -> Entry:
        """Return the parsed entry, cached by revision."""
        known = self._known.get(stored.id)
        if known is None or known[0] != stored.rev:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            known = self._known[stored.id] = (stored.rev, Entry.of(stored.id, stored.plan, stored.spec))
        return known[1]

    def _report(self, entry: Entry, tick: Tick, enqueued: int, skipped: int) -> None:
        if tick.missed:
            until = f"before {_shown(tick.runs[0][0])}" if tick.runs else f"up to {_shown(tick.upto)}"
            self._log.warning("cron entry %s: %d tick(s) %s missed", entry.id, tick.missed, until)
        if enqueued:
            up_to = "" if len(tick.runs) == 1 else "ticks up to "
            self._log.info("cron entry %s: %d job(s) for %s%s", entry.id, enqueued, up_to, _shown(tick.upto))
        if skipped:
            self._log.info("cron entry %s: %d tick(s) skipped, a job of it has not ended", entry.id, skipped)


def _shown(tick: int) -> str:
    return datetime.fromtimestamp(tick, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
