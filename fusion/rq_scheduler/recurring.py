"""A recurring job as `Scheduler` shows it, and when it comes: a cron entry of Fusion's."""

# mypy: disable-error-code="override"
# (RQ's signatures differ from those of the core.)

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any

from redis import Redis

import fusion.cron.scheduler
from fusion.cron.entry import Entry
from fusion.cron.plan import Plan
from fusion.exceptions import NoSuchEntryError, NoSuchJobError
from fusion.rq.hints import refused
from fusion.rq.job import Job
from fusion.rq.status import JobStatus

#: In `meta` of a recurring job, as rq-scheduler writes it.
INTERVAL, CRON = "interval", "cron_string"


class RecurringJob(Job):
    """A recurring job as `Scheduler` shows it. Each of its runs is a job of its own, with an id of its own."""

    @classmethod
    def of_entry(cls, entry: Entry, connection: Redis) -> RecurringJob:
        """Return what is shown of an entry."""
        stored = {**entry.job.fields, "status": "scheduled", "origin": entry.queue}
        fields = {name: value.encode() if isinstance(value, str) else value for name, value in stored.items()}
        made: Any = cls.of(entry.id, fields, connection)
        return made  # type: ignore[no-any-return]

    @property
    def _entries(self) -> fusion.cron.scheduler.Scheduler:
        return fusion.cron.scheduler.Scheduler(self.connection)

    def get_status(self, refresh: bool = True) -> JobStatus:
        """Return `scheduled`."""
        return JobStatus.SCHEDULED

    def refresh(self) -> None:
        """Read it again. NoSuchJobError if it was removed."""
        try:
            info = self._entries.get(self.id)
        except NoSuchEntryError as error:
            raise NoSuchJobError(error.text()) from None
        self._fields, self._meta = self.of_entry(Entry.of(info.id, info.plan, info.spec), self.connection)._fields, None

    def cancel(self, pipeline: Any = None, enqueue_dependents: bool = False, remove_from_dependencies: bool = False) -> str:
        """Remove it: it does not come again. Its last job stays."""
        self.delete()
        return "canceled"

    def delete(self, pipeline: Any = None, remove_from_queue: bool = True, delete_dependents: bool = False) -> None:
        """Remove it: it does not come again. Its last job stays."""
        with suppress(NoSuchEntryError):
            self._entries.remove(self.id)

    def save(self, pipeline: Any = None, include_meta: bool = True, include_result: bool = True) -> None:
        """Refuse: it is made in one step."""
        raise refused("save() of a recurring job", "call cron() or schedule() again with its id")

    save_meta = save


def recurring(connection: Redis) -> Iterator[tuple[float, RecurringJob]]:
    """Yield the recurring jobs that rq-scheduler's calls have made, each with its next time in Unix seconds."""
    for info in fusion.cron.scheduler.Scheduler(connection).entries():
        try:
            entry = Entry.of(info.id, info.plan, info.spec)
        except ValueError:
            continue  # of a newer version
        due = info.next if info.next is not None else entry.plan.after(int(time.time()))
        shown = RecurringJob.of_entry(entry, connection)
        if info.paused is None and due is not None and not {INTERVAL, CRON}.isdisjoint(shown.meta):
            yield due, shown


def nth_tick(plan: Plan, count: int) -> datetime:
    """Return the time of the plan's tick number `count` from now. ValueError if it has fewer."""
    tick: int | None = int(time.time())
    for _ in range(count):
        tick = None if tick is None else plan.after(tick)
    if tick is None or count < 1:
        raise ValueError(f"repeat={count}: use a whole number from 1 on, and no more than the expression has times")
    return datetime.fromtimestamp(tick, timezone.utc)


def local_zone() -> str:
    """Return the IANA name of this machine's zone. ValueError if it has none."""
    name = os.environ.get("TZ", "").removeprefix(":")
    if not name and os.path.exists("/etc/localtime"):
        name = os.path.realpath("/etc/localtime").partition("zoneinfo/")[2]
    if not name or name.startswith("/"):
        raise ValueError("this machine's zone has no name: set TZ, like TZ=Europe/Berlin, or use UTC")
    return name
