"""Commands to a running worker over its channel, in RQ's form: `{"command": "shutdown"}`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from redis import Redis
from redis.exceptions import RedisError

from fusion.runtime.backoff import Backoff
from fusion.store.client.resp import NonBlockingReader

#: Longest pause in seconds before a lost subscription is renewed: the first try is at once. Commands published meanwhile are lost, and
#: their sender learns that nobody listened.
_LONGEST_PAUSE = 2.0
_FIRST_PAUSE = 0.05
#: Seconds of silence before a ping, and seconds in which the reply must come. A subscription sends nothing by itself, so a dead network
#: would stay unnoticed.
_SILENCE = 5.0
_PATIENCE = 2.0
#: The first words of replies that are messages.
_MESSAGES = (b"message", b"smessage")

SHUTDOWN = "shutdown"
KILL_HORSE = "kill-horse"
QUIET, UNQUIET = "quiet", "unquiet"
#: Stop one job; sent to the worker that runs it.
STOP_JOB = "stop-job"
#: Poll now; sent to all workers, as no doorbell may reach the worker that can take a job.
LOOK = "look"


@dataclass(frozen=True, slots=True)
class Command:
    """A command to a worker. For a job: its id, and the execution that is meant, if the sender knows it."""

    name: str
    job_id: str = ""
    execution_id: str = ""


class Commands:
    """A worker's subscription to its channel. It ignores messages that are no commands of Fusion: anyone may publish.

    `wanted` returns the worker's channel. It changes when the worker registers under another name: then call `renew`. `fleet`: the channel
    of all workers.
    `on_subscribed` is called when a subscription begins: commands published before were missed.
    `on_duty` is called with what comes on the channels `duties`: what a script found that some process ran for the whole fleet.
    `sharded`: subscribe to the channels as sharded ones, too, for a cluster. Redis before 7 refuses that, which is ignored.
    """

    def __init__(
        self,
        connect: Callable[[], Redis],
        wanted: Callable[[], str],
        fleet: str,
        on_subscribed: Callable[[], None] | None = None,
        *,
        duties: Sequence[str] = (),
        on_duty: Callable[[str], None] | None = None,
        sharded: bool = False,
    ) -> None:
        self._sharded = sharded
        self._connect, self._wanted, self._on_subscribed = connect, wanted, on_subscribed
        self._shared = [fleet, *duties]
        self._duties, self._on_duty = {channel.encode() for channel in duties}, on_duty
        self._subscribed = ""
        #: The connection; None while there is none.
        self.channel: NonBlockingReader | None = None
        self._next_try = 0.0
        #: When to subscribe, to send a ping, or to stop waiting for its reply.
        self.next_at = 0.0
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, free=1)
        self._heard_at = 0.0
        self._asked_at: float | None = None

    def fileno(self) -> int | None:
        """The subscription's descriptor; None while there is none."""
        return self.channel.fileno() if self.channel else None

    def renew(self) -> None:
        """Subscribe to the channel that is wanted now."""
        if self.channel is not None:
            self.next_at = 0.0

    def _set_time(self) -> None:
        if self.channel is None:
            self.next_at = self._next_try
        else:
            self.next_at = self._heard_at + _SILENCE if self._asked_at is None else self._asked_at + _PATIENCE

    def tick(self, now: float) -> None:
        """Subscribe if the wanted channels are not subscribed; drop a subscription that does not answer a ping."""
        if self.channel is not None:
            self._check(self.channel, now)
        self._set_time()
        wanted = self._wanted()
        if self._subscribed == wanted or (self.channel is None and now < self._next_try):
            return
        try:
            if self.channel is None:
                self.channel = NonBlockingReader.of(self._connect())
                self._heard_at, self._asked_at = now, None
            self.channel.send("SUBSCRIBE", wanted, *self._shared)
            if self._sharded:
                self.channel.send("SSUBSCRIBE", wanted, *self._shared)
            self._subscribed = wanted
            self._set_time()
        except (RedisError, OSError):
            self.close()

    def receive(self) -> list[Command]:
        """Return the commands that have arrived."""
        if self.channel is None:
            return []
        try:
            replies = self.channel.receive()
        except (RedisError, OSError):
            self.close()
            return []
        if replies:
            self._heard_at, self._asked_at = time.monotonic(), None
            self._set_time()
            if any(map(self._is_over, replies)):
                self.close()  # not allowed to subscribe, or not now, or another node serves the slot
            else:
                self._backoff.reset()
        if self._on_subscribed is not None and any(_is_subscription(reply) for reply in replies):
            self._on_subscribed()
        return [command for reply in replies if not self._is_duty(reply) and (command := _command(reply))]

    def _is_over(self, reply: object) -> bool:
        """Return True for a refusal, or a subscription that the server has ended."""
        if isinstance(reply, Exception):
            return not (self._sharded and "unknown command" in str(reply))
        return isinstance(reply, list) and reply[:1] == [b"sunsubscribe"]

    def _is_duty(self, reply: object) -> bool:
        """Pass on what a duty found."""
        if not (
            self._on_duty and isinstance(reply, list) and len(reply) == 3 and reply[0] in _MESSAGES and reply[1] in self._duties
        ):
            return False
        self._on_duty(reply[2].decode(errors="replace"))
        return True

    def close(self) -> None:
        """Drop the subscription. The next one follows at once, or after a pause if several broke in a row."""
        self._next_try = time.monotonic() + self._backoff.next()
        self._subscribed = ""
        if self.channel is not None:
            self.channel.close()
            self.channel = None
        self._set_time()

    def _check(self, channel: NonBlockingReader, now: float) -> None:
        if self._asked_at is not None:
            if now - self._asked_at >= _PATIENCE:
                self.close()
        elif now - self._heard_at >= _SILENCE:
            self._asked_at = now
            try:
                channel.send("PING")
            except (RedisError, OSError):
                self.close()


def _is_subscription(reply: object) -> bool:
    return isinstance(reply, list) and reply[:1] in ([b"subscribe"], [b"ssubscribe"])


def _command(reply: object) -> Command | None:
    if not isinstance(reply, list) or len(reply) != 3 or reply[0] not in _MESSAGES:
        return None
    try:
        payload = json.loads(reply[2])
    except (ValueError, RecursionError):
        return None
    if not isinstance(payload, dict) or not payload.get("command"):
        return None
    return Command(*(str(payload.get(name) or "") for name in ("command", "job_id", "execution_id")))
