"""Tasks as programs for RQ have them."""

from __future__ import annotations

from typing import Any

from fusion.rq import get_current_job


def add(a: int, b: int = 0) -> int:
    return a + b


def given(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


def fail() -> None:
    raise ValueError("no")


def progress() -> list[str]:
    job = get_current_job()
    assert job is not None
    job.meta["progress"] = 50
    job.save_meta()
    return [job.id, job.get_id(), job.get_status(), job.origin]


def by_connection(key: str) -> str:
    job = get_current_job()
    assert job is not None
    job.connection.set(key, job.id)
    job.refresh()
    return type(job.meta).__name__


async def append_itself(found: list[object]) -> int:
    found.append(get_current_job())
    return 42


def odd() -> object:
    return object()


def note_success(job: Any, connection: Any, result: Any) -> None:
    connection.set(f"success:{job.id}", f"{result} {job.get_status()}")


def note_failure(job: Any, connection: Any, kind: Any, value: Any, traceback: Any) -> None:
    connection.set(f"failure:{job.id}", f"{kind.__name__} {value} {job.is_failed}")


def fail_while(key: str) -> str:
    job = get_current_job()
    assert job is not None
    if job.connection.exists(key):
        raise RuntimeError(key)
    return "well"


def nap(seconds: float) -> str:
    import time

    time.sleep(seconds)
    return "slept"


def nap_once(path: str, seconds: float) -> str:
    """Sleep this long in the first run alone."""
    import time
    from pathlib import Path

    first = not Path(path).exists()
    Path(path).touch()
    time.sleep(seconds if first else 0)
    return "slept"


def swallow(seconds: float) -> str:
    import time

    try:
        time.sleep(seconds)
    except Exception as error:
        time.sleep(1.2)
        return type(error).__name__
    return "not interrupted"


def here() -> int:
    import os

    return os.getpid()


def remember(key: str, value: str) -> str:
    job = get_current_job()
    assert job is not None
    job.meta[key] = value
    job.save_meta()
    return str(job.get_meta()[key])


def first_handler(job: Any, kind: Any, value: Any, traceback: Any) -> bool:
    job.connection.rpush("handled", f"first {job.id} {kind.__name__}")
    return True


def last_handler(job: Any, kind: Any, value: Any, traceback: Any) -> bool:
    job.connection.rpush("handled", f"last {value}")
    return True


def broken_handler(job: Any, kind: Any, value: Any, traceback: Any) -> bool:
    raise RuntimeError("handler")


async def soon(value: int) -> int:
    return value


def count(path: str, fails_at: list[int] | None = None) -> list[object]:
    """Add a line to a file; return the path and the number of lines."""
    with open(path, "a+") as file:
        file.write("run\n")
        file.seek(0)
        number = len(file.readlines())
    if number in (fails_at or ()):
        raise ValueError(f"run {number}")
    return [path, number]


def note_run(job: Any, connection: Any, result: Any) -> None:
    path, number = result
    with open(f"{path}.heard", "a") as file:
        file.write(f"{number}\n")


def take_away(path: str) -> str | None:
    import os

    if not os.path.exists(path):
        return None
    os.unlink(path)
    return "it was there"


def stop_itself() -> None:
    from fusion.rq.command import send_stop_job_command

    job = get_current_job()
    assert job is not None
    send_stop_job_command(job.connection, job.id)
    nap(60)


def die_once(path: str) -> str:
    import os
    import signal

    if not os.path.exists(path):
        open(path, "x").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"
