"""A plan in a table of a database, by any driver of the DB-API (PEP 249)."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import Any

from fusion.inprocess.job import ReadyJob
from fusion.inprocess.owner import Owner, host_name

log = logging.getLogger("fusion.inprocess")

#: The table, as SQLite has it; other databases want their own way of numbering rows.
TABLE = """
CREATE TABLE IF NOT EXISTS {table} (
    id                   INTEGER PRIMARY KEY,
    name                 TEXT NOT NULL,
    payload              TEXT,                            -- JSON, for the function
    state                TEXT NOT NULL DEFAULT 'pending', -- or complete
    is_currently_running INTEGER NOT NULL DEFAULT 0,
    owner                TEXT,                            -- who runs it, or completed it
    running_since        TEXT,                            -- UTC
    attempts             INTEGER NOT NULL DEFAULT 0,
    result               TEXT,                            -- JSON
    error                TEXT,                            -- of the last run that failed
    completed_at         TEXT                             -- UTC
)
"""


@dataclass(frozen=True)
class Row:
    """A row as the function of a TablePlan gets it. `attempts` counts the runs before this one."""

    id: Any
    name: str
    payload: Any
    attempts: int


@dataclass(frozen=True)
class TableSettings:
    """Names of a TablePlan's table, and how it goes about that. ValueError if one can't be used."""

    #: The table's name, with a schema and a dot before it or not.
    table: str = "execution_plan"
    #: `?` or `%s`, as the driver's `paramstyle` says (qmark; format, pyformat).
    placeholder: str = "?"
    #: Rows of one fetch at most.
    limit: int = 1000
    #: A row that was begun so often is not fetched again, and stays Pending with its error; None = any number.
    max_attempts: int | None = None
    #: A name that no other process has at the same time. What one of this name left in another container or on another host is given back,
    #: too; None: what was left on this host alone.
    owner: str | None = None
    #: Seconds after which a row counts as left behind, whoever has it: more than any job takes.
    stale_after: float | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", self.table, re.ASCII):
            raise ValueError(
                f"table is {self.table!r}; use a name of letters, digits and _, with a schema and a dot before it or not"
            )
        if self.placeholder not in ("?", "%s"):
            raise ValueError(f"placeholder is {self.placeholder!r}; use ? or %s, whichever the driver takes")
        for name in ("limit", "max_attempts"):
            value = getattr(self, name)
            if (value is not None or name == "limit") and (type(value) is not int or value < 1):
                raise ValueError(f"{name} is {value!r}; use a whole number from 1 on")
        if self.stale_after is not None and not self.stale_after > 0:
            raise ValueError(f"stale_after is {self.stale_after!r}; use seconds, more than any job takes")


class TablePlan:
    """The rows of a table as jobs, each run by `function(row)`; several managers, processes and hosts may share the table.

    A claim is one UPDATE, so each row is one manager's. It notes owner and `running_since`: each fetch gives back what was claimed by a
    process that has died since.
    """

    def __init__(self, connect: Callable[[], Any], function: Callable[[Row], Any], settings: TableSettings | None = None) -> None:
        """`connect` gives a connection, which is closed after each call: that of a pool, where connecting is dear.

        ValueError if the owner's name can't be used.
        """
        self._connect, self._function = connect, function
        self._settings = settings or TableSettings()
        #: By process: one that was forked is another owner.
        self._owners = {os.getpid(): self._own()}

    def create_table(self) -> None:
        """Make the table, in SQLite's words, if it is not there."""
        with self._cursor() as cursor:
            cursor.execute(TABLE.format(table=self._settings.table))

    def add(self, name: str, payload: Any = None) -> Any:
        """A new row. Returns its id, None if the driver does not tell. TypeError if the payload is no JSON."""
        text, insert = json.dumps(payload), "INSERT INTO {table} (name, payload) VALUES (?, ?)"
        with self._cursor() as cursor:
            if hasattr(cursor, "lastrowid"):
                self._run(cursor, insert, name, text)
                return cursor.lastrowid or None
            self._run(cursor, f"{insert} RETURNING id", name, text)  # psycopg
            return cursor.fetchone()[0]

    # -- what a manager asks

    def fetch_ready(self) -> list[ReadyJob]:
        """The rows that are Pending: those that were tried least, the oldest first. Before that, rows of dead owners are given back."""
        with self._cursor() as cursor:
            self._give_back(cursor)
            most = self._settings.max_attempts
            attempts = "" if most is None else f" AND attempts < {most}"
            ready = "SELECT id, name, payload, attempts FROM {table} WHERE state = 'pending' AND is_currently_running = 0"
            self._run(cursor, f"{ready}{attempts} ORDER BY attempts, id")
            return [ReadyJob(row[0], str(row[1]), partial(self._perform, *row)) for row in cursor.fetchmany(self._settings.limit)]

    def is_currently_running(self, job_id: Any) -> bool:
        """The row's flag; False if the row is gone."""
        with self._cursor() as cursor:
            self._run(cursor, "SELECT is_currently_running FROM {table} WHERE id = ?", job_id)
            row = cursor.fetchone()
            return bool(row and row[0])

    def mark_running(self, job_id: Any) -> bool:
        """Claim the row; False if somebody else has, or it is Complete or gone."""
        with self._cursor() as cursor:
            claim = "UPDATE {table} SET is_currently_running = 1, owner = ?, running_since = ?, attempts = attempts + 1"
            where = " WHERE id = ? AND state = 'pending' AND is_currently_running = 0"
            self._run(cursor, claim + where, str(self.owner), _utc(), job_id)
            return bool(cursor.rowcount == 1)

    def mark_complete(self, job_id: Any, result: Any) -> None:
        """Store the result and free the row."""
        with self._cursor() as cursor:
            done = "UPDATE {table} SET state = 'complete', is_currently_running = 0, result = ?, error = NULL, completed_at = ?"
            self._run(cursor, done + " WHERE id = ? AND owner = ?", json.dumps(result), _utc(), job_id, str(self.owner))
            if cursor.rowcount == 0:
                table = self._settings.table
                log.error("row %r of %s was given to another owner while it ran here: its result is dropped", job_id, table)

    def mark_pending(self, job_id: Any, error: str) -> None:
        """Store the error and free the row."""
        with self._cursor() as cursor:
            free = "UPDATE {table} SET is_currently_running = 0, owner = NULL, running_since = NULL, error = ?"
            self._run(cursor, free + " WHERE id = ? AND owner = ? AND state = 'pending'", error, job_id, str(self.owner))

    # -- how

    @property
    def owner(self) -> Owner:
        """The name that this plan writes into the rows that it claims; another one in a process that was forked."""
        pid = os.getpid()
        if pid not in self._owners:  # of several threads that find so the first one's counts
            self._owners.setdefault(pid, self._own())
        return self._owners[pid]

    def _own(self) -> Owner:
        return Owner.here(self._settings.owner or host_name())

    def _perform(self, row_id: Any, name: str, payload: str | None, attempts: int) -> Any:
        result = self._function(Row(row_id, name, None if payload is None else json.loads(payload), attempts))
        try:
            json.dumps(result)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"the result is no JSON, and can't be stored: {error}; return texts, numbers, lists and dicts"
            ) from error
        return result

    def _give_back(self, cursor: Any) -> None:
        """Free rows whose owners have died, or that have been running for too long."""
        table, stale_after = self._settings.table, self._settings.stale_after
        self._run(cursor, "SELECT DISTINCT owner FROM {table} WHERE is_currently_running = 1 AND owner IS NOT NULL")
        free = (
            "UPDATE {table} SET is_currently_running = 0, owner = NULL, running_since = NULL WHERE is_currently_running = 1 AND "
        )
        for (text,) in cursor.fetchall():
            if self._is_gone(text):
                self._run(cursor, free + "owner = ?", text)
                log.warning("%d rows of %s are Pending again: %s, which ran them, has died", cursor.rowcount, table, text)
        if stale_after is not None:
            self._run(cursor, free + "running_since < ?", _utc(-stale_after))
            if cursor.rowcount > 0:
                log.warning("%d rows of %s are Pending again: they ran for over %g s", cursor.rowcount, table, stale_after)

    def _is_gone(self, text: str) -> bool:
        owner, own = Owner.read(text), self.owner
        if owner is None:
            return False
        if owner.place == own.place:
            return owner.is_dead
        return owner.name == self._settings.owner

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """A cursor of a connection of its own, whose work is committed, or undone if it raises."""
        connection = self._connect()
        try:
            cursor = connection.cursor()
            try:
                yield cursor
            except BaseException:
                connection.rollback()
                raise
            connection.commit()
        finally:
            connection.close()

    def _run(self, cursor: Any, statement: str, *values: Any) -> None:
        settings = self._settings
        cursor.execute(statement.replace("{table}", settings.table).replace("?", settings.placeholder), values)


def _utc(seconds: float = 0) -> str:
    """Now, or so many seconds later, as a text whose order is that of time."""
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
