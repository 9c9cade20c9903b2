"""Start, list and cancel bulk operations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from secrets import token_hex

from redis import Redis

from fusion.exceptions import FusionError
from fusion.operations.plan import OperationPlan
from fusion.operations.record import Operation
from fusion.settings import get_settings
from fusion.store.access import broker_of, operation_inspector_of


class TooManyOperations(FusionError):
    """The limit of running operations is reached."""

    code = "FUS-127"


def begin(
    connection: Redis,
    plan: OperationPlan,
    by: str,
    total: int,
    within: Sequence[str] | None = None,
    *,
    operation: str = "",
    nonce: str = "",
) -> str:
    """Store an operation and return its id. From then on any worker or scheduler runs it. `within`: the queues to which its author is
    restricted. `operation`: the id to use; an operation that has this id already stays as it is. `nonce`: tells these two apart.
    Raises TooManyOperations."""
    operation = operation or token_hex(6)
    fields = plan.record(by, total, get_settings().keyring is not None)
    fields["nonce"] = nonce or None
    fields["within"] = None if within is None else json.dumps(within)
    ok, told = broker_of(connection).open_operation(operation, fields)
    if not ok:
        raise TooManyOperations(
            f"{told} operations run, which is the limit: wait, or cancel one (`operations list`, `operations cancel ID`)"
        )
    return operation


def listed(connection: Redis, offset: int, limit: int) -> tuple[list[Operation], int]:
    """Return a page of operations, running ones first, and the number of all operations."""
    inspector = operation_inspector_of(connection)
    ids = inspector.listed(offset, limit)
    now, rows = inspector.records(ids)
    return [Operation.of(one, row, now) for one, row in zip(ids, rows, strict=True) if row], inspector.count()


def find(connection: Redis, operation: str) -> Operation | None:
    """Return the operation with this id; None if there is none."""
    now, (row,) = operation_inspector_of(connection).records([operation])
    return Operation.of(operation, row, now) if row else None


def has_carriers(connection: Redis) -> bool:
    """Return True if a live process can resume abandoned operations."""
    return operation_inspector_of(connection).has_carriers()
