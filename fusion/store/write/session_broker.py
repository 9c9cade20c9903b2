"""The sessions of people at the dashboard: who gave a token once goes on without it."""

from __future__ import annotations

import json
from typing import Any

from redis import Redis

from fusion.store.layout.keys import Keys


class SessionBroker:
    """Opens, finds and closes sessions. Each is known by the hash of the secret that the browser holds, and holds the hash of its token: who
    reads Redis learns neither."""

    def __init__(self, connection: Redis, prefix: str) -> None:
        self._connection, self._keys = connection, Keys(prefix)

    def open_session(self, digest: str, token_digest: str, seconds: int) -> None:
        """Let it count for so long."""
        self._connection.set(self._keys.session(digest), json.dumps({"token": token_digest}), ex=seconds)

    def find_session(self, digest: str) -> str | None:
        """The hash of the token that opened it; None if it is over or never was."""
        found: Any = self._connection.get(self._keys.session(digest))
        if not found:
            return None
        try:
            return str(json.loads(found)["token"])
        except (ValueError, KeyError, TypeError):
            return None

    def close_session(self, digest: str) -> None:
        """It is over."""
        self._connection.delete(self._keys.session(digest))
