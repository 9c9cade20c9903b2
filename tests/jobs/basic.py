"""Tasks of the tests. Side effects go to files by one O_APPEND write: a witness that does not depend on Redis."""

from __future__ import annotations

import asyncio
import os
import signal
import time

from fusion import get_current_job
from fusion.decorators import job


def witness(path: str, word: str = "") -> str:
    """Note this run: `word job_id execution pid`."""
    current = get_current_job()
    line = f"{word} {current.id if current else '-'} {os.getpid()}\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(fd, line.encode())
    os.close(fd)
    return word


def noop(*args: object, **kwargs: object) -> None:
    return None


def add(a: int, b: int) -> int:
    return a + b


def echo(value: object) -> object:
    return value


def boom(message: str = "boom") -> None:
    raise ValueError(message)


def refused() -> None:
    raise ConnectionError("connection refused")


def sleep(seconds: float, path: str = "", word: str = "slept") -> str:
    if path:
        witness(path, f"begin-{word}")
    time.sleep(seconds)
    if path:
        witness(path, f"end-{word}")
    return word


def until_gone(path: str, started: str = "") -> str:
    """Run until the file at `path` is removed; `started` is noted first."""
    if started:
        witness(started, "started")
    while os.path.exists(path):
        time.sleep(0.005)
    return "gone"


def signal_self(number: int, path: str) -> None:
    """End as the OOM killer (SIGKILL) or an operator would have it."""
    witness(path, "signal")
    os.kill(os.getpid(), number)
    time.sleep(60)


def with_default_signals(path: str) -> None:
    """A task that undoes the handlers it was started with, as programs do that set up their own."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    witness(path, "default")
    time.sleep(60)


def write_frame(fields: str) -> None:
    """Write a frame of its own to the worker, over the socket that only Fusion should use."""
    import json

    from fusion.execution.frames import pack

    frame = pack({k.encode(): v.encode("utf-8", "surrogateescape") for k, v in json.loads(fields).items()})
    for fd in range(1024, 1100):
        try:
            os.write(fd, frame)
        except OSError:
            continue


async def later(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "async"


def who() -> dict[str, object]:
    current = get_current_job()
    assert current is not None
    return {"id": current.id, "origin": current.origin, "priority": current.priority, "args": list(current.args)}


def progress(steps: int) -> int:
    current = get_current_job()
    assert current is not None
    for step in range(steps):
        current.meta["step"] = step
        current.save_meta()
    return steps


@job("sms", priority=2)
def marked(x: int) -> int:
    return x * 2


def remember(job: object, connection: object, result: object) -> None:
    """An on_success callback."""
    with open(str(result), "a") as file:
        file.write(f"success {getattr(job, 'id', '?')} {connection}\n")


def complain(job: object, connection: object, kind: type[BaseException], value: BaseException, tb: object) -> None:
    """An on_failure callback; the failing task's message is a path."""
    with open(str(value), "a") as file:
        file.write(f"failure {getattr(job, 'id', '?')} {kind.__name__}\n")


def moment() -> float:
    """When the task began, by the wall clock."""
    return time.time()


def limit() -> float | None:
    """The timeout the task sees; None for no limit."""
    current = get_current_job()
    assert current is not None
    return current.timeout


def flaky(path: str, failures: int, word: str = "run") -> int:
    """Fails with ConnectionError until it has run `failures` times; returns the number of the run that succeeded."""
    witness(path, word)
    with open(path) as file:
        runs = sum(line.startswith(f"{word} ") for line in file)
    if runs <= failures:
        raise ConnectionError(f"refused, run {runs}")
    return runs


def noting(gate: str) -> str:
    """Shows its meta, waits while the file at `gate` is there, and leaves more meta when it ends."""
    current = get_current_job()
    assert current is not None
    current.meta["stage"] = "under way"
    current.save_meta()
    while os.path.exists(gate):
        time.sleep(0.005)
    current.meta["stage"] = "over"
    return str(current.meta.get("given"))


def breaking_callback(*args: object) -> None:
    """A callback that has a bug."""
    raise RuntimeError("the callback broke")
