"""Change the priority of signed jobs: check the old signature and make a new one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fusion.exceptions import DeserializationError
from fusion.kernel.compression import plain
from fusion.kernel.signing import COVERED, LATER, SIGNATURE
from fusion.store.layout.codec import text
from fusion.store.read.inspector import Inspector
from fusion.store.write.operation_broker import Move

if TYPE_CHECKING:
    from fusion.kernel.signing import Keyring

_FIELDS = (*COVERED, *LATER, SIGNATURE, "priority", "origin")


def moves(inspector: Inspector, keyring: Keyring | None, ids: Sequence[str], priority: int) -> list[Move]:
    """Return what `reprioritise` needs of each job: the signature as read, and the new one. A signed job is refused, with a word for the
    reason, if this process has no keys or its signature is wrong."""
    rows = inspector.table(ids, _FIELDS)
    return [
        Move(job_id) if isinstance(row, Exception) else _move(keyring, job_id, row, priority)
        for job_id, row in zip(ids, rows, strict=True)
    ]


def _move(keyring: Keyring | None, job_id: str, row: dict[str, bytes | None], priority: int) -> Move:
    old = text(row[SIGNATURE])
    if not old:
        return Move(job_id)
    if keyring is None:
        return Move(job_id, old, "!keyless")
    queue = text(row["origin"])
    stored = {name.encode(): value for name, value in row.items() if value is not None}
    if keyring.flaw(job_id, queue, stored):
        return Move(job_id, old, "!flawed")
    fields: dict[str, Any] = dict(row)
    try:
        if row["data"] and row["serializer"] in (None, b"", b"json"):
            fields["data"] = plain(row["data"])
    except DeserializationError:
        return Move(job_id, old, "!flawed")
    return Move(job_id, old, keyring.sign(job_id, queue, priority, fields))
