"""A deleted job, as every interface shows it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from fusion.kernel.redaction import masked_text
from fusion.kernel.timeutil import from_iso
from fusion.views.base import View, masked, part, public, view

if TYPE_CHECKING:
    from typing import Self

    from fusion.store.read.trash_inspector import TrashEntry


@part
class DeletedJobView(View):
    """A job in the trash."""

    id: str = public("The job.", column="ID")
    deleted_at: datetime = public("When it was deleted.", column="DELETED")
    until: datetime = public("When it is removed for good.", column="LEFT")
    status: str = public("The state that it was in.", column="STATE")
    queue: str = public("Its queue.", column="QUEUE")
    function: str | None = public("The function that it called.", column="FUNCTION")
    created_at: datetime | None = public("When it was made.")
    error_class: str | None = public("The class of its last error.")
    quarantined: str | None = masked("Why it was set aside.", masked_text)
    bytes: int = public("How large its record is.", unit="bytes")

    @classmethod
    def of(cls, entry: TrashEntry) -> Self:
        """Make the view of a job in the trash."""
        return cls(
            id=entry.id,
            deleted_at=entry.deleted_at,
            until=entry.until,
            status=entry.status,
            queue=entry.queue,
            function=entry.function or None,
            created_at=from_iso(entry.created_at),
            error_class=entry.error_class or None,
            quarantined=entry.quarantined or None,
            bytes=entry.bytes,
        )


@view
class TrashView(View):
    """A page of the trash."""

    jobs: list[DeletedJobView] = public("The most recently deleted first.")
    offset: int = public("How many were left out before these.")
    total: int | None = public("How many there are in all; null to a token for some queues.")
    bytes: int | None = public("Their total size; null to a token for some queues.", unit="bytes")


@view
class PurgedView(View):
    """The result of emptying the trash."""

    purged: int = public("Jobs that were removed for good.")


@view
class RestoredView(View):
    """A restored job."""

    job_id: str = public("The job.")
    restored: bool = public("True.")
    status: str = public("Its state.")
    queue: str = public("Its queue.")
