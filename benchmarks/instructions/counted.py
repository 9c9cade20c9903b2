"""A server of which each script call is counted: its instructions by valgrind's callgrind, and the commands that it runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import redis

from benchmarks.guard import guarded_home
from benchmarks.server import binary
from fusion.store.scripting.scripts import Script

#: The server's function that runs EVALSHA: callgrind counts inside it, and writes a file each time it returns.
_FUNCTION = "evalShaCommand"
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)
_CALLGRIND = ("--tool=callgrind", f"--toggle-collect={_FUNCTION}", f"--dump-after={_FUNCTION}")
_OUTSIDE_OF_SCRIPTS = {"cmdstat_evalsha", "cmdstat_info", "cmdstat_script|load"}


@dataclass(frozen=True)
class Call:
    """One call of a script. `instructions` is None without valgrind."""

    script: str
    commands: int
    instructions: int | None


def valgrind_is_here() -> bool:
    """Return whether valgrind is on PATH."""
    return shutil.which("valgrind") is not None


class CountedServer:
    """A server without persistence, on a unix socket. `counting` starts it anew with the same data; with `instructions`, under callgrind."""

    def __init__(self, *, instructions: bool) -> None:
        self.instructions = instructions

    def __enter__(self) -> CountedServer:
        self._home = tempfile.TemporaryDirectory(dir=guarded_home())
        self.path = Path(self._home.name)
        self._binary = binary()
        self.conn = redis.Redis.from_url(f"unix://{self.path}/redis.sock?db=0", socket_timeout=600)
        self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.conn.close()
        self._stop()
        self._home.cleanup()

    def _start(self, *under: str) -> None:
        server = [str(self._binary.path), "--port", "0", "--unixsocket", f"{self.path}/redis.sock", "--save", ""]
        log = self.path / "log"
        with log.open("wb") as output:
            command = [*under, *server, "--dir", str(self.path)]
            self._process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        while True:
            try:
                info = self.conn.info("server")
                break
            except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
                if self._process.poll() is not None:
                    raise RuntimeError(f"the server did not start:\n{log.read_text()[-2000:]}") from None
                time.sleep(0.01)
        kind = "Valkey" if info.get("server_name") == "valkey" else "Redis"
        self.name = f"{kind} {info.get('valkey_version', info['redis_version'])}"

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @contextmanager
    def counting(self) -> Iterator[list[Call]]:
        """Count the calls that brokers make inside the `with`."""
        found = list[Call]()
        original: Callable[..., Any] = Script.__call__

        def counted(script: Script, *args: Any, **more: Any) -> Any:
            self.conn.script_load(script.text)  # to compile it is no part of the call
            answers = list[Any]()
            name = script.before.removesuffix(".before")
            found.append(self.call(name, lambda: answers.append(original(script, *args, **more))))
            return answers[0]

        self.conn.save()
        self._stop()
        out = f"--callgrind-out-file={self.path}/out"
        self._start(*(["valgrind", *_CALLGRIND, out] if self.instructions else []))
        Script.__call__ = counted  # type: ignore[method-assign]
        try:
            yield found
        finally:
            Script.__call__ = original  # type: ignore[method-assign]

    def call(self, name: str, make: Callable[[], object]) -> Call:
        """Call `make`, which sends one EVALSHA, and return what the server counted."""
        for written in self._written():
            written.unlink()
        before = self._commands()
        make()
        return Call(name, self._commands() - before, self._instructions())

    def _commands(self) -> int:
        stats: dict[str, Any] = self.conn.info("commandstats")
        return sum(one["calls"] for name, one in stats.items() if name not in _OUTSIDE_OF_SCRIPTS)

    def _written(self) -> list[Path]:
        return list(self.path.glob("out.*"))

    def _instructions(self) -> int | None:
        if not self.instructions:
            return None
        totals = [_TOTAL.search(file.read_text()) for file in self._written()]
        if not any(totals):
            raise RuntimeError(f"callgrind counted nothing: does this server export {_FUNCTION}?")
        return sum(int(total[1]) for total in totals if total)
