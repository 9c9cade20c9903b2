"""A connection on which one script at a time is called, and nobody waits for the answer."""

from __future__ import annotations

import time
from math import inf
from typing import Any, Generic, TypeVar

from redis import Redis
from redis import exceptions as errors

from fusion.kernel.failpoints import failpoint
from fusion.store.client.adapter import client_of
from fusion.store.client.resp import NonBlockingReader
from fusion.store.client.sockets import time_for
from fusion.store.client.wire import is_ours
from fusion.store.scripting.host import ScriptCall

T = TypeVar("T")


class ScriptLine(Generic[T]):
    """Sends a call, and has its answer when that has come.

    - the connection comes from the client's pool and is this line's until `drop`: no other call's answer is read from it;
    - a call whose answer is not heard, for whatever reason, is over for this line, and so is the connection: a late answer meets nobody. It
      may have been made, so whoever repeats it has to say that it is the same;
    - silence counts as trouble when it lasts as long as `socket_timeout`, and longer for a large call: from the time at which it was sent to
      the end, or at which the last piece of its answer came.
    """

    def __init__(self, client: Redis) -> None:
        """`client`: whose server is asked, by its login and options. Nothing is connected yet."""
        self._client = client_of(client)
        self._is_ours = is_ours(self._client)
        self._timeout = self._client.connection_pool.connection_kwargs.get("socket_timeout") or inf
        #: The connection; None while there is none.
        self.channel: NonBlockingReader | None = None
        self._call: ScriptCall[T] | None = None
        self._reply: Any = None
        self._has_reply = False
        self._patience = inf
        #: True while a call is under way, or its answer was not taken yet.
        self.busy = False
        #: When `answer` is to be asked for: at once if the answer has come, else when it should have.
        self.next_at = inf

    @property
    def wants_write(self) -> bool:
        """A part of the call waits until the socket takes it."""
        return self.channel is not None and self.channel.wants_write

    def fileno(self) -> int | None:
        """The connection's descriptor; None while there is none."""
        return self.channel.fileno() if self.channel else None

    def send(self, call: ScriptCall[T]) -> bool:
        """Send a call, as much of it as fits now; False if only redis-py can make it. Connects if need be, which blocks, in bounds.
        Raises what redis-py raises: then nothing is under way."""
        packed = call.packed() if self._is_ours else None
        if packed is None:
            return False
        try:
            if self.channel is None:
                self.channel = NonBlockingReader.of(self._client)
            self.channel.send_packed(packed)
        except (errors.RedisError, OSError):
            self.drop()
            raise
        failpoint("turn.sent")
        self._call, self._has_reply, self._patience = call, False, self._timeout + time_for(len(packed))
        self.busy, self.next_at = True, time.monotonic() + self._patience
        return True

    def flush(self) -> None:
        """Send more of a call that did not fit at once."""
        if self.channel is not None:
            try:
                self.channel.flush()
            except errors.ConnectionError as error:
                self._is_over(error)
            else:
                self._go_on_waiting()

    def receive(self) -> None:
        """Read what came. Raises nothing: `answer` tells."""
        if self.channel is None or self._has_reply:
            return
        try:
            replies = self.channel.receive()
        except errors.RedisError as error:
            self._is_over(error)
            return
        if len(replies) > (self._call is not None):
            self._is_over(errors.InvalidResponse("an answer to nothing that was asked"))
        elif replies:
            self._reply, self._has_reply, self.next_at = replies[0], True, 0.0
        else:
            self._go_on_waiting()

    def answer(self) -> T:
        """Take the answer of the call under way. Raises what redis-py raises, TimeoutError if none has come."""
        call, reply = self._call, self._reply
        assert call is not None
        if not self._has_reply:
            self.drop()
            raise errors.TimeoutError("Timeout reading from socket")
        self._forget()
        if isinstance(reply, Exception) and not isinstance(reply, errors.NoScriptError):
            self._close()  # of a server that became a replica, say: a new connection may lead to another
        return call.heard(reply)

    def drop(self) -> None:
        """Close the connection. Of a call under way nothing will be heard here."""
        self._forget()
        self._close()

    def _forget(self) -> None:
        self._call = self._reply = None
        self._has_reply = self.busy = False
        self.next_at = inf

    def _go_on_waiting(self) -> None:
        if self.busy and not self._has_reply:
            self.next_at = time.monotonic() + self._patience

    def _is_over(self, error: Exception) -> None:
        """Nothing more will come. A connection that broke while nothing was asked is made anew with the next call."""
        self._close()
        if self._call is not None:
            self._reply, self._has_reply, self.next_at = error, True, 0.0

    def _close(self) -> None:
        if self.channel is not None:
            self.channel.close()
            self.channel = None
