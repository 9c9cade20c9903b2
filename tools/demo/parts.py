"""The processes of the demo: each is started from this checkout, in a session of its own, and ended with the demo."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from fusion.exceptions import ConfigurationError

if TYPE_CHECKING:
    from fusion.store.redis_server.instance import EmbeddedRedis

#: Seconds until a part that is waited for must be there, and that it gets to end warm.
_READY, _END = 15.0, 10.0


@contextmanager
def redis_server(home: str, fsync: str) -> Iterator[EmbeddedRedis]:
    """The built-in Redis in `home`, started."""
    from fusion.store.redis_server.instance import EmbeddedRedis

    server = EmbeddedRedis(home, fsync=fsync)
    try:
        server.start()
        yield server
    finally:
        server.stop()


@contextmanager
def sandbox(home: str) -> Iterator[dict[str, str]]:
    """The providers' sandbox; the environment in which tasks find it. ConfigurationError if it does not start."""
    ready, log = Path(home) / "sandbox.json", Path(home) / "sandbox.log"
    command = [sys.executable, "-m", "tasks.sandbox", "--port", "0", "--smtp-port", "0", "--ready-file", str(ready)]
    with child(command, {}, log) as process:
        deadline = time.monotonic() + _READY
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise ConfigurationError(f"the sandbox did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.01)
        yield json.loads(ready.read_text())["env"]


def address(process: subprocess.Popen[bytes], log: Path) -> str:
    """Wait until the HTTP server serves, and return where. ConfigurationError, with what it said, if it does not."""
    deadline = time.monotonic() + _READY
    while not (found := re.search(r"serving (http://\S+)", log.read_text())):
        if process.poll() is not None or time.monotonic() > deadline:
            said = log.read_text().strip().rpartition("\n")[2].removeprefix("Error: ")
            raise ConfigurationError(said or f"it did not serve within {_READY:g} s")
        time.sleep(0.01)
    return found[1]


def fusion_command(*words: str) -> list[str]:
    """A command line of Fusion's."""
    return [sys.executable, "-m", "fusion", *words]


@contextmanager
def child(command: list[str], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the block."""
    process = spawn(command, env, log)
    try:
        yield process
    finally:
        end(process)


def spawn(command: list[str], env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own: Ctrl-C is for the demo, which ends its children itself."""
    root = str(Path(import_module("tasks").__file__ or "").resolve().parents[1])
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FUSION_", "RQ_", "REDIS_"))}
    with log.open("ab") as out:
        return subprocess.Popen(
            command,
            cwd=root,
            env={**clean, **env, "PYTHONPATH": root},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )


def end(process: subprocess.Popen[bytes]) -> None:
    """End it warm, or after some seconds at once."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(_END)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
