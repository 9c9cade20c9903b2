"""A Redis for the measurements alone. It listens on TCP, which every contender speaks, and on a unix socket."""

from __future__ import annotations

import socket
import subprocess
import tempfile
from functools import cache
from types import TracebackType

import redis

from benchmarks.guard import guarded_home
from fusion.store.redis_server.binary import ServerBinary, find_server


@cache
def binary() -> ServerBinary:
    """Find the server program once, so that all contenders of a run have the same one. Errors as of `find_server`."""
    return find_server()


class Server:
    """The server program that Fusion itself would start, without persistence, on a port that was free.

    `url` and `conn` lead to it, `socket` is the URL of its unix socket; `name` tells program and version, `process` its pid.
    """

    def __enter__(self) -> Server:
        self._home = tempfile.TemporaryDirectory(dir=guarded_home())
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        path = f"{self._home.name}/redis.sock"
        unsaved = ["--save", "", "--appendonly", "no", "--dir", self._home.name, "--loglevel", "warning"]
        self._process = subprocess.Popen(
            [binary().path, "--port", str(port), "--bind", "127.0.0.1", "--unixsocket", path, *unsaved],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.url = f"redis://127.0.0.1:{port}/0"
        self.socket = f"unix://{path}?db=0"
        self.conn = redis.Redis.from_url(self.url)
        while True:
            try:
                info = self.conn.info("server")
                break
            except redis.ConnectionError:
                if self._process.poll() is not None:
                    raise RuntimeError("the server did not start") from None
        self.process = self._process.pid
        assert info["process_id"] == self.process
        self.name = (
            f"{'Valkey' if info.get('server_name') == 'valkey' else 'Redis'} {info.get('valkey_version', info['redis_version'])}"
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.conn.close()
        self._process.terminate()
        self._process.wait(10)
        self._home.cleanup()

    def counters(self) -> tuple[int, int]:
        """Requests and connections since its start. Requests are reads from sockets: a pipeline or a script counts once."""
        stats = self.conn.info("stats")
        return int(stats["total_reads_processed"]), int(stats["total_connections_received"])

    def used(self) -> int:
        """Bytes of memory in use, without Fusion's event log, which other queues do not have."""
        total = int(self.conn.info("memory")["used_memory"])
        return total - int(self.conn.memory_usage("rq:events", samples=0) or 0)
