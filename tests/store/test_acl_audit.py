"""What the rights of docs/operations.md leave of the audit to whoever has Fusion's password: reading it, and appending to it."""

from __future__ import annotations

import re

import pytest
import redis

from fusion.store.client.server import read_server
from fusion.store.layout.acl import acl_rules
from fusion.store.read.audit_inspector import AuditInspector
from fusion.store.write.operation_broker import AuditBroker
from tests.kit.servers import SpawnedServer
from tests.store.test_acl import REFUSED, ROOT, user
from tests.store.test_acl import server as server

SPOILS = [
    "DEL rq:audit",
    "UNLINK rq:audit",
    "SET rq:audit x",
    "XDEL rq:audit 1-1",
    "XTRIM rq:audit MAXLEN 0",
    "XSETID rq:audit 9-9",
    "XGROUP CREATE rq:audit g 0",
    "EXPIRE rq:audit 1",
    "PERSIST rq:audit",
    "RENAME rq:audit rq:other",
    "RENAME rq:other rq:audit",
    "COPY rq:other rq:audit REPLACE",
    "MOVE rq:audit 2",
    "ZUNIONSTORE rq:audit 1 rq:other",
    "GEORADIUS rq:other 1 1 1 km STORE rq:audit",
    "EVAL return(1) 1 rq:audit",
]


@pytest.mark.parametrize("command", SPOILS)
def test_a_user_of_the_audit_can_only_append(server: SpawnedServer, command: str) -> None:
    if read_server(server.client()).version < (7,):
        pytest.skip("the page says that 6.2 has no way to hold this")
    with user(server, acl_rules()) as conn:
        AuditBroker(conn).log_audit("n", {"who": "me"})
        for prefix in ((), ("EVAL", "return redis.call(unpack(ARGV))", 0)):
            if prefix and command.startswith("EVAL"):
                continue
            with pytest.raises(redis.ResponseError, match=REFUSED):
                conn.execute_command(*prefix, *command.split())
        AuditBroker(conn).log_audit("m", {"who": "me"})
        assert len(AuditInspector(conn).entries()) == 2


def test_no_other_key_of_ours_is_where_the_audit_is() -> None:
    """The rules leave out what begins with an `a`, for `rq:audit`."""
    rows = re.findall(r"^\| `rq:(a\S*)`", (ROOT / "docs" / "keys.md").read_text(), re.MULTILINE)
    assert rows == ["audit"]


def test_what_the_page_says_who_may_append_still_can_shows(server: SpawnedServer) -> None:
    if read_server(server.client()).version < (7,):
        pytest.skip("6.2 does not count what was added")
    with user(server, acl_rules()) as conn:
        for n in range(5):
            AuditBroker(conn).log_audit(f"n{n}", {"who": "me"})
        assert AuditInspector(conn).missing() == 0
        conn.execute_command("XADD", "rq:audit", "MAXLEN", "2", "*", "who", "you")
        assert AuditInspector(conn).missing() == 4
        conn.execute_command("XADD", "rq:audit", "18446744073709551615-18446744073709551615", "who", "you")
        with pytest.raises(redis.ResponseError):
            AuditBroker(conn).log_audit("late", {"who": "me"})
