"""A plan in a database table, for any driver of the DB-API (PEP 249)."""

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
from fusion.inprocess.owner import PlanOwner, host_name

log = logging.getLogger("fusion.inprocess")

#: The table in SQLite's SQL; other databases need their own way to number rows.
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
    """A row that the function of a TablePlan receives. `attempts`: the number of earlier runs."""

    id: Any
    name: str
    payload: Any
    attempts: int


@dataclass(frozen=True)
class TableSettings:
    """Settings of a TablePlan. ValueError if one is invalid."""

    #: The table's name, with or without a schema and a dot before it.
    table: str = "execution_plan"
    #: `?` or `%s`, by the driver's `paramstyle` (qmark; format, pyformat).
    placeholder: str = "?"
    #: Most rows of one fetch.
    limit: int = 1000
    #: A row with this many attempts is not fetched again, and stays Pending with its error; None = no limit.
    max_attempts: int | None = None
    #: A name that no other process has at the same time. Rows that an earlier process of this name left, in another container or on another
    #: host, are given back, too. None: only rows left on this host.
    owner: str | None = None
    #: Seconds after which a running row counts as abandoned, whatever its owner: more than any job takes.
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

    A claim is one UPDATE, so each row belongs to one manager. It stores owner and `running_since`: each fetch gives back the rows of dead
    processes.
    """

    def __init__(self, connect: Callable[[], Any], function: Callable[[Row], Any], settings: TableSettings | None = None) -> None:
        """`connect` returns a connection, which is closed after each call. If connecting is slow, use one from a pool.

        ValueError if the owner's name is invalid.
        """
        self._connect, self._function = connect, function
        self._settings = settings or TableSettings()
        #: Owner by pid: a forked process is another owner.
        self._owners = {os.getpid(): self._own()}

    def create_table(self) -> None:
        """Create the table with SQLite's SQL, if it does not exist."""
        with self._cursor() as cursor:
            cursor.execute(TABLE.format(table=self._settings.table))

    def add(self, name: str, payload: Any = None) -> Any:
        """Add a row. Return its id, None if the driver does not report it. TypeError if the payload can't be encoded as JSON."""
        text, insert = json.dumps(payload), "INSERT INTO {table} (name, payload) VALUES (?, ?)"
        with self._cursor() as cursor:
            if hasattr(cursor, "lastrowid"):
                self._run(cursor, insert, name, text)
                return cursor.lastrowid or None
            self._run(cursor, f"{insert} RETURNING id", name, text)  # psycopg
            return cursor.fetchone()[0]

    # -- called by a manager

    def fetch_ready(self) -> list[ReadyJob]:
        """Give back the rows of dead owners, then return the Pending rows: those with the fewest attempts first, the oldest first among
        these."""
        with self._cursor() as cursor:
            self._give_back(cursor)
            most = self._settings.max_attempts
            attempts = "" if most is None else f" AND attempts < {most}"
            ready = "SELECT id, name, payload, attempts FROM {table} WHERE state = 'pending' AND is_currently_running = 0"
            self._run(cursor, f"{ready}{attempts} ORDER BY attempts, id")
            return [ReadyJob(row[0], str(row[1]), partial(self._perform, *row)) for row in cursor.fetchmany(self._settings.limit)]

    def is_currently_running(self, job_id: Any) -> bool:
        """Return the row's flag; False if the row is gone."""
        with self._cursor() as cursor:
            self._run(cursor, "SELECT is_currently_running FROM {table} WHERE id = ?", job_id)
            row = cursor.fetchone()
            return bool(row and row[0])

    def mark_running(self, job_id: Any) -> bool:
        """Claim the row. False if another owner has it, or it is Complete or gone."""
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

    # -- internals

    @property
    def owner(self) -> PlanOwner:
        """The owner that this plan writes into claimed rows; a forked process gets another one."""
        pid = os.getpid()
        if pid not in self._owners:  # if several threads get here, the first one's owner counts
            self._owners.setdefault(pid, self._own())
        return self._owners[pid]

    def _own(self) -> PlanOwner:
        return PlanOwner.here(self._settings.owner or host_name())

    def _perform(self, row_id: Any, name: str, payload: str | None, attempts: int) -> Any:
        result = self._function(Row(row_id, name, None if payload is None else json.loads(payload), attempts))
        try:
            json.dumps(result)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"the result is not JSON and can't be stored: {error}; return texts, numbers, lists and dicts"
            ) from error
        return result

    def _give_back(self, cursor: Any) -> None:
        """Free rows whose owners have died, or that have run for too long."""
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
        owner, own = PlanOwner.read(text), self.owner
        if owner is None:
            return False
        if owner.place == own.place:
            return owner.is_dead
        return owner.name == self._settings.owner

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        """Open a connection and yield its cursor. Commit at the end, or roll back after an error."""
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
    """Return now, or `seconds` later, as a text that sorts by time."""
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S")
