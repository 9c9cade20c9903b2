"""Tasks that do to their process whatever a task can."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn


def exit_zero() -> NoReturn:
    os._exit(0)


def exit_seven() -> NoReturn:
    os._exit(7)


def system_exit() -> NoReturn:
    sys.exit("bye")


def keyboard_interrupt() -> NoReturn:
    raise KeyboardInterrupt


def generator_exit() -> NoReturn:
    raise GeneratorExit


class Custom(BaseException):
    pass


def base_exception() -> NoReturn:
    raise Custom("not an Exception")


def segfault() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)


def abort() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.abort()


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop_self() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def eat_memory() -> None:
    limit = 512 * 1024 * 1024
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    bytearray(limit * 2)


def spin() -> None:
    while True:
        pass


def c_loop() -> int:
    return sum(range(3 * 10**9))


def bare_except() -> None:
    while True:
        try:
            time.sleep(60)
        except:  # noqa: E722
            pass


def ignore_alarm() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    time.sleep(60)


def alarm_off() -> None:
    signal.alarm(0)
    time.sleep(60)


def block_signals() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    time.sleep(60)


def own_handlers() -> None:
    for signum in (signal.SIGALRM, signal.SIGTERM):
        signal.signal(signum, lambda *_: None)
    while True:
        time.sleep(60)


def other_group() -> None:
    os.setpgid(0, os.getpgid(os.getppid()))
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(60)


def close_many() -> str:
    os.closerange(3, 1024)
    return "done"


def close_std() -> str:
    for fd in (0, 1, 2):
        os.close(fd)
    with contextlib.suppress(OSError):
        print("into nothing")
    return "done"


def close_all() -> str:
    os.closerange(3, 65536)
    return "done"


def replace_channel() -> str:
    """Another socket under the number of Fusion's."""
    ours = [int(name) for name in os.listdir("/proc/self/fd") if int(name) >= 1024]
    a, b = socket.socketpair()
    for fd in ours:
        os.dup2(a.fileno(), fd)
    b.detach()
    return "done"


def write_garbage() -> None:
    for fd in (int(name) for name in os.listdir("/proc/self/fd") if int(name) >= 1024):
        with contextlib.suppress(OSError):
            os.write(fd, b"\xff" * 64)
    time.sleep(60)


def start_sleeper(path: str, new_session: bool, keep_fds: bool = False) -> None:
    child = subprocess.Popen(["sleep", "600"], start_new_session=new_session, close_fds=not keep_fds)
    note(path, child.pid)


def start_sleeper_with_all_fds(path: str) -> None:
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            os.set_inheritable(int(name), True)
    start_sleeper(path, True, keep_fds=True)


def double_fork(path: str) -> None:
    first = os.fork()
    if first == 0:
        os.setsid()
        second = os.fork()
        if second == 0:
            note(path, os.getpid())
            for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                signal.signal(signum, signal.SIG_IGN)
            while True:
                time.sleep(60)
        os._exit(0)
    os.waitpid(first, 0)


def session_chain(path: str) -> None:
    """A daemon with a daemon with a daemon below it, and the horse dies at once."""
    for _ in range(3):
        if os.fork() != 0:
            break
        os.setsid()
        note(path, os.getpid())
    else:
        while True:
            time.sleep(60)
    if os.getpid() != os.getpgid(0) or os.getsid(0) == os.getpid():
        while True:
            time.sleep(60)
    wait_for_lines(path, 3)
    os._exit(3)


def many_children(path: str, count: int) -> None:
    for _ in range(count):
        start_sleeper(path, True)


