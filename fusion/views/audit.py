"""A requested change, as every interface shows it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from fusion.views.base import View, part, public, view

if TYPE_CHECKING:
    from typing import Self

    from fusion.store.read.audit_inspector import AuditEntry


@part
class ChangeView(View):
    """An entry of the audit."""

    id: str = public("Its id.")
    at: datetime = public("When it was requested.", column="AT")
    who: str = public("Who asked.", column="WHO")
    action: str = public("The requested action.", column="ACTION")
    target: str | None = public("The job, queue ... that it was about.", column="WHAT")
    queues: list[str] = public("The queues that it was about, as far as they were known.")
    outcome: str | None = public("`ok`, or why it failed; null: no answer yet, or the process was killed.", column="OUTCOME")
    ended_at: datetime | None = public("When it ended.")
    count: int | None = public("How many jobs or other things it changed.", column="COUNT")
    details: dict[str, str] = public("Further details of the request.", column="DETAILS")

    @classmethod
    def of(cls, entry: AuditEntry) -> Self:
        """Make the view of an entry."""
        from fusion.store.read.audit_inspector import NO_ANSWER

        return cls(
            id=entry.id,
            at=entry.at,
            who=entry.who,
            action=entry.action,
            target=entry.target or None,
            queues=list(entry.queues),
            outcome=None if entry.outcome == NO_ANSWER else entry.outcome,
            ended_at=entry.ended_at,
            count=entry.count,
            details=dict(entry.details),
        )


@view
class AuditView(View):
    """A page of the audit."""

    entries: list[ChangeView] = public("The newest first.")
    after: str | None = public("For the next page; null at the end.")
    missing: int | None = public("Entries that were removed from the audit; null to a token for some queues.")
