"""The built-in Redis: a server of our own behind a unix socket in one state directory (FUSION_HOME).

Started by `redis start`, `demo` and `--embedded`, never by a producer. Uses only the standard library, so that checking whether it runs is
cheap.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fusion.exceptions import ConfigurationError
from fusion.kernel import program
from fusion.store.redis_server.binary import ServerBinary, find_server
from fusion.store.redis_server.own_files import check_home, check_socket, close_to_others, open_own, read_own, reason, write_own

__all__ = ["EmbeddedRedis", "EmbeddedStatus", "ServerBinary", "find_server", "running", "url_of"]

#: Room in sockaddr_un on macOS, the smaller one; includes the final zero.
_MAX_SOCKET_PATH = 104
#: Seconds within which a new server must reply, and within which it must have read its own file.
_START_TIMEOUT = 10.0
_LOAD_TIMEOUT = 300.0
_STOP_TIMEOUT = 15.0
_ANSWER_TIMEOUT = 1.0


def _socket_path(home: str | os.PathLike[str]) -> str:
    return os.path.join(home, "redis.sock")


def url_of(home: str | os.PathLike[str]) -> str:
    """Return the url that the server of `home` has or would have."""
    return f"unix://{quote(_socket_path(home))}?db=0"


def running(home: str | os.PathLike[str]) -> str | None:
    """Return the url of the server of `home`, if one listens. A busy one counts: nobody may use another Redis for that reason.

    ConfigurationError if it belongs to another user, who would get everything that is enqueued there.
    """
    if not hasattr(socket, "AF_UNIX"):  # Windows
        return None
    path = _socket_path(home)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_ANSWER_TIMEOUT)
        try:
            sock.connect(path)
            check_home(home)
            check_socket(path, sock)
        except OSError as error:
            if error.errno != errno.EAGAIN:  # it listens, and its queue is full
                return None
            check_home(home)
            check_socket(path)
    return url_of(home)


@dataclass(frozen=True)
class EmbeddedStatus:
    """`state`: running, loading (reads its file), stuck (a process, but no answer) or stopped."""

    state: str
    pid: int | None
    url: str
    home: str
    log: str
    server: str | None = None
    persistent: bool | None = None

    @property
    def running(self) -> bool:
        """True for a server that takes commands."""
        return self.state == "running"


class EmbeddedRedis:
    """One server per `home`, whoever starts it. `persistent=False` keeps nothing on disk; on Linux that server dies with the process that
    started it.

    `fsync` is Redis's appendfsync. With `everysec` a server on a slow disk replies up to two seconds before it has written, so a kill may
    lose that data. With `always` it never does.
    """

    def __init__(
        self,
        home: str | os.PathLike[str],
        *,
        persistent: bool = True,
        fsync: str = "everysec",
        server: ServerBinary | None = None,
    ) -> None:
        self.home = Path(os.path.expanduser(home)).absolute()
        self.persistent = persistent
        self.fsync = fsync
        self.socket = Path(_socket_path(self.home))
        self.log = self.home / "redis.log"
        self._pid_file = self.home / "redis.pid"
        self._server = server
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The url that the server has or would have."""
        return url_of(self.home)

    def start(self) -> str:
        """Start the server unless it runs, and return its url once it takes commands. ConfigurationError with the log's end if it can't start."""
        if any(part.startswith("~") for part in self.home.parts):
            raise ConfigurationError(
                f"this user has no home directory (no HOME, no entry in passwd), which {self.home} would need; "
                "set FUSION_HOME to a directory for the built-in Redis",
                code="FUS-213",
            )
        if len(os.fsencode(self.socket)) >= _MAX_SOCKET_PATH:
            raise ConfigurationError(
                f"the socket's path is too long for a unix socket: {self.socket}; set FUSION_HOME to a shorter directory",
                code="FUS-213",
            )
        try:
            self.home.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked():
                self._close_to_others()
                if not self.status().pid:
                    self._launch(self._server or find_server())
                self._await_ready()
        except OSError as error:
            raise ConfigurationError(
                f"the built-in Redis can't use {error.filename or self.home}: {reason(error)}; or set FUSION_HOME to another directory",
                code="FUS-213",
            ) from error
        return self.url

    def stop(self) -> bool:
        """Stop the server after it has saved its data; False if none ran."""
        if not self.home.is_dir():
            return False
        with self._locked():
            status = self.status()
            if status.pid:
                self._end(status.pid)
            self._pid_file.unlink(missing_ok=True)
            self.socket.unlink(missing_ok=True)
            return status.pid is not None

    def status(self) -> EmbeddedStatus:
        """Return whether the server runs. ConfigurationError if the directory, or the process that answers, belongs to another user."""
        check_home(self.home)
        facts = _ask(str(self.socket))
        if facts:
            state = "loading" if facts.get("loading") == "1" else "running"
            release = facts.get("valkey_version") or facts.get("redis_version", "")
            server = f"{'Valkey' if 'valkey_version' in facts else 'Redis'} {release}"
            return self._status(state, int(facts["process_id"]), server, facts.get("aof_enabled") == "1")
        pid = self._written_pid()
        return self._status("stuck", pid) if pid else self._status("stopped", None)

    def _status(self, state: str, pid: int | None, server: str | None = None, persistent: bool | None = None) -> EmbeddedStatus:
        return EmbeddedStatus(state, pid, self.url, str(self.home), str(self.log), server, persistent)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock while starting and stopping. Its file stays: without it two starters could lock two files of one name."""
        import fcntl  # Windows, where people only enqueue, has none

        check_home(self.home)
        fd = open_own(self.home / "redis.lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def _close_to_others(self) -> None:
        """Remove other users' permissions on our files, however open the home itself is."""
        kept = self.home / "appendonlydir"
        names = ("redis.lock", "redis.log", "redis.pid", "dump.rdb", "appendonly.aof")
        for path in (*map(self.home.joinpath, names), kept, *kept.glob("*")):
            close_to_others(path)

    def _launch(self, server: ServerBinary) -> None:
        self.socket.unlink(missing_ok=True)
        keep = ["--appendonly", "yes", "--appendfsync", self.fsync] if self.persistent else ["--save", "", "--appendonly", "no"]
        command = [
            *(server.path, "--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "700"),
            *("--dir", str(self.home), "--daemonize", "no", "--maxmemory-policy", "noeviction", *keep),
        ]
        with open(open_own(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.home,
                start_new_session=True,
                umask=0o077,
                preexec_fn=None if self.persistent else _death_pact(),
            )
        write_own(self._pid_file, f"{self.process.pid}\n")

    def _await_ready(self) -> None:
        begun = time.monotonic()
        while True:
            status = self.status()
            if status.running:
                return
            ended = self.process is not None and self.process.poll() is not None
            limit = _LOAD_TIMEOUT if status.state == "loading" else _START_TIMEOUT
            if ended or time.monotonic() - begun > limit:
                break
            time.sleep(0.005)
        if self.process is not None and not ended:
            self._end(self.process.pid)
        what = f"ended with status {self.process.returncode}" if ended and self.process else f"did not answer within {limit:g} s"
        what += "" if self.process else f" although it runs; try `{program.name()} redis stop`"
        raise ConfigurationError(
            f"the built-in Redis {what}; the end of its log, {self.log}:\n{self._log_tail()}", code="FUS-212"
        )

    def _log_tail(self) -> str:
        with open(open_own(self.log, os.O_RDONLY), "rb") as file:
            file.seek(max(0, os.path.getsize(self.log) - 2000))
            return b"\n".join(file.read().splitlines()[-10:]).decode(errors="replace")

    def _end(self, pid: int) -> None:
        if not self._is_ours(pid):
            raise ConfigurationError(
                f"the built-in Redis of {self.home} does not run on this machine, or not in this container; stop it there",
                code="FUS-212",
            )
        for number in (signal.SIGTERM, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline = time.monotonic() + _STOP_TIMEOUT
            while time.monotonic() < deadline:
                ended = self.process is not None and self.process.pid == pid and self.process.poll() is not None
                if ended or not self._is_ours(pid):
                    return
                time.sleep(0.005)
        raise ConfigurationError(f"the built-in Redis, pid {pid}, does not end; look at {self.log}", code="FUS-212")

    def _written_pid(self) -> int | None:
        """Return the process of the pid file if that is still our server: pids are reused."""
        try:
            pid = int(read_own(self._pid_file))
        except (OSError, ValueError):
            return None
        return pid if self._is_ours(pid) else None

    def _is_ours(self, pid: int) -> bool:
        """Return True if the command line names our socket; it does both before and after the server has renamed itself."""
        if os.path.isdir("/proc/self"):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                return False
        else:
            line = subprocess.run(["ps", "-ww", "-o", "command=", "-p", str(pid)], capture_output=True, check=False).stdout
        return os.fsencode(self.socket) in line


def _death_pact() -> Callable[[], object] | None:
    """Return a function that asks the kernel (Linux), from inside the new process, to kill it when its parent dies. A killed test run then
    leaves no server behind."""
    if platform.system() != "Linux":
        return None
    import ctypes

    libc = ctypes.CDLL(None)  # before the fork
    return lambda: libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _ask(path: str) -> dict[str, Any] | None:
    """Return INFO of the server at `path`, without a Redis client; None if there is no reply in time."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(_ANSWER_TIMEOUT)
            sock.connect(path)
            check_socket(path, sock)
            sock.sendall(b"INFO\r\n")
            answer = b""
            while chunk := sock.recv(65536):
                answer += chunk
                head, _, body = answer.partition(b"\r\n")
                if not head.startswith(b"$") or len(body) >= int(head[1:]) + 2:
                    break
    except (OSError, ValueError):
        return None
    facts = dict(re.findall(r"^(\w+):(.*?)\r?$", answer.decode(errors="replace"), re.MULTILINE))
    return facts if "process_id" in facts else None
