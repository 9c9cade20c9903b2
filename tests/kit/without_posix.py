"""A Python that lacks what Windows lacks, for `tests/store/test_windows.py`: `python -m tests.kit.without_posix CODE`."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import sysconfig
from functools import partial
from importlib.abc import MetaPathFinder
from types import SimpleNamespace
from typing import Any, NoReturn

import redis  # before anything is taken away: on Windows it has other ways, as the standard library has
import redis.asyncio

MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
LACKING: dict[Any, str] = {
    os: """fork forkpty register_at_fork getuid geteuid getgid getegid getpgid setsid killpg uname sysconf pread pwrite mkfifo waitid wait
        O_NOFOLLOW O_NONBLOCK O_CLOEXEC O_DIRECTORY sched_getaffinity getloadavg set_blocking WNOHANG memfd_create pidfd_open""",
    socket: "AF_UNIX SO_PEERCRED MSG_DONTWAIT MSG_NOSIGNAL SCM_RIGHTS TCP_USER_TIMEOUT",
    signal: """SIGKILL SIGQUIT SIGHUP SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGSTOP SIGCONT SIGTSTP SIGPIPE alarm setitimer pthread_sigmask
        pthread_kill sigwait ITIMER_REAL SIG_BLOCK SIG_UNBLOCK""",
}


class Missing(MetaPathFinder):
    """Finds none of the modules that are not there."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        if fullname in MODULES:
            self.refuse(fullname)

    @staticmethod
    def refuse(name: str) -> NoReturn:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def main(code: str) -> None:
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Missing())
    vars(socket)["socketpair"] = partial(socket.socketpair, socket.AF_UNIX)  # there it makes one of TCP
    for module, names in LACKING.items():
        for name in names.split():
            vars(module).pop(name, None)
    sysconfig.get_config_vars()  # while it finds those of this platform
    vars(shutil)["_winapi"] = SimpleNamespace(
        NeedCurrentDirectoryForExePath=lambda name: False
    )  # what `which` asks there, from 3.12 on
    sys.platform = "win32"  # not os.name, by which paths choose a class that works nowhere else
    exec(code, {"redis": redis})


if __name__ == "__main__":
    main(sys.argv[1])
