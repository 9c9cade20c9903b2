"""What an outbox asks of a database: four kinds of statement on three tables, whoever makes the SQL of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, Protocol

#: `rows`: the jobs. `queues`: how far the batches of each queue are. `forwarders`: one row, who forwards now.
Table = Literal["rows", "queues", "forwarders"]
#: Column -> value; `<column>__in`, `__gt`, `__gte`, `__lt`, `__lte` for others than equal ones. None: IS NULL.
Where = Mapping[str, Any]

#: What can be the state of a row.
WAITING, BATCHED, TAKEN_OUT, SENT, PARKED = range(5)


class Database(Protocol):
    """A connection of its own to the database that has the tables. Errors are those of its driver or framework, as they come."""

    def transaction(self) -> AbstractContextManager[Any]:
        """Commit what is done inside; roll it back if that raises."""
        ...

    def select(
        self, table: Table, where: Where, columns: Sequence[str], *, order: Sequence[str] = ("id",), limit: int | None = None
    ) -> list[tuple[Any, ...]]:
        """These columns of the rows that match, in this order."""
        ...

    def insert(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        ...

    def update(self, table: Table, where: Where, values: Mapping[str, Any]) -> int:
        """Change the rows that match; how many did."""
        ...

    def delete(self, table: Table, where: Where) -> int:
        """Delete the rows that match; how many did."""
        ...

    def count(self, table: Table, where: Where) -> int:
        """How many rows match."""
        ...

    def has_tables(self) -> bool:
        """All three are there."""
        ...

    def is_outage(self, error: Exception) -> bool:
        """The database can't be reached, or refuses for now."""
        ...

    def is_conflict(self, error: Exception) -> bool:
        """An insert met a row that is there already."""
        ...

    def reset(self) -> None:
        """After an error: let go of the connection, it may be broken."""
        ...
