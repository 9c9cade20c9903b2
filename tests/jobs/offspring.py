"""Tasks that fork: what their children inherit, and whether those can be ended."""

from __future__ import annotations

import asyncio
import atexit
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from fusion import get_current_job

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_SHOW = (
    "import signal, sys\n"
    "print([signal.getsignal(n) in (signal.SIG_DFL, signal.default_int_handler) for n in map(int, sys.argv[1:])], signal.pthread_sigmask(0, ()))"
)


def _square(x: int) -> int:
    return x * x


def pool(rounds: int, method: str = "fork") -> int:
    """A pool's end terminates its processes: at once, also when they have hardly begun."""
    total = 0
    for n in range(rounds):
        with multiprocessing.get_context(method).Pool(2) as workers:
            if n % 2:
                total += sum(workers.map(_square, range(4)))
    return total


def terminated(method: str) -> int | None:
    """The exit code of a process that was asked to end."""
    child = multiprocessing.get_context(method).Process(target=time.sleep, args=(600,))
    child.start()
    child.terminate()
    child.join(5)
    code = child.exitcode
    child.kill()
    child.join()
    return code


def struck_at_birth(number: int, rounds: int) -> list[int]:
    """How forked children ended that got the signal at once."""
    found, parent = [], os.getpid()
    for _ in range(rounds):
        try:
            pid = os.fork()
            if pid == 0:
                time.sleep(10)
        finally:  # also of what is raised between the two
            if os.getpid() != parent:
                os._exit(1)
        os.kill(pid, number)
        found.append(_ended(pid, number))
    return found


def _ended(pid: int, number: int) -> int:
    """How a child ended that was sent the signal. Python drops an INT that comes while a fork hook of another module runs, with Fusion or
    without: `threading`, `logging` and `random` have such hooks. So a child that an INT has not ended within a second gets another."""
    until = time.monotonic() + 1
    while number == signal.SIGINT and time.monotonic() < until:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    if number == signal.SIGINT:
        os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def inherited() -> list[Any]:
    """In a forked child and in a program: whether each disposition is the usual one, and what is blocked."""

    def look() -> str:
        usual = [signal.getsignal(n) in (signal.SIG_DFL, signal.default_int_handler) for n in SIGNALS]
        return f"{usual} {signal.pthread_sigmask(signal.SIG_BLOCK, ())}"

    program = subprocess.run(
        [sys.executable, "-c", _SHOW, *map(str, map(int, SIGNALS))], capture_output=True, text=True, check=True
    )
    return [_in_child(look), program.stdout.strip(), look()]


def own_handlers() -> str:
    """What a task sets up itself, its children inherit, as anywhere."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGQUIT])

    def look() -> str:
        kept = callable(signal.getsignal(signal.SIGTERM)), signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        return f"{kept} {sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))}"

    return _in_child(look)


def _in_child(look: Callable[[], str]) -> str:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, look().encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with open(reader) as file:
        return file.read()


def forks_from_a_thread(number: int) -> list[int]:
    """A process forked by another thread than the main one."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: struck_at_birth(number, 5), range(4)))
    return [code for codes in found for code in codes]


def passes() -> str:
    """Gets the signals itself, after it has forked: they pass."""
    with multiprocessing.get_context("fork").Pool(1) as workers:
        workers.map(_square, [1])
    for number in SIGNALS:
        os.kill(os.getpid(), number)
    return "still here"


def ends(how: str, path: str = "") -> int:
    """The exit code of a child that comes back from this task: it raises, asks for an end, or returns."""
    if (pid := os.fork()) == 0:
        _leave(how, path)
        return -1
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


async def ends_on_loop(how: str, path: str = "") -> int:
    """The same in a coroutine, which does not let go of its loop between."""
    return ends(how, path)


async def forks_and_awaits(path: str) -> int:
    """The exit code of a child that awaits, and so gives the loop to whatever runs beside it."""
    if (pid := os.fork()) == 0:
        await asyncio.sleep(0.3)
        os.mkdir(path)
        os._exit(0)
    return os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, pid, 0))[1])


async def ticks(path: str, until: str) -> None:
    """Leaves the process's number again and again, until the other is over."""
    for _ in range(2000):
        with open(path, "a") as file:
            file.write(f"{os.getpid()}\n")
        if os.path.exists(until):
            return
        await asyncio.sleep(0.005)


def _leave(how: str, path: str) -> None:
    if how == "raise":
        raise ValueError(" ".join(("raised in a", "forked child")))
    if how == "exit":
        sys.exit(3)
    if how == "message":
        sys.exit("a message of a forked child")
    if how == "interrupt":
        raise KeyboardInterrupt
    if how == "meta":
        job = get_current_job()
        assert job is not None
        job.meta["by"] = "the child"
        job.save_meta()
    if how == "finish":
        atexit.register(os.write, os.open(path, os.O_WRONLY | os.O_CREAT), b"at exit")
        threading.Thread(target=lambda: (time.sleep(0.05), os.mkdir(path + ".thread")), daemon=False).start()
        sys.stdout.write("written by a forked child\n")


def calls_back(job: object, connection: object, *outcome: object) -> None:
    """A callback whose child raises."""
    job.meta["code"] = ends("exit")  # type: ignore[attr-defined]
