"""A Redis connection for a selectors loop: commands and replies are sent and received without blocking.

For waiting inside Redis (BLPOP on doorbells, SUBSCRIBE) beside other sockets. redis-py makes the connection, TLS and login included.
"""

from __future__ import annotations

import ssl
from typing import Any

import hiredis
import redis
from redis import exceptions as errors

from fusion.store.client.wire import inside

_CHUNK = 65536
#: Bytes read in one `receive`, so that one chatty channel does not hold up the loop.
_MAX_READ = 1024 * 1024
_INCOMPLETE = object()
_CLOSED = "the connection is closed"


class NonBlockingReader:
    """A connected redis-py connection, made non-blocking. This reader owns it from then on, and `close` disconnects it.

    Register it for EVENT_READ, and for EVENT_WRITE too while `wants_write`. Over TLS, bytes that were read ahead never wake a selector;
    therefore `receive` always drains them.
    """

    def __init__(self, connection: Any, client: redis.Redis | None = None) -> None:
        """Take over the connection; `client` is the one whose pool gets it back at the end. Raises redis ConnectionError if it is not
        connected."""
        # Error replies become the exceptions that redis-py would raise, so that `classify` knows them.
        sock, to_error = inside(connection)
        if sock is None:
            raise errors.ConnectionError(_CLOSED)
        self._connection = connection
        # Referenced so that it lives: a client that is garbage-collected closes its pool's connections.
        self._client = client
        self._sock: Any = sock
        self._fileno: int = sock.fileno()
        #: Parts of commands that wait for room in the socket.
        self.unsent = bytearray()
        self._reader = hiredis.Reader(protocolError=errors.InvalidResponse, replyError=to_error, notEnoughData=_INCOMPLETE)
        sock.setblocking(False)

    @classmethod
    def of(cls, client: redis.Redis) -> NonBlockingReader:
        """Make a reader of a connection of the client's pool. Connecting blocks, limited by the client's timeouts; raises what redis-py
        raises."""
        return cls(client.connection_pool.get_connection(), client)

    @property
    def closed(self) -> bool:
        """True once either side has closed the connection."""
        return self._sock is None

    @property
    def wants_write(self) -> bool:
        """True while a part of a command waits for room in the socket."""
        return bool(self.unsent)

    def fileno(self) -> int:
        """Return the socket's descriptor, also after `close`, so that it can be unregistered."""
        return self._fileno

    def send(self, *args: str | bytes | int | float) -> None:
        """Send a command, as much of it as fits now. If the other side is gone, closes and raises redis ConnectionError."""
        self.send_packed(hiredis.pack_command(args))  # type: ignore[arg-type]  # its stub says: of one item

    def send_packed(self, packed: bytes) -> None:
        """Send an encoded command, as `send` does."""
        self.unsent += packed
        self.flush()

    def flush(self) -> None:
        """Send what is buffered. Raises as `send` does."""
        while self.unsent:
            if self._sock is None:
                raise errors.ConnectionError(_CLOSED)
            try:
                sent = self._sock.send(self.unsent)
            except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return
            except OSError as error:
                raise self._broken(str(error)) from error
            del self.unsent[:sent]

    def receive(self) -> list[Any]:
        """Read the replies that are complete by now, maybe none. An error reply is an exception *in* the list, as others may follow it.

        Raises redis ConnectionError (and closes) when the connection ended; replies from before that are given out first.
        """
        if self.unsent:
            self.flush()
        if (sock := self._sock) is None:
            raise errors.ConnectionError(_CLOSED)
        read = 0
        ended = ""
        while read < _MAX_READ or (isinstance(sock, ssl.SSLSocket) and sock.pending()):
            try:
                data = sock.recv(_CHUNK)
            except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            except OSError as error:
                ended = str(error) or type(error).__name__
                break
            if not data:
                ended = "the server closed the connection"
                break
            self._reader.feed(data)
            read += len(data)
            if len(data) < _CHUNK and not isinstance(sock, ssl.SSLSocket):  # TLS gives one record at a time
                break  # that was all, as a rule: whatever comes now makes the socket readable again
        replies = self._replies()
        # With replies in hand the socket stays open: it is readable at once again, and then the end is reported.
        if ended and not replies:
            raise self._broken(ended)
        return replies

    def close(self) -> None:
        """Disconnect. Harmless if done before."""
        if self._sock is None:
            return
        self._sock = None
        self.unsent.clear()
        self._connection.disconnect()
        if self._client is not None:
            self._client.connection_pool.release(self._connection)
            self._client = None

    def _replies(self) -> list[Any]:
        replies = []
        try:
            while (reply := self._reader.gets()) is not _INCOMPLETE:
                replies.append(reply)
        except errors.InvalidResponse as error:
            raise self._broken(f"this is not the Redis protocol: {error}") from error
        return replies

    def _broken(self, reason: str) -> errors.ConnectionError:
        self.close()
        return errors.ConnectionError(f"Connection to Redis lost: {reason}")
