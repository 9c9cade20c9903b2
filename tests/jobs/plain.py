"""Tasks that behave, for the tests of the job process."""

from __future__ import annotations

import os
import resource
import signal
import time
from typing import Any

from fusion import get_current_job

order: list[str] = []


def add(a: int, b: int = 0) -> int:
    return a + b


def echo(*args: Any, **kwargs: Any) -> Any:
    return [args, kwargs]


def nothing() -> None:
    return None


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def fail(message: str = "it broke") -> None:
    raise ValueError(message)


async def coroutine(value: int) -> int:
    import asyncio

    await asyncio.sleep(0)
    return value + 1


async def coroutine_hangs() -> None:
    import asyncio

    await asyncio.sleep(60)


def needs_two(a: int, b: int) -> int:
    return a + b


def about_me() -> dict[str, Any]:
    job = get_current_job()
    assert job is not None
    return {
        "id": job.id,
        "origin": job.origin,
        "func_name": job.func_name,
        "args": list(job.args),
        "meta": job.meta,
        "description": job.description,
        "priority": job.priority,
        "timeout": job.timeout,
        "attempts": job.attempts,
        "log_tag": job.log_tag,
        "created_at": job.created_at,
    }


def sets_meta(save: bool) -> None:
    job = get_current_job()
    assert job is not None
    job.meta["step"] = 1
    if save:
        job.save_meta()
    job.meta["step"] = 2


def where_am_i() -> dict[str, Any]:
    channel = [int(name) for name in os.listdir("/proc/self/fd") if int(name) >= 1024]
    return {
        "pid": os.getpid(),
        "pgid": os.getpgid(0),
        "ppid": os.getppid(),
        "nofile": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
        "channel": channel,
        "fds": sorted(int(name) for name in os.listdir("/proc/self/fd")),
        "chld": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
        "order": list(order),
    }


def touch(path: str, then_sleep: float = 0.0) -> str:
    with open(path, "a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(then_sleep)
    return "touched"


def ok_callback(job: Any, connection: Any, result: Any) -> None:
    job.meta["callback"] = [job.id, connection, result]


def slow_callback(job: Any, connection: Any, result: Any) -> None:
    time.sleep(0.6)
    job.meta["callback"] = "slow"


def hanging_callback(job: Any, connection: Any, result: Any) -> None:
    time.sleep(60)


def raising_callback(job: Any, connection: Any, *rest: Any) -> None:
    raise RuntimeError("the callback broke")


def failure_callback(job: Any, connection: Any, kind: type[BaseException], value: BaseException, tb: Any) -> None:
    job.meta["callback"] = [kind.__name__, str(value), tb is not None]


def before_fork() -> None:
    order.append("before")


def after_fork() -> None:
    order.append("after")
