"""Sessions at the dashboard: a person signs in once with a token and stays signed in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from redis import Redis

from fusion.store.layout.keys import Keys


class SessionBroker:
    """Opens, finds and closes sessions. Each is identified by the hash of the secret in the browser. A record counts only with a valid seal
    in it, since anyone who can write to Redis can write a record."""

    def __init__(self, connection: Redis, prefix: str) -> None:
        self._connection, self._keys = connection, Keys(prefix)

    def key(self, digest: str) -> str:
        """Return the key of a session; its seal covers it, too."""
        return self._keys.session(digest)

    def open_session(self, digest: str, record: Mapping[str, str], seconds: int) -> None:
        """Store the session for `seconds`."""
        self._connection.set(self._keys.session(digest), json.dumps(dict(record)), ex=seconds)

    def find_session(self, digest: str) -> dict[str, str]:
        """Return the record stored in Redis, whoever wrote it: texts by name. Empty if the session is over or never existed."""
        try:
            found: Any = json.loads(self._connection.get(self._keys.session(digest)) or b"null")
        except (ValueError, RecursionError):
            return {}
        return {name: value for name, value in found.items() if isinstance(value, str)} if isinstance(found, dict) else {}

    def close_session(self, digest: str) -> None:
        """Delete the session."""
        self._connection.delete(self._keys.session(digest))
