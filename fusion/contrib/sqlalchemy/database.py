"""An outbox in a database that SQLAlchemy supports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import ColumnElement, and_, delete, func, insert, inspect, select, update
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import IntegrityError, InterfaceError, OperationalError

from fusion.contrib.outbox.database import Table, Where
from fusion.contrib.sqlalchemy.tables import OutboxTables

_COMPARED: dict[str, Any] = {
    "gt": lambda column, value: column > value,
    "gte": lambda column, value: column >= value,
    "lt": lambda column, value: column < value,
    "lte": lambda column, value: column <= value,
    "in": lambda column, value: column.in_(value),
}


class SqlalchemyDatabase:
    """A connection of its own of an engine. Raises SQLAlchemy's errors as they come."""

    def __init__(self, engine: Engine, tables: OutboxTables) -> None:
        self._engine, self._tables = engine, tables
        self._current: Connection | None = None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Do as `Database.transaction` does."""
        with self._engine.begin() as connection:
            self._current = connection
            try:
                yield
            finally:
                self._current = None

    def _run(self, statement: Any, rows: Any = None) -> Any:
        if self._current is not None:
            return self._current.execute(statement, rows)
        with self._engine.begin() as connection:
            found = connection.execute(statement, rows)
            return found.all() if found.returns_rows else found

    def _table(self, table: Table) -> Any:
        return getattr(self._tables, table)

    def _where(self, table: Table, where: Where) -> ColumnElement[bool]:
        found = []
        for words, value in where.items():
            name, _, how = words.partition("__")
            column = self._table(table).c[name]
            found.append(_COMPARED[how](column, value) if how else column.is_(None) if value is None else column == value)
        return and_(True, *found)

    def select(
        self, table: Table, where: Where, columns: Sequence[str], *, order: Sequence[str] = ("id",), limit: int | None = None
    ) -> list[tuple[Any, ...]]:
        """Do as `Database.select` does."""
        of = self._table(table).c
        statement = (
            select(*(of[name] for name in columns)).where(self._where(table, where)).order_by(*(of[name] for name in order))
        )
        return [tuple(row) for row in self._run(statement if limit is None else statement.limit(limit))]

    def insert(self, table: Table, rows: Iterable[Mapping[str, Any]]) -> None:
        """Do as `Database.insert` does."""
        self._run(insert(self._table(table)), [dict(row) for row in rows])

    def update(self, table: Table, where: Where, values: Mapping[str, Any]) -> int:
        """Do as `Database.update` does."""
        return int(self._run(update(self._table(table)).where(self._where(table, where)).values(**values)).rowcount)

    def delete(self, table: Table, where: Where) -> int:
        """Do as `Database.delete` does."""
        return int(self._run(delete(self._table(table)).where(self._where(table, where))).rowcount)

    def count(self, table: Table, where: Where) -> int:
        """Do as `Database.count` does."""
        statement = select(func.count()).select_from(self._table(table)).where(self._where(table, where))
        return int(self._run_scalar(statement))

    def _run_scalar(self, statement: Any) -> Any:
        return next(iter(self._run(statement)))[0]

    def has_tables(self) -> bool:
        """Do as `Database.has_tables` does."""
        with self._engine.connect() as connection:
            look = inspect(connection)
            tables = (self._tables.rows, self._tables.queues, self._tables.forwarders)
            return all(look.has_table(table.name, schema=table.schema) for table in tables)

    def is_outage(self, error: Exception) -> bool:
        """Do as `Database.is_outage` does."""
        return isinstance(error, (OperationalError, InterfaceError))

    def is_conflict(self, error: Exception) -> bool:
        """Do as `Database.is_conflict` does."""
        return isinstance(error, IntegrityError)

    def reset(self) -> None:
        """Empty the pool: its connections may be broken."""
        self._engine.dispose()
