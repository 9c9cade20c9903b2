"""The sessions of people at the dashboard: who gave a token once goes on without it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from redis import Redis

from fusion.store.layout.keys import Keys


class SessionBroker:
    """Opens, finds and closes sessions. Each is known by the hash of the secret that the browser holds. What its record says counts only with
    the seal that is in it: whoever can write to Redis can write a record."""

    def __init__(self, connection: Redis, prefix: str) -> None:
        self._connection, self._keys = connection, Keys(prefix)

    def key(self, digest: str) -> str:
        """The key of a session, which its seal is about too."""
        return self._keys.session(digest)

    def open_session(self, digest: str, record: Mapping[str, str], seconds: int) -> None:
        """Keep it for this time."""
        self._connection.set(self._keys.session(digest), json.dumps(dict(record)), ex=seconds)

    def find_session(self, digest: str) -> dict[str, str]:
        """The record as it stands in Redis, whoever wrote it: texts by name. Nothing if it is over or never was."""
        try:
            found: Any = json.loads(self._connection.get(self._keys.session(digest)) or b"null")
        except (ValueError, RecursionError):
            return {}
        return {name: value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}

    def close_session(self, digest: str) -> None:
        """It is over."""
        self._connection.delete(self._keys.session(digest))