def fork_and_return() -> str:
    """Both processes return from the task."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return "parent"
    return "child"


def note(path: str, pid: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, b"%d\n" % pid)
    os.close(fd)


def wait_for_lines(path: str, count: int) -> None:
    while True:
        with contextlib.suppress(OSError), open(path) as file:
            if len(file.readlines()) >= count:
                return
        time.sleep(0.005)


def leak_state() -> None:
    os.chdir("/")
    os.umask(0)
    os.environ["LEAKED"] = "1"
    sys.path.insert(0, "/leaked")
    os.nice(5)
    sys.setrecursionlimit(5000)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    globals()["leaked"] = True


def probe_state() -> dict[str, Any]:
    mask = os.umask(0o22)
    return {
        "cwd": os.getcwd(),
        "umask": mask,
        "environ": "LEAKED" in os.environ,
        "path": "/leaked" in sys.path,
        "nice": os.nice(0),
        "recursion": sys.getrecursionlimit(),
        "term": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
        "global": "leaked" in globals(),
    }


def big_bytes(size: int) -> bytes:
    return bytes(size)


def big_list(size: int) -> list[str]:
    return ["x" * 1000] * (size // 1000)


def returns_lambda() -> Any:
    return lambda: None


def returns_file() -> Any:
    return open(os.devnull)  # noqa: SIM115


def returns_loop() -> Any:
    loop: list[Any] = []
    loop.append(loop)
    return loop


class HostileResult(dict):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        raise SystemExit("iterating me ends the process")

    def keys(self) -> Any:
        raise SystemExit("so does this")


def returns_hostile() -> Any:
    return HostileResult(a=1)


def recurse(depth: int = 0) -> int:
    return recurse(depth + 1) + 1


class StrRaises(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message for you")


class StrExits(Exception):
    def __str__(self) -> str:
        sys.exit(9)


class Lying(type):
    def __getattribute__(cls, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class CauseRaises(Exception):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no cause")


def hostile_exception(kind: str) -> NoReturn:
    if kind == "str raises":
        raise StrRaises
    if kind == "str exits":
        raise StrExits
    if kind == "lying class":
        raise Lying("Liar", (Exception,), {})("who am I")
    if kind == "cause raises":
        raise CauseRaises("look into my cause")
    if kind == "surrogates":
        raise ValueError("lone \udcff\ud800 and \x1b[31mred\x1b[0m and \u202eevil")
    if kind == "big":
        raise ValueError("head " + "x" * (10 * 1024 * 1024) + " tail")
    if kind == "loop":
        one, two = ValueError("one"), ValueError("two")
        one.__cause__, two.__cause__ = two, one
        raise one
    if kind == "notes":
        error = ValueError("with notes")
        error.__notes__ = 7  # type: ignore[assignment]
        raise error
    raise AssertionError(kind)


def stray_thread() -> str:
    threading.Thread(target=time.sleep, args=(600,), daemon=False).start()
    return "done"


def atexit_hang() -> str:
    atexit.register(time.sleep, 600)
    return "done"


def atexit_writes(path: str) -> None:
    atexit.register(note, path, 1)


def atexit_blocked() -> str:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    atexit.register(time.sleep, 600)
    return "done"


def flood(megabytes: int) -> str:
    block = "\x1b[31m" + "y" * 1018 + "\n"
    for _ in range(megabytes):
        sys.stdout.write(block * 1024)
    return "done"


def terminated_child() -> int:
    """How a program started by a task dies of SIGTERM: with handlers of Fusion's or SIG_IGN it would not."""
    return subprocess.run(["sh", "-c", "kill -TERM $$; sleep 5"], check=False).returncode


def late_alarm(seconds: float) -> str:
    """Returns just when the soft timeout strikes."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass
    return "done"


def start_sleeper_and_wait(path: str) -> None:
    note(path, os.getpid())
    start_sleeper(path, True)
    time.sleep(60)


def start_sleeper_and_end_with_it(path: str, go: str) -> str:
    child = subprocess.Popen(["sleep", "600"], start_new_session=True)
    note(path, os.getpid())
    note(path, child.pid)
    while not os.path.exists(go):
        time.sleep(0.005)
    return "its child lived" if child.poll() is None else "its child was killed"
