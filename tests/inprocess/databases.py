"""Databases that tests of a TablePlan have for themselves: SQLite, and a real PostgreSQL without a network.

PostgreSQL: Debian's package `postgresql`, or FUSION_TEST_POSTGRES=/path/to/its/bin.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fusion.inprocess import TablePlan, TableSettings
from fusion.store.redis_server.instance import _death_pact
from tests.architecture.source import ROOT
from tests.kit.waiting import eventually


class Sqlite:
    """A file."""

    placeholder = "?"

    def __init__(self, file: Path) -> None:
        #: What makes a connection, as an expression for another process that has imported partial.
        self.code = f"partial(__import__('sqlite3').connect, {str(file)!r})"
        self.connect: Any = partial(sqlite3.connect, file)

    def plan(self, function: Any = lambda row: row.payload, **options: Any) -> TablePlan:
        plan = TablePlan(self.connect, function, TableSettings(placeholder=self.placeholder, **options))
        self.make(plan)
        return plan

    def make(self, plan: TablePlan) -> None:
        """Make the table, if it is not there."""
        plan.create_table()

    def rows(self, columns: str = "state, is_currently_running, result") -> list[tuple[Any, ...]]:
        with closing(self.connect()) as connection:
            cursor = connection.cursor()
            cursor.execute(f"SELECT {columns} FROM execution_plan ORDER BY id")
            return [tuple(row) for row in cursor.fetchall()]

    def change(self, statement: str, *values: Any) -> None:
        with closing(self.connect()) as connection:
            connection.cursor().execute(statement.replace("?", self.placeholder), values)
            connection.commit()


def programs() -> Path | None:
    """The directory of PostgreSQL's programs, of the newest there is."""
    if named := os.environ.get("FUSION_TEST_POSTGRES"):
        return Path(named)
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("postgres")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


class PostgresServer:
    """On a socket in a directory of its own. Skips the test where there is none."""

    def __init__(self) -> None:
        directory = programs()
        if directory is None:
            pytest.skip("there is no PostgreSQL: apt-get install postgresql")
        self.home = Path(tempfile.mkdtemp(prefix="fus", dir="/tmp"))
        #: It refuses to run as root.
        self._user: dict[str, Any] = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        if self._user:
            about = pwd.getpwnam("postgres")
            os.chown(self.home, about.pw_uid, about.pw_gid)
        data = self.home / "data"
        command = [directory / "initdb", "--pgdata", data, "--username", "fusion", "--auth", "trust", "--no-sync", "--no-locale"]
        made = subprocess.run([*command, "--encoding", "UTF8"], capture_output=True, text=True, cwd=self.home, **self._user)
        assert made.returncode == 0, made.stderr
        self._command = [directory / "postgres", "-F", "-D", data, "-k", self.home, "-c", "listen_addresses="]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.home,
            preexec_fn=_death_pact(),
            **self._user,
        )

    def stop(self) -> None:
        """At once, connections and all; what was committed is there after `start`."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(30)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.home, ignore_errors=True)


class Postgres(Sqlite):
    """A table of its own, as docs/inprocess.md has it, in a server that is there already."""

    placeholder = "%s"

    def __init__(self, server: PostgresServer) -> None:
        psycopg = pytest.importorskip("psycopg", exc_type=ImportError)
        options = {"host": str(server.home), "user": "fusion", "dbname": "postgres"}
        self.code = f"partial(__import__('psycopg').connect, **{options!r})"
        self.connect = partial(psycopg.connect, **options)
        self._not_yet = psycopg.OperationalError
        eventually(self._answers, why="PostgreSQL answers")
        self.change("DROP TABLE IF EXISTS execution_plan")

    def _answers(self) -> bool:
        try:
            self.connect().close()
        except self._not_yet:
            return False
        return True

    def make(self, plan: TablePlan) -> None:
        page = (ROOT / "docs" / "inprocess.md").read_text()
        with closing(self.connect()) as connection:
            connection.cursor().execute(page.split("```sql\n")[1].split("```")[0])
            connection.commit()
