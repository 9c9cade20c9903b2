"""What happens to the default user with the lines of docs/operations.md."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from fusion.store.client.connections import connect
from tests.kit.servers import SpawnedServer
from tests.store.test_acl import ROOT

WRITE_TWICE = "redis.call('SET', 'rq:a', '1') redis.call('SET', 'rq:b', '2')"


def test_the_documented_users_file_keeps_what_scripts_wrote_through_a_restart(server_binary: object, tmp_path: Path) -> None:
    """Redis 7 replays the transactions of an AOF as the default user: one that may do nothing would lose the writes of every script."""
    text = (ROOT / "docs" / "operations.md").read_text()
    (default,) = [line for line in text.splitlines() if line.startswith("user default off")]
    users = tmp_path / "users.acl"
    users.write_text(f"{default}\nuser admin on >pw ~* &* +@all\n")
    options = ("--appendonly", "yes", "--appendfsync", "always", "--aclfile", str(users))
    server = SpawnedServer(server_binary.path, *options)  # type: ignore[attr-defined]
    try:
        with connect(f"{server.url}?username=admin&password=pw") as conn:
            conn.eval(WRITE_TWICE, 0)  # type: ignore[no-untyped-call]
        with connect(server.url) as nobody, pytest.raises(redis.AuthenticationError):
            nobody.ping()
        server.restart()
        with connect(f"{server.url}?username=admin&password=pw") as conn:
            assert conn.mget("rq:a", "rq:b") == [b"1", b"2"]
    finally:
        server.close()
