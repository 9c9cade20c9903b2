"""A database with an outbox whose parked rows strangers wrote."""

from __future__ import annotations

import atexit
import shutil
import tempfile

import sqlalchemy

from fusion.contrib.outbox.database import PARKED
from fusion.contrib.sqlalchemy.tables import outbox_tables
from tests.cli.test_output import EVIL


def database() -> str:
    """Its URL."""
    home = tempfile.mkdtemp(prefix="outbox")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    url = f"sqlite:///{home}/outbox.sqlite3"
    engine, tables = sqlalchemy.create_engine(url), outbox_tables()
    tables.rows.metadata.create_all(engine)
    row = {"queue": f"q{EVIL}", "job_id": EVIL[:100], "body": "{}", "written_at": 1.0, "state": PARKED, "reason": f"no{EVIL}"}
    with engine.begin() as connection:
        connection.execute(sqlalchemy.insert(tables.rows), row)
    engine.dispose()
    return url
