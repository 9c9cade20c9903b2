"""A process that has the command line loaded, and forks for each call: a call costs 10 ms instead of 200. `python -m tests.faults.crash.zygote`."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import fusion.cli
from tests.kit.process import ROOT


class Ended(NamedTuple):
    code: int
    output: str


class Zygote:
    """The test's end."""

    def __init__(self, preload: Sequence[str] = ()) -> None:
        """`preload`: modules besides those of the command line."""
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.crash.zygote", *preload], cwd=ROOT, stdin=pipe, stdout=pipe, text=True
        )

    def run(
        self, arguments: tuple[str, ...], failpoints: str = "", *, env: Mapping[str, str] | None = None, kill_after: float = 0.0
    ) -> Ended:
        """`python <arguments>`, with a program or `-c`, in this environment and what `env` adds. Killed `kill_after` seconds after
        its first line, if that is over 0."""
        process = self._process
        assert process.stdin and process.stdout
        given = {name: value for name, value in os.environ.items() if name.startswith("FUSION_")} | dict(env or {})
        process.stdin.write(json.dumps([arguments, failpoints, given, kill_after]) + "\n")
        process.stdin.flush()
        return Ended(*json.loads(process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate(timeout=10)


def _serve() -> None:
    for module in pkgutil.iter_modules(fusion.cli.__path__):
        importlib.import_module(f"fusion.cli.{module.name}")
    for name in sys.argv[1:]:
        importlib.import_module(name)
    for line in sys.stdin:
        arguments, failpoints, env, kill_after = json.loads(line)
        said = os.memfd_create("said") if hasattr(os, "memfd_create") else os.open("/dev/null", os.O_RDWR)
        pid = os.fork()
        if pid == 0:
            os.dup2(said, 1)
            os.dup2(said, 2)
            os.environ.update(env)
            _be(arguments, failpoints)
        over = threading.Event()
        killer = threading.Thread(target=_kill, args=(pid, said, kill_after, over))
        if kill_after:
            killer.start()
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # its pid is nobody else's yet
        over.set()
        if kill_after:
            killer.join()
        _, status = os.waitpid(pid, 0)
        os.lseek(said, 0, os.SEEK_SET)
        output = os.read(said, 65536).decode(errors="replace")
        os.close(said)
        print(json.dumps([os.waitstatus_to_exitcode(status), output]), flush=True)


def _kill(pid: int, said: int, seconds: float, over: threading.Event) -> None:
    while os.fstat(said).st_size == 0 and not over.wait(0.01):
        pass
    if not over.wait(seconds):
        os.kill(pid, signal.SIGKILL)


def _be(arguments: list[str], failpoints: str) -> None:
    code: Any = 0
    try:
        if failpoints:
            _arm(failpoints)
        program, *sys.argv[1:] = arguments
        if program == "-c":
            exec(arguments[1], {"__name__": "__main__"})  # noqa: S102
        else:
            sys.argv[0] = program
            runpy.run_path(program, run_name="__main__")
    except SystemExit as error:
        code = error.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1)


def _arm(spec: str) -> None:
    """As if the process had been started with it."""
    from fusion.kernel import failpoints

    armed = failpoints._Armed(spec)
    for module in list(sys.modules.values()):
        if getattr(module, "failpoint", None) is failpoints._nothing:
            module.failpoint = armed  # type: ignore[attr-defined]


if __name__ == "__main__":
    _serve()
