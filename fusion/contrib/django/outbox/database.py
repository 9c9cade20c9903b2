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
    """The connection of this thread to the database of that alias. Django's errors come as they are."""

    def __init__(self, using: str = "default") -> None:
        self.using = using

    def _matching(self, table: Table, where: Where) -> Any:
        words = {
            (f"{name}__isnull" if value is None else name): (True if value is None else value) for name, value in where.items()
        }
        return _MODELS[table]._base_manager.using(self.using).filter(**words)

    def transaction(self) -> AbstractContextManager[Any]:
        """One of its own, or what is under way here."""
        reset_queries()  # with DEBUG it remembers what it did
        found: AbstractContextManager[Any] = transaction.atomic(self.using)
        return found

    def select(
        self, table: Table, where: Where, columns: Sequence[str], *, order: Sequence[str] = ("id",), limit: int | None = None
    ) -> list[tuple[Any, ...]]:
        """As `Database.select`."""
        return list(self._matching(table, where).order_by(*order).values_list(*columns)[:limit])

    def insert(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """As `Database.insert`."""
        model = _MODELS[table]
        model._base_manager.using(self.using).bulk_create([model(**row) for row in rows])

    def update(self, table: Table, where: Where, values: Mapping[str, Any]) -> int:
        """As `Database.update`."""
        return int(self._matching(table, where).update(**values))

    def delete(self, table: Table, where: Where) -> int:
        """As `Database.delete`; by one statement."""
        matching = self._matching(table, where)
        return int(matching._raw_delete(self.using))

    def count(self, table: Table, where: Where) -> int:
        """As `Database.count`."""
        return int(self._matching(table, where).count())

    def has_tables(self) -> bool:
        """As `Database.has_tables`."""
        there = connections[self.using].introspection.table_names()
        return all(model._meta.db_table in there for model in _MODELS.values())

    def is_outage(self, error: Exception) -> bool:
        """As `Database.is_outage`."""
        return isinstance(error, (OperationalError, InterfaceError))

    def is_conflict(self, error: Exception) -> bool:
        """As `Database.is_conflict`."""
        return isinstance(error, IntegrityError)

    def reset(self) -> None:
        """The next statement makes a new connection."""
        connections[self.using].close()
