"""What the tests of the outbox share: databases with its tables, and rows in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy
from redis import Redis

from fusion import Queue
from fusion.contrib.outbox.forwarder import Forwarder
from fusion.contrib.outbox.ledger import Ledger
from fusion.contrib.outbox.row import rows_of
from fusion.contrib.sqlalchemy.database import SqlalchemyDatabase
from fusion.contrib.sqlalchemy.tables import outbox_tables
from fusion.enqueue.call import PLAIN, Terms
from fusion.enqueue.sending import Chunk
from fusion.store.write.broker import Broker
from tests.inprocess.databases import PostgresServer
from tests.kit.waiting import eventually

TASK = "tests.jobs.basic.noop"


class Base:
    """A database with empty tables of an outbox."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.engine = sqlalchemy.create_engine(url)
        self.tables = outbox_tables()
        self._make()
        self.database = SqlalchemyDatabase(self.engine, self.tables)
        self.ledger = Ledger(self.database)

    def _make(self) -> None:
        def ready() -> bool:
            try:
                self.tables.rows.metadata.drop_all(self.engine)
                self.tables.rows.metadata.create_all(self.engine)
            except sqlalchemy.exc.OperationalError:
                return False
            return True

        eventually(ready, why="the database answers")

    def forwarder(self, conn: Redis, *, keep: float = 60.0, most: int = 100) -> Forwarder:
        return Forwarder(self.ledger, Broker(conn), keep=keep, most=most)

    def add(self, queue: str, *ids: str, now: float | None = None, terms: Terms = PLAIN, **options: Any) -> None:
        """Write a row for each of these, in one transaction."""
        datas = [Queue.prepare_data(TASK, job_id=job_id, **options) for job_id in ids]
        with self.engine.begin() as connection:
            for data in datas:
                connection.execute(sqlalchemy.insert(self.tables.rows), rows_of([Chunk.of(queue, [data], terms)], now))

    def column(self, name: str = "job_id", **where: Any) -> list[Any]:
        return [row[0] for row in self.database.select("rows", where, (name,))]


def sqlite(directory: Path) -> Base:
    return Base(f"sqlite:///{directory / 'outbox.sqlite3'}")


def postgres(server: PostgresServer) -> Base:
    return Base(f"postgresql+psycopg://fusion@/postgres?host={server.home}")


@contextmanager
def a_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        yield server
    finally:
        server.close()


def in_queue(conn: Redis, queue: str = "q") -> list[str]:
    """The ids that wait there, the next to run first."""
    found: Any = conn.zrevrange(f"rq:queue:{queue}", 0, -1)
    return [job_id.decode() for job_id in found]
