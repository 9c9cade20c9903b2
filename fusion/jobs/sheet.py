"""All details of one job, for `job show` and GET /api/v1/jobs/{id}. This module never loads a pickle or imports a task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fusion.exceptions import NoSuchJobError
from fusion.jobs.failures import function_of
from fusion.jobs.fields import JobFields
from fusion.jobs.timeline import TimelineStep, timeline
from fusion.jobs.visible import QUEUES, seen
from fusion.jobs.waiting import Wait, is_seen, waits
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.kernel.signing import as_claimed
from fusion.settings import get_settings
from fusion.status import TERMINAL
from fusion.store.layout.codec import text
from fusion.store.query.rows import entered_at

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from fusion.store.read.job_facts import JobFacts, Kin
    from fusion.store.read.sheet_inspector import SheetInspector


@dataclass(frozen=True, slots=True)
class SignatureCheck:
    """The state of a job's signature: `signed`, `unsigned`, `bad`, or `unchecked` if this process has no keys. `why`: what is wrong with
    the signature."""

    state: str
    why: str = ""


class Sheet(JobFields):
    """A job as it was when it was read, with its related jobs, keys and batch. `scope`: things of other queues are left out, and not counted."""

    def __init__(self, facts: JobFacts, scope: Scope = EVERYTHING) -> None:
        self.id, self.facts, self.scope = facts.id, facts, scope
        self._fields = dict(facts.row)

    @property
    def status(self) -> str:
        return self.facts.status

    @property
    def at(self) -> datetime:
        """The time of the read, by Redis's clock."""
        return self.facts.at

    @property
    def function(self) -> str:
        """The function that it calls; empty if the function can't be read."""
        return function_of(self.facts.row)

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def is_pickled(self) -> bool:
        return self._text("serializer", "json") not in ("", "json")

    @property
    def is_foreign(self) -> bool:
        """True if another program made it, such as stock RQ. Fusion's own records have an arrival number once they have waited or were claimed."""
        row = self.facts.row
        return "seq" not in row and "raw_id" not in row and ("success_callback_name" in row or self.facts.queue.ahead is None)

    @cached_property
    def steps(self) -> list[TimelineStep]:
        return timeline(self.facts, self.attempt_history)

    @property
    def entered_at(self) -> datetime | None:
        """The time at which it entered its state; None if unknown."""
        return entered_at(self.facts.row)

    @cached_property
    def waits(self) -> list[Wait]:
        return waits(self.facts, self.scope)

    @cached_property
    def signature(self) -> SignatureCheck:
        """The state of its signature, which is checked if this process has keys."""
        keyring = get_settings().keyring
        signed = "signature" in self.facts.row
        if keyring is None or "data" in self.facts.too_large:
            return SignatureCheck("unchecked" if signed else "unsigned")
        flaw = keyring.flaw(self.id, self.origin, as_claimed(self._fields))
        return SignatureCheck("signed") if not flaw else SignatureCheck("bad" if signed else "unsigned", flaw)

    def seen(self, *kin: Kin) -> list[Kin]:
        """Return those of these jobs that this scope may see. A job without a record belongs to no queue."""
        return [one for one in kin if is_seen(one, self.scope)]

    def other(self, name: str) -> str | None:
        """Return the id of the job that a field names; None if there is none, or this scope may not see it."""
        job_id = self._text(name).partition(" ")[0]
        known = self.facts.others.get(job_id)
        return job_id if known is not None and self.seen(known) else None

    @property
    def copies(self) -> list[Kin]:
        """The edited copies of it, the newest last."""
        ids = text(self.facts.row.get("copied_to")).split()
        return self.seen(*(self.facts.others[one] for one in ids if one in self.facts.others))


def sheet(
    inspector: SheetInspector, job_id: str, scope: Scope = EVERYTHING, *, stream: bool = True, more: Iterable[str] = ()
) -> Sheet:
    """Read a job in three or four round trips. Without `stream`, its events are not read, which is much cheaper. `more`: further fields of its
    record to read.

    NoSuchJobError if it has no record, or belongs to a queue outside of `scope`."""
    facts = inspector.facts(job_id, stream=stream, more=more)
    if facts is None or not seen(scope, {name: facts.row.get(name) for name in QUEUES}):
        raise NoSuchJobError(f"no job {job_id!r}: it never existed, was deleted, or its result_ttl is over")
    return Sheet(facts, scope)
