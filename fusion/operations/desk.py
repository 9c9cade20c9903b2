"""Start, list and cancel bulk operations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from secrets import token_hex

from redis import Redis

from fusion.exceptions import FusionError
from fusion.operations.plan import Plan
from fusion.operations.record import Operation
from fusion.settings import get_settings
from fusion.store.access import broker_of, operation_inspector_of


class TooManyOperations(FusionError):
    """As many operations run as may."""


def begin(
    connection: Redis,
    plan: Plan,
    by: str,
    total: int,
    within: Sequence[str] | None = None,
    *,
    operation: str = "",
    nonce: str = "",
) -> str:
    """Write an operation down; returns its id. From then on any worker or scheduler carries it on. `within`: the queues to which whoever began it
    is restricted. `operation`: the id that it gets, unless there is one of that id, which stays as it is; `nonce`: what tells the two apart.
    Raises TooManyOperations."""
    operation = operation or token_hex(6)
    fields = plan.record(by, total, get_settings().keyring is not None)
    fields["nonce"] = nonce or None
    fields["within"] = None if within is None else json.dumps(within)
    ok, told = broker_of(connection).open_operation(operation, fields)
    if not ok:
        raise TooManyOperations(
            f"{told} operations run, no more may: wait, or cancel one (`operations list`, `operations cancel ID`)"
        )
    return operation


def listed(connection: Redis, offset: int, limit: int) -> tuple[list[Operation], int]:
    """A page of operations, those that run first, and how many there are."""
    inspector = operation_inspector_of(connection)
    ids = inspector.listed(offset, limit)
    now, rows = inspector.records(ids)
    return [Operation.of(one, row, now) for one, row in zip(ids, rows, strict=True) if row], inspector.count()


def find(connection: Redis, operation: str) -> Operation | None:
    """One operation; None if there is none of this id."""
    now, (row,) = operation_inspector_of(connection).records([operation])
    return Operation.of(operation, row, now) if row else None


def has_carriers(connection: Redis) -> bool:
    """True if somebody lives who carries on what others left."""
    return operation_inspector_of(connection).has_carriers()
