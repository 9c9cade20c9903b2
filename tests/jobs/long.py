"""Long tasks: they say how far they are, and go on where an earlier run got to."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fusion import get_current_job
from fusion.context import CurrentJob


def current() -> CurrentJob:
    found = get_current_job()
    assert found is not None
    return found


def noted(path: str, text: object) -> None:
    """One line, written at once and whole."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(fd, f"{text}\n".encode())
    finally:
        os.close(fd)


def await_end_of(gate: str) -> None:
    while os.path.exists(gate):
        time.sleep(0.005)


def tells(gate: str, total: int = 3) -> str:
    """Says how far it is, and waits while the file at `gate` is there."""
    for done in range(total):
        current().progress(done, total, f"stage {done}")
    await_end_of(gate)
    current().progress(total, total, "all")
    return "done"


def tells_much(times: int) -> float:
    begin = time.monotonic()
    for done in range(times):
        current().progress(done + 1, times)
    return time.monotonic() - begin


def tells_wrongly(kinds: dict[str, list[Any]]) -> dict[str, str]:
    """The errors that these arguments raise; in JSON there is no NaN."""
    found = {}
    for kind, args in kinds.items():
        try:
            current().progress(*(float("nan") if arg == "nan" else arg for arg in args))
            found[kind] = "nothing"
        except (TypeError, ValueError) as error:
            found[kind] = type(error).__name__
    return found


def tells_then_dies(done: int) -> None:
    current().progress(done, 10)
    os.abort()


def tells_then_fails(done: int) -> None:
    for step in range(done + 1):
        current().progress(step, 10)
    raise ValueError("after that")


def steps(path: str, count: int, pause: float = 0.0) -> int:
    """Notes each step; returns how many this run did."""
    done = 0
    for step in current().iterate(range(count)):
        noted(path, step)
        done += 1
        time.sleep(pause)
    return done


def stands_still(path: str, count: int, gate: str) -> None:
    """Notes each step, and at the third waits while the file at `gate` is there."""
    for step in current().iterate(range(count)):
        noted(path, step)
        if step == 2:
            await_end_of(gate)


def rows_after(last: str | None) -> Iterator[dict[str, str]]:
    for letter in "abcdefghij":
        if last is None or letter > last:
            yield {"id": letter}


def keyed_steps(path: str, gate: str) -> str:
    for row in current().iterate(rows_after, cursor=lambda row: row["id"]):
        noted(path, row["id"])
        if row["id"] == "c":
            await_end_of(gate)
    return str(current().cursor)


def checkpoints(path: str, cursor: Any, gate: str, wait: bool = True) -> Any:
    """Notes the cursor it found, sets one, and waits while the file at `gate` is there."""
    noted(path, repr(current().cursor))
    current().checkpoint(cursor, wait=wait)
    noted(path, "stored")
    await_end_of(gate)
    current().checkpoint(cursor)
    return current().cursor


def asks_for_word(path: str, gate: str) -> None:
    """Once the file at `gate` is gone, sets a cursor and waits for that to be stored, and notes what it does."""
    noted(path, "here")
    await_end_of(gate)
    noted(path, "asks")
    current().checkpoint(1, wait=True)
    noted(path, "stored")


def runs_on(gate: str) -> str:
    """Says nothing of itself."""
    await_end_of(gate)
    return "to its end"


def fails_twice(path: str, count: int) -> int:
    """Fails amid step 20 and step 40, of which the worker learns nothing more."""
    for step in current().iterate(range(count)):
        noted(path, step)
        if step in (20, 40) and current().attempts == step // 20 - 1:
            raise ConnectionError(f"at {step}")
    return current().attempts


def slow_steps(path: str, count: int, pause: float) -> int:
    """Notes each step with its process, and says how far it is."""
    for step in current().iterate(range(count)):
        noted(path, f"{step} {os.getpid()}")
        current().progress(step + 1, count)
        time.sleep(pause)
    return count


def allowed_steps(path: str, count: int, pause: float) -> int:
    """Do the same as `slow_steps`, but wait before each step beyond the number in the file `path`.allowed."""
    allowed = Path(path + ".allowed")
    for step in current().iterate(range(count)):
        while step >= int(allowed.read_text() or 0):
            time.sleep(pause)
        noted(path, f"{step} {os.getpid()}")
        current().progress(step + 1, count)
        time.sleep(pause)
    return count
