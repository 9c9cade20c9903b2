"""Batches as they are now: their progress and their members. Counts are O(1), members are read in pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fusion.kernel.states import ENDED
from fusion.kernel.timeutil import from_iso
from fusion.store.layout import codec
from fusion.store.read.base import InspectorBase, texts

#: How a member may have ended without finishing.
OUTCOMES = (*(state for state in ENDED if state != "finished"), "deleted")
#: Prefix of the id of a member that is itself a batch.
INNER = "#"


@dataclass(frozen=True, slots=True)
class BatchInfo:
    """A batch. Of its `total` members, jobs and batches, `open` have not ended. `outcomes` counts by name those that ended otherwise than
    finished; all others finished.

    `status`: `open` (it takes more), `running` (closed, and members are open), `canceled`, `success` (over, all members finished) or
    `complete` (over, and not all of them did). `ended_at`: when it was over for the first time; `success_at`: when all members had finished.
    `abandoned`: its producer did not close it; it was closed because no job was added for its `open_for`.
    """

    id: str
    name: str
    status: str
    total: int
    open: int
    finished: int
    outcomes: dict[str, int]
    created_at: datetime | None
    closed_at: datetime | None
    canceled_at: datetime | None
    ended_at: datetime | None
    success_at: datetime | None
    abandoned: bool
    parent: str | None
    on_complete: str | None
    on_success: str | None


class BatchInspector(InspectorBase):
    """Reads batches."""

    def count(self) -> int:
        """Return how many batches there are."""
        found: Any = self.connection.zcard(self.keys.batches)
        return int(found)

    def listed(self, offset: int = 0, limit: int = 100) -> list[BatchInfo]:
        """Return a page of the batches, the newest first."""
        found = self.infos(self._page(self.keys.batches, offset, limit, desc=True))
        return [info for info in found if info is not None]

    def info(self, batch: str) -> BatchInfo | None:
        """Return one batch; None if there is none of this id."""
        return self.infos([batch])[0]

    def infos(self, batches: Sequence[str]) -> list[BatchInfo | None]:
        """Return several batches, in one round trip."""
        keys = self.keys
        rows = self._batch(
            lambda pipe: [
                (
                    pipe.hgetall(keys.batch(batch)),
                    pipe.zcard(keys.batch_members(batch)),
                    pipe.scard(keys.batch_open(batch)),
                    pipe.hlen(keys.batch_ended(batch)),
                )
                for batch in batches
            ]
        )
        return [_info(batch, texts(rows[4 * i]), *rows[4 * i + 1 : 4 * i + 4]) for i, batch in enumerate(batches)]

    def page(self, batch: str, offset: int = 0, limit: int = 500) -> list[tuple[str, str]]:
        """Return members in the order in which they came, each with how it ended: `finished`, another of the outcomes, or `open`."""
        members = self._page(self.keys.batch_members(batch), offset, limit)
        if not members:
            return []
        left, ended = self._batch(
            lambda pipe: (
                pipe.smismember(self.keys.batch_open(batch), members),
                pipe.hmget(self.keys.batch_ended(batch), members),
            )
        )
        return [
            (member, "open" if is_open else codec.text(how, "finished"))
            for member, is_open, how in zip(members, left, ended, strict=True)
        ]


def _info(batch: str, fields: dict[str, str], total: int, left: int, otherwise: int) -> BatchInfo | None:
    if "created_at" not in fields:
        return None
    if "over" in fields:
        status = "canceled" if "canceled_at" in fields else "complete" if otherwise else "success"
    else:
        status = "canceled" if "canceled_at" in fields else "running" if "closed_at" in fields else "open"
    return BatchInfo(
        id=batch,
        name=fields.get("name", ""),
        status=status,
        total=total,
        open=left,
        finished=total - left - otherwise,
        outcomes={name: codec.number(fields.get(name)) for name in OUTCOMES},
        created_at=from_iso(fields["created_at"]),
        closed_at=from_iso(fields.get("closed_at")),
        canceled_at=from_iso(fields.get("canceled_at")),
        ended_at=from_iso(fields.get("ended_at")),
        success_at=from_iso(fields.get("success_at")),
        abandoned="closed_by" in fields,
        parent=fields.get("parent"),
        on_complete=fields.get("on_complete"),
        on_success=fields.get("on_success"),
    )
