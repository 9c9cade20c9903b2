"""The interface between an outbox and its database: four kinds of statement on three tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

#: `rows`: the jobs. `queues`: the progress of the batches of each queue. `forwarders`: one row, the present forwarder.
Table = Literal["rows", "queues", "forwarders"]
#: Column -> value; `<column>__in`, `__gt`, `__gte`, `__lt`, `__lte` for other comparisons. None: IS NULL.
Where = Mapping[str, Any]

#: The states of a row.
WAITING, BATCHED, TAKEN_OUT, SENT, PARKED = range(5)


class Database(Protocol):
    """A connection of its own to the database with the tables. Raises the errors of its driver or framework as they come."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Commit the changes made inside; roll them back if that raises."""
        ...

    def select(
        self, table: Table, where: Where, columns: Sequence[str], *, order: Sequence[str] = ("id",), limit: int | None = None
    ) -> list[tuple[Any, ...]]:
        """Return these columns of the rows that match, in this order."""
        ...

    def insert(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        ...

    def update(self, table: Table, where: Where, values: Mapping[str, Any]) -> int:
        """Change the rows that match; returns how many."""
        ...

    def delete(self, table: Table, where: Where) -> int:
        """Delete the rows that match; returns how many."""
        ...

    def count(self, table: Table, where: Where) -> int:
        """Return how many rows match."""
        ...

    def has_tables(self) -> bool:
        """Return True if all three tables exist."""
        ...

    def is_outage(self, error: Exception) -> bool:
        """Return True if the error means that the database can't be reached, or refuses for now."""
        ...

    def is_conflict(self, error: Exception) -> bool:
        """Return True if the error means that an inserted row exists already."""
        ...

    def reset(self) -> None:
        """Drop the connection after an error: it may be broken."""
        ...
