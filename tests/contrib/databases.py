"""What the shop keeps its rows in: files of SQLite, or a real PostgreSQL for the first of its two databases."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from asgiref.sync import sync_to_async

from tests.inprocess.databases import Postgres, PostgresServer

#: `FUSION_TEST_SHOP=postgresql`: all tests of the shop use one.
CHOSEN = os.environ.get("FUSION_TEST_SHOP", "sqlite")


@dataclass
class ShopDatabase:
    """The shop's first database. `env` says so to processes."""

    env: Mapping[str, str] = field(default_factory=dict)
    server: Postgres | None = None

    def use(self) -> None:
        """Be that of this process, where Django is set up, with its tables."""
        from django.contrib.contenttypes.models import ContentType
        from django.core.management import call_command
        from django.db import connections
        from django.db.utils import ConnectionHandler

        from tests.contrib.shop.settings import first_database

        wanted = ConnectionHandler({"default": first_database({**os.environ, **self.env})}).settings["default"]
        used = connections.settings["default"]
        if [used[name] for name in ("ENGINE", "HOST", "NAME")] == [wanted[name] for name in ("ENGINE", "HOST", "NAME")]:
            return
        connections["default"].close()
        del connections["default"]
        connections.settings["default"] = wanted
        ContentType.objects.clear_cache()
        call_command("migrate", verbosity=0)

    def leave(self) -> None:
        """Close this process's connections: a server has a process for each. Coroutines have a thread for theirs, and some are of ended threads."""
        from django.db import connections

        connections.close_all()
        if self.server is not None:
            asyncio.run(sync_to_async(connections.close_all)())
            gc.collect()

    def waiting(self) -> int:
        """How many connections wait for another's lock; 1 for a file, whose locks can't be seen."""
        if self.server is None:
            return 1
        with closing(self.server.connect()) as connection:
            found = connection.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").fetchone()
        return int(found[0])

    def another(self, directory: Path) -> dict[str, str]:
        """For the processes of one test: databases without any table."""
        if self.server is None:
            return {"SHOP_HOME": str(directory)}
        name = f"shop_{abs(hash(directory))}"
        with closing(self.server.connect(autocommit=True)) as connection:
            connection.cursor().execute(f"CREATE DATABASE {name}")
        return {"SHOP_HOME": str(directory), "SHOP_DATABASE": name}


@contextmanager
def sqlite() -> Iterator[ShopDatabase]:
    """Files in SHOP_HOME."""
    yield ShopDatabase({"SHOP_POSTGRES": ""})


@contextmanager
def postgresql() -> Iterator[ShopDatabase]:
    """A server of its own. Skips the test where there is none."""
    server = PostgresServer()
    try:
        yield ShopDatabase({"SHOP_POSTGRES": str(server.home)}, Postgres(server))
    finally:
        server.close()
