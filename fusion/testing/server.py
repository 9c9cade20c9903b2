"""The private Redis of the tests of this process: started for the first test that needs it, ended with the process."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

from fusion.store.redis_server.instance import EmbeddedRedis

_server: EmbeddedRedis | None = None
_owner = 0


def start() -> EmbeddedRedis:
    """Return the server of this process, which keeps nothing on disk. ConfigurationError, which names the remedy, if there is no server
    program, or it can't start."""
    global _server, _owner
    gone = _server is None or _server.process is None or _server.process.poll() is not None
    if _server is None or gone or _owner != os.getpid():  # a forked process has its own
        server = EmbeddedRedis(tempfile.mkdtemp(prefix="fusion-kit-"), persistent=False)
        try:
            server.start()
        except BaseException:
            shutil.rmtree(server.home, ignore_errors=True)
            raise
        _server, _owner = server, os.getpid()
        atexit.register(stop)
    return _server


def pid() -> int:
    """Return the process of the server; 0 if there is none."""
    return 0 if _server is None or _server.process is None else _server.process.pid


def stop() -> None:
    """End the server, if this process has one."""
    global _server
    server, _server = _server, None
    if server is not None and _owner == os.getpid():
        server.stop()
        shutil.rmtree(server.home, ignore_errors=True)
