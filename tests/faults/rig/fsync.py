"""A Redis whose machine loses its power: what was not on the disk is gone, by an LD_PRELOAD shim that notes what is.

SIGKILL alone shows nothing of the kind: what a killed process has written, the kernel still has.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import redis

from fusion.store.client.connections import connect
from fusion.store.redis_server.binary import ServerBinary
from tests.kit.waiting import eventually

_SHIM = Path(__file__).with_name("fsync_shim.c")


class PowerRedis:
    """With an AOF and the given `appendfsync`. `cut()` is the power cut, `start()` the machine coming back.

    A file keeps what was in it at its last fsync. Names of files are kept: the AOF is not rewritten meanwhile, and what a rewrite does to
    a directory is not part of this.
    """

    def __init__(self, binary: ServerBinary, appendfsync: str) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="fus", dir="/tmp"))
        self._notes = self.home / "synced"
        shim, socket = self.home / "shim.so", self.home / "s"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", shim, _SHIM, "-ldl"], check=True)
        self._command = [binary.path, "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(self.home)]
        self._command += ["--appendonly", "yes", "--appendfsync", appendfsync, "--auto-aof-rewrite-percentage", "0"]
        self._env = {**os.environ, "LD_PRELOAD": str(shim), "FSYNC_SHIM": str(self._notes)}
        self.url = f"unix://{socket}"
        self.conn: redis.Redis = connect(self.url)
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self.start()
            assert appendfsync != "always" or self._is_held(), "the shim has no hold on this server"
        except BaseException:
            self.close()
            raise

    def _is_held(self) -> bool:
        self.conn.set("probe", "x")
        return any(size for path, size in self._synced() if path.suffix == ".aof")

    def start(self) -> None:
        with (self.home / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(self._command, env=self._env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        eventually(self._answers, 20, why="Redis is there (again)")

    def _answers(self) -> bool:
        assert self.process is not None and self.process.poll() is None, (self.home / "redis.log").read_text()
        try:
            return bool(self.conn.ping())
        except redis.RedisError:
            return False

    def cut(self) -> int:
        """Returns how many bytes were lost."""
        self._kill()
        lost = 0
        for path, synced in self._synced():
            size = path.stat().st_size
            if size > synced:
                os.truncate(path, synced)
                lost += size - synced
        return lost

    def _synced(self) -> Iterator[tuple[Path, int]]:
        """All files of the AOF, in one part or several, and how much of each is on the disk."""
        sizes: dict[int, int] = {}
        for line in self._notes.read_text().splitlines() if self._notes.exists() else ():
            inode, size = line.split()
            sizes[int(inode)] = int(size)
        for path in [*self.home.glob("appendonlydir/*"), *self.home.glob("appendonly.aof")]:
            yield path, sizes.get(path.stat().st_ino, 0)

    def _kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(10)

    def close(self) -> None:
        self.conn.close()
        self._kill()
        shutil.rmtree(self.home, ignore_errors=True)
