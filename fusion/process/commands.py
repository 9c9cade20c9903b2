"""Commands to a running worker over its channel, in RQ's form: `{"command": "shutdown"}`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from redis import Redis
from redis.exceptions import RedisError

from fusion.store.resp import NonBlockingReader

_RECONNECT_PAUSE = 2.0

SHUTDOWN = "shutdown"
KILL_HORSE = "kill-horse"
QUIET, UNQUIET = "quiet", "unquiet"


class Commands:
    """The worker's subscription. What is not a command of ours is ignored: anyone may publish.

    `wanted` tells the channel, which changes when the worker has to register under another name.
    """

    def __init__(self, connect: Callable[[], Redis], wanted: Callable[[], str]) -> None:
        self._connect, self._wanted = connect, wanted
        self._subscribed = ""
        self._channel: NonBlockingReader | None = None
        self._next_try = 0.0

    def fileno(self) -> int | None:
        return self._channel.fileno() if self._channel else None

    def open(self, now: float) -> None:
        """Subscribe if not subscribed to what is wanted."""
        wanted = self._wanted()
        if self._subscribed == wanted or (self._channel is None and now < self._next_try):
            return
        try:
            if self._channel is None:
                self._channel = NonBlockingReader.of(self._connect())
            self._channel.send("SUBSCRIBE", wanted)
            self._subscribed = wanted
        except (RedisError, OSError):
            self.close()

    def receive(self) -> list[str]:
        """Names of the commands that came."""
        if self._channel is None:
            return []
        try:
            replies = self._channel.receive()
        except (RedisError, OSError):
            self.close()
            return []
        return [name for reply in replies if (name := _command(reply))]

    def close(self) -> None:
        self._next_try = time.monotonic() + _RECONNECT_PAUSE
        self._subscribed = ""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _command(reply: object) -> str:
    if not isinstance(reply, list) or len(reply) != 3 or reply[0] != b"message":
        return ""
    try:
        payload = json.loads(reply[2])
    except ValueError:
        return ""
    return str(payload.get("command", "")) if isinstance(payload, dict) else ""
