"""The sheet of a job: all that is known of it, for `job show` and GET /api/v1/jobs/{id}. Nothing here loads a pickle or imports a task."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from fusion.exceptions import NoSuchJobError
from fusion.jobs.failures import function_of
from fusion.jobs.fields import JobFields
from fusion.jobs.timeline import Step, timeline
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
    """What is known of a job's signature: `signed`, `unsigned`, `bad`, or `unchecked` where this process has no keys to check one by. `why`:
    what is wrong with it."""

    state: str
    why: str = ""


class Sheet(JobFields):
    """A job as it was when it was read, and what it is bound to. `scope`: what is of other queues is left out, and not counted."""

    def __init__(self, facts: JobFacts, scope: Scope = EVERYTHING) -> None:
        self.id, self.facts, self.scope = facts.id, facts, scope
        self._fields = dict(facts.row)

    @property
    def status(self) -> str:
        return self.facts.status

    @property
    def at(self) -> datetime:
        """When it was read, by Redis's clock."""
        return self.facts.at

    @property
    def function(self) -> str:
        """The function that it calls; empty if that can't be read."""
        return function_of(self.facts.row)

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL

    @property
    def is_pickled(self) -> bool:
        return self._text("serializer", "json") not in ("", "json")

    @property
    def is_foreign(self) -> bool:
        """It is another program's, stock RQ's perhaps: no record of ours is without an arrival number, once it was claimed or has waited."""
        row = self.facts.row
        return "seq" not in row and "raw_id" not in row and ("success_callback_name" in row or self.facts.queue.ahead is None)

    @cached_property
    def steps(self) -> list[Step]:
        return timeline(self.facts, self.attempt_history)

    @property
    def entered_at(self) -> datetime | None:
        """When it came into its state, as far as is known."""
        return entered_at(self.facts.row)

    @cached_property
    def waits(self) -> list[Wait]:
        return waits(self.facts, self.scope)

    @cached_property
    def signature(self) -> SignatureCheck:
        """Its signature, checked if this process has keys."""
        keyring = get_settings().keyring
        signed = "signature" in self.facts.row
        if keyring is None or "data" in self.facts.too_large:
            return SignatureCheck("unchecked" if signed else "unsigned")
        flaw = keyring.flaw(self.id, self.origin, as_claimed(self._fields))
        return SignatureCheck("signed") if not flaw else SignatureCheck("bad" if signed else "unsigned", flaw)

    def seen(self, *kin: Kin) -> list[Kin]:
        """Those that may be seen. One without a record belongs to no queue."""
        return [one for one in kin if is_seen(one, self.scope)]

    def other(self, name: str) -> str | None:
        """The job that a field names, if there is one and it may be seen."""
        job_id = self._text(name).partition(" ")[0]
        known = self.facts.others.get(job_id)
        return job_id if known is not None and self.seen(known) else None

    @property
    def copies(self) -> list[Kin]:
        """The edited copies that were made of it, the last of them last."""
        ids = text(self.facts.row.get("copied_to")).split()
        return self.seen(*(self.facts.others[one] for one in ids if one in self.facts.others))


def sheet(
    inspector: SheetInspector, job_id: str, scope: Scope = EVERYTHING, *, stream: bool = True, more: Iterable[str] = ()
) -> Sheet:
    """Read a job: three round trips, or four; without `stream` none of its events, which is much cheaper. `more`: further fields to read of its
    record.

    NoSuchJobError if there is no record of it, or it is of a queue outside of `scope`."""
    facts = inspector.facts(job_id, stream=stream, more=more)
    if facts is None or not seen(scope, {name: facts.row.get(name) for name in QUEUES}):
        raise NoSuchJobError(f"no job {job_id!r}: it never existed, was deleted, or its result_ttl is over")
    return Sheet(facts, scope)
