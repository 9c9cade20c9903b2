"""The run under FUSION_TEST_ACL=1: what is Fusion's speaks to Redis as the user of docs/operations.md, what is the tests' as an admin.

`redis_url` and FUSION_REDIS_URL name that user, so every process does too. A client of the tests (`conn`) is two clients: a command
goes as the user if Fusion's code sends it, through whatever object, and as the admin if a test itself looks or meddles behind its back.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import redis

from fusion.store.client.connections import connect
from fusion.store.layout.acl import acl_rules
from fusion.store.redis_server.binary import ServerBinary
from fusion.store.redis_server.instance import EmbeddedRedis, EmbeddedStatus

GUARDED = os.environ.get("FUSION_TEST_ACL", "") not in ("", "0")
USER, PASSWORD = "fusion", "of-the-user"  # noqa: S105
_ADMIN, _ADMIN_PASSWORD = "admin", "of-the-admin"  # noqa: S105
_PRODUCT = ("fusion.", "tasks.", "wrappers.")


class RedisOfTests(EmbeddedRedis):
    """The server of a test run: an embedded one, guarded if this run is."""

    def __init__(self, home: str | os.PathLike[str], *, persistent: bool, server: ServerBinary) -> None:
        super().__init__(home, persistent=persistent, server=_with_users(Path(home), server) if GUARDED else server)

    @property
    def url(self) -> str:
        """For Fusion, and for clients made by a test that are to be what Fusion's are."""
        return as_user(super().url)

    def status(self) -> EmbeddedStatus:
        if not GUARDED:
            return super().status()
        pid = self._written_pid()
        try:
            with admin_client(super().url) as client:
                facts = client.info()
        except (redis.RedisError, OSError):
            return self._status("stuck" if pid else "stopped", pid)
        return self._status(
            "loading" if facts["loading"] else "running", int(facts["process_id"]), "", bool(facts["aof_enabled"])
        )


class TwoClients(redis.Redis):
    """Made by `client`."""

    admin: redis.Redis

    def execute_command(self, *args: Any, **options: Any) -> Any:
        if _fusion_calls():
            return super().execute_command(*args, **options)
        return self.admin.execute_command(*args, **options)

    def pipeline(self, *args: Any, **options: Any) -> Any:
        return super().pipeline(*args, **options) if _fusion_calls() else self.admin.pipeline(*args, **options)

    def pubsub(self, **options: Any) -> Any:
        return super().pubsub(**options) if _fusion_calls() else self.admin.pubsub(**options)

    def close(self) -> None:
        super().close()
        self.admin.close()


def client(url: str) -> redis.Redis:
    """A client as producers have it, which a test may use for what no producer may."""
    made = connect(url)
    if GUARDED:
        made.__class__ = TwoClients
        assert isinstance(made, TwoClients)
        made.admin = admin_client(url)
    return made


def admin_client(url: str) -> redis.Redis:
    """A client that may do everything, whoever uses it."""
    return connect(as_admin(url))


def as_admin(url: str) -> str:
    return _logged_in(url, _ADMIN, _ADMIN_PASSWORD) if GUARDED else url


def as_user(url: str) -> str:
    return _logged_in(url, USER, PASSWORD) if GUARDED else url


def as_nobody(url: str) -> str:
    """Without user and password: what tasks that get no secrets see of it."""
    return url.replace(f"&username={USER}&password={PASSWORD}", "") if GUARDED else url


def users_file(home: Path) -> Path:
    """For a server's `--aclfile`."""
    path = home / "users.acl"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    # Off, and nothing taken from it: as this user Redis 7 replays the transactions of an AOF, which each script's writes are.
    path.write_text(
        f"user default off ~* &* +@all\nuser {_ADMIN} on >{_ADMIN_PASSWORD} ~* &* +@all\nuser {USER} on >{PASSWORD} {acl_rules()}\n"
    )
    return path


def with_password(url: str, password: str) -> str:
    """For after `change_password`, which works in both kinds of runs."""
    return _logged_in(url, USER, password) if GUARDED else url.replace("unix://", f"unix://:{password}@")


def change_password(conn: redis.Redis, password: str) -> None:
    """`""`: what it was at first. Connections that are logged in stay so."""
    if GUARDED:
        conn.execute_command("ACL", "SETUSER", USER, "resetpass", f">{password or PASSWORD}")
    else:
        conn.config_set("requirepass", password)


def login() -> bytes:
    """What a raw connection of a test says first."""
    return f"AUTH {_ADMIN} {_ADMIN_PASSWORD}\r\n".encode() if GUARDED else b""


def reset_user(admin: redis.Redis) -> None:
    """The documented rules, whatever a test made of them."""
    if GUARDED:
        admin.execute_command("ACL", "SETUSER", USER, "reset", "on", f">{PASSWORD}", *acl_rules().split())


def allow_prefix(conn: redis.Redis, prefix: str) -> None:
    """For a test about a fleet with another prefix: the user may use its keys too."""
    if GUARDED:
        pattern = re.sub(r"[^\w:]", "?", prefix)  # no pattern may have a space, and some characters mean something in it
        conn.execute_command("ACL", "SETUSER", USER, f"~{pattern}*", f"&{pattern}*")


def allow_naming(conn: redis.Redis) -> None:
    """For a test that tells its clients apart by the `client_name` of their url."""
    if GUARDED:
        conn.execute_command("ACL", "SETUSER", USER, "+client|setname")


def _logged_in(url: str, name: str, password: str) -> str:
    address, _, query = url.partition("?")
    kept = [part for part in query.split("&") if part and not part.startswith(("username=", "password="))]
    return f"{address}?{'&'.join([*kept, f'username={name}', f'password={password}'])}"


def _with_users(home: Path, server: ServerBinary) -> ServerBinary:
    """The same server, started with users: an embedded one has no option for them."""
    users, starter = users_file(home), home / "server"
    starter.write_text(f'#!/bin/sh\nexec "{server.path}" "$@" --aclfile "{users}"\n')
    starter.chmod(0o700)
    return ServerBinary(str(starter), server.name, server.version)


def _fusion_calls() -> bool:
    """Who of Fusion and the tests is nearest on the stack. A thread's own first call is neither: then as the user."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith(_PRODUCT):
            return True
        if name.startswith("tests."):
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return True
