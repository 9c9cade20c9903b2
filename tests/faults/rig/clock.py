"""A Redis whose clock a test sets: by an LD_PRELOAD shim, so that all else on the machine keeps its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import redis

from fusion.store.client.connections import connect
from fusion.store.redis_server.binary import ServerBinary
from tests.kit.waiting import eventually

_SHIM = Path(__file__).with_name("clock_shim.c")


def why_not() -> str | None:
    """What is missing for it on this machine."""
    if sys.platform != "linux":
        return "LD_PRELOAD is Linux's"
    return None if shutil.which("cc") else "there is no C compiler (cc)"


class SetClockRedis:
    """`set(3600)`: its clock is an hour ahead of this machine's from now on."""

    def __init__(self, binary: ServerBinary) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="fus", dir="/tmp"))
        shim, self._offset = self.home / "shim.so", self.home / "offset"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, _SHIM, "-ldl"], check=True)
        self._offset.write_text("0")
        socket = self.home / "s"
        self._process = subprocess.Popen(
            [binary.path, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(self.home)],
            env={**os.environ, "LD_PRELOAD": str(shim), "CLOCK_SHIM": str(self._offset)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.url = f"unix://{socket}"
        self.conn: redis.Redis = connect(self.url)
        try:
            eventually(socket.exists, why="it listens")
            self.set(1000)
            self.set(0)
        except BaseException:
            self.close()
            raise

    def set(self, ahead: float) -> None:
        """Seconds. Returns when its clock shows it; AssertionError if the shim has no hold on this server."""
        self._offset.write_text(f"{int(ahead * 1000):<20}")
        eventually(lambda: abs(self.now() - time.time() - ahead) < 1.0, why="the server's clock is set")

    def now(self) -> float:
        seconds, micros = self.conn.time()
        return int(seconds) + int(micros) / 1e6

    def close(self) -> None:
        self.conn.close()
        self._process.kill()
        self._process.wait(10)
        shutil.rmtree(self.home, ignore_errors=True)
