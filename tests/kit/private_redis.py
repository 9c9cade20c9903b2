"""A Redis that a test has for itself: it may pause and kill it."""

from __future__ import annotations

import signal
import subprocess

from fusion.store.redis_server.binary import ServerBinary
from tests.kit import guarded


class PrivateRedis:
    """A server with an AOF that one test has to itself, and that loses nothing when it is killed: with `everysec` Redis answers before it
    has written what an fsync under way on a slow disk holds up."""

    def __init__(self, home: str, binary: ServerBinary) -> None:
        self._server = guarded.RedisOfTests(home, persistent=True, server=binary)
        self._start()
        self.conn = guarded.client(self.url)

    def _start(self) -> None:
        self.url = self._server.start()
        conn = guarded.admin_client(self.url)
        conn.config_set("appendfsync", "always")
        conn.close()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._server.process is not None
        return self._server.process

    def pause(self) -> None:
        """It takes connections and commands, and answers none of them."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def revive(self) -> None:
        """Running, whatever the test did."""
        if self.process.poll() is None:
            self.resume()
        self._start()

    def close(self) -> None:
        self.conn.close()
        self.revive()
        self._server.stop()
