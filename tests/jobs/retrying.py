"""Tasks that ask to be run again. `botocore` is not needed: its error classes are made here, by name."""

from __future__ import annotations

import os
import signal
import sys
import time
import types

from fusion import Retry, RetryLater
from tests.jobs.basic import witness

botocore = types.ModuleType("botocore.exceptions")
botocore.ClientError = type("ClientError", (Exception,), {"__module__": "botocore.exceptions"})  # type: ignore[attr-defined]
Throttling = type("ThrottlingException", (botocore.ClientError,), {"__module__": "botocore.errorfactory"})


class Refused(ConnectionRefusedError):
    pass


class Busy(ConnectionError):
    retry_after = 0.2


def raising(name: str) -> None:
    """Fail with the error of this name."""
    if name.startswith("requests."):
        import requests

        raise getattr(requests.exceptions, name.partition(".")[2])("no answer")
    found = getattr(botocore, name, None) or globals().get(name) or getattr(sys.modules["builtins"], name)
    raise found("no answer")


def runs(path: str) -> int:
    witness(path, "run")
    with open(path) as file:
        return sum(1 for _ in file)


def returning(path: str, max_retries: int, after: float = 0) -> str | Retry:
    """Ask by a returned Retry until the third run."""
    count = runs(path)
    return f"run {count}" if count == 3 else Retry(max=max_retries, interval=after)


def later(path: str, seconds: float) -> str:
    count = runs(path)
    if count < 2:
        raise RetryLater(seconds, "not yet")
    return f"run {count}"


def busy(path: str) -> str:
    count = runs(path)
    if count < 3:
        raise Busy("busy")
    return f"run {count}"


def dying(path: str, number: int) -> str:
    """Killed by this signal at the first two runs."""
    count = runs(path)
    if count < 3:
        os.kill(os.getpid(), number or signal.SIGKILL)
        time.sleep(60)  # in a thread the process may live a moment longer
    return f"run {count}"


def exiting(code: int) -> None:
    os._exit(code)
