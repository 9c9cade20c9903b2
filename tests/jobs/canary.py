"""Tasks that do to what they are given everything that could make it show."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

from fusion import get_current_job
from fusion.log import Log


def keep(*args: Any, **kwargs: Any) -> Any:
    """Into result, meta and, as what it is, into lines of its own."""
    job = get_current_job()
    assert job is not None
    job.meta["given"] = [args, kwargs]
    job.save_meta()
    Log.log("call", authorization=kwargs.get("token"), headers=kwargs.get("headers"))
    Log.log(f"to https://user:{kwargs.get('token')}@example.com/?q={kwargs.get('token')} password={kwargs.get('token')}")
    return [args, kwargs]


def fail(*args: Any, **kwargs: Any) -> None:
    """An error whose text, cause and notes are the arguments."""
    try:
        raise KeyError(f"{args} {kwargs}")
    except KeyError as cause:
        error = ValueError(f"can't use {args} {kwargs} of {os.environ.get('CANARY')}\nsecond line")
        error.add_note(f"note {args}")
        raise error from cause


def linger(*args: Any, until: str = "", stubborn: bool = False, **kwargs: Any) -> None:
    """Run while the file at `until` is there, or for ever; a stubborn one ignores its timeout."""
    while not until or os.path.exists(until):
        try:
            time.sleep(0.005)
        except BaseException:
            if not stubborn:
                raise


def vanish(*args: Any, **kwargs: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def leave(*args: Any, **kwargs: Any) -> None:
    os._exit(3)


def unfit(*args: Any, **kwargs: Any) -> object:
    """A result that can't be stored."""

    class Result:
        def __repr__(self) -> str:
            return f"{args}"

    return Result()


def callback(*args: Any) -> None:
    """A callback that breaks, with all it knows in its error."""
    job = get_current_job()
    assert job is not None
    raise RuntimeError(f"{args} {job.args} {job.kwargs}")
