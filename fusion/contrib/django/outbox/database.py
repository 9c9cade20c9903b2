"""An outbox in a database of a Django project, through its models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from django.db import IntegrityError, InterfaceError, OperationalError, connections, reset_queries, transaction

from fusion.contrib.django.outbox.models import OutboxForwarder, OutboxQueue, OutboxRow
from fusion.contrib.outbox.database import Table, Where

_MODELS: dict[Table, Any] = {"rows": OutboxRow, "queues": OutboxQueue, "forwarders": OutboxForwarder}


class DjangoDatabase:
    """The connection of this thread to the database of that alias. Raises Django's errors as they come."""

    def __init__(self, using: str = "default") -> None:
        self.using = using

    def _matching(self, table: Table, where: Where) -> Any:
        words = {
            (f"{name}__isnull" if value is None else name): (True if value is None else value) for name, value in where.items()
        }
        return _MODELS[table]._base_manager.using(self.using).filter(**words)

    def transaction(self) -> AbstractContextManager[Any]:
        """Open a transaction, or join the one that is open here."""
        reset_queries()  # with DEBUG it would keep all queries
        found: AbstractContextManager[Any] = transaction.atomic(self.using)
        return found

    def select(
        self, table: Table, where: Where, columns: Sequence[str], *, order: Sequence[str] = ("id",), limit: int | None = None
    ) -> list[tuple[Any, ...]]:
        """Do as `Database.select` does."""
        return list(self._matching(table, where).order_by(*order).values_list(*columns)[:limit])

    def insert(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Do as `Database.insert` does."""
        model = _MODELS[table]
        model._base_manager.using(self.using).bulk_create([model(**row) for row in rows])

    def update(self, table: Table, where: Where, values: Mapping[str, Any]) -> int:
        """Do as `Database.update` does."""
        return int(self._matching(table, where).update(**values))

    def delete(self, table: Table, where: Where) -> int:
        """Do as `Database.delete` does, in one statement."""
        matching = self._matching(table, where)
        return int(matching._raw_delete(self.using))

    def count(self, table: Table, where: Where) -> int:
        """Do as `Database.count` does."""
        return int(self._matching(table, where).count())

    def has_tables(self) -> bool:
        """Do as `Database.has_tables` does."""
        there = connections[self.using].introspection.table_names()
        return all(model._meta.db_table in there for model in _MODELS.values())

    def is_outage(self, error: Exception) -> bool:
        """Do as `Database.is_outage` does."""
        return isinstance(error, (OperationalError, InterfaceError))

    def is_conflict(self, error: Exception) -> bool:
        """Do as `Database.is_conflict` does."""
        return isinstance(error, IntegrityError)

    def reset(self) -> None:
        """Close the connection: the next statement makes a new one."""
        connections[self.using].close()
