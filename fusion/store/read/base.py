"""The base of all inspectors: a connection, pages of sets, and hashes read with the server's clock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from typing import Any, Self

from redis import Redis

from fusion.kernel import defaults
from fusion.settings import Settings
from fusion.store.client.adapter import batch
from fusion.store.layout import codec
from fusion.store.layout.keys import Keys

#: 1 January 9999: a score or an entry's id may be anything, as outsiders can write them.
_LAST = 253_370_764_800


class InspectorBase:
    """Reads one Redis under one prefix, and never changes it. Raises redis-py's errors as they come. Where a method has a twin with `_steps`
    at its end, a coroutine runs that."""

    def __init__(self, connection: Redis, *, prefix: str = defaults.KEY_PREFIX) -> None:
        self.connection = connection
        self.keys = Keys(prefix)

    @classmethod
    def of(cls, connection: Redis, settings: Settings) -> Self:
        """Make an inspector with the prefix that the settings name."""
        return cls(connection, prefix=settings.prefix)

    def _batch(self, ask: Callable[[Any], object], *, raise_on_error: bool = True) -> list[Any]:
        return batch(self.connection, ask, raise_on_error=raise_on_error)

    def _page(self, key: str, offset: int = 0, limit: int = -1, *, desc: bool = False) -> list[str]:
        """Return members of a ZSET from `offset` on; a negative limit means all."""
        if limit == 0:
            return []  # Redis counts an end below 0 from the other end
        found: Any = self.connection.zrange(key, offset, -1 if limit < 0 else offset + limit - 1, desc=desc)
        return [codec.text(member) for member in found]

    def _clock_and_hashes(self, keys: Iterable[str], *, raise_on_error: bool = True) -> tuple[float, list[dict[str, str]]]:
        """Read the server's clock in ms and these hashes together. Without `raise_on_error`, the error for a key that is no hash is in
        `error`."""
        (seconds, micros), *rows = self._batch(
            lambda pipe: (pipe.time(), [pipe.hgetall(key) for key in keys]), raise_on_error=raise_on_error
        )
        return seconds * 1000 + micros / 1000, [texts(row) for row in rows]


def texts(row: Any) -> dict[str, str]:
    """Decode a hash. If the key is not one, `error` holds the text of Redis's error."""
    if isinstance(row, Exception):
        return {"error": str(row)}
    return {codec.text(name): codec.text(value) for name, value in row.items()}


def clock(reply: tuple[int, int]) -> datetime:
    """Convert the reply of TIME."""
    return datetime.fromtimestamp(reply[0] + reply[1] / 1e6, timezone.utc)


def moment(seconds: float) -> datetime:
    """Convert Unix seconds to a datetime, to the millisecond: finer digits of a score are the order of arrival. Never out of range."""
    return datetime.fromtimestamp(math.floor(min(max(seconds, 0), _LAST) * 1000 + 0.001) / 1000, timezone.utc)
