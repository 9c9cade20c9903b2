"""Tasks for the tests of the kit; they run in the test's process, or in a worker's."""

from __future__ import annotations

from typing import Any

from fusion import Retry, get_current_job, job, recurring

ran: list[Any] = []


@job("kit")
def note(what: Any, n: int = 0) -> None:
    ran.append(what)


@job("kit")
def fail() -> None:
    raise ValueError("no")


@job("kit")
def fail_twice(what: str) -> int:
    ran.append(what)
    if ran.count(what) < 3:
        raise ConnectionError("away")
    return ran.count(what)


@job("kit")
def give(what: Any) -> Any:
    return what


@job("kit")
def double(what: int) -> int:
    ran.append(2 * what)
    return 2 * what


@job("kit")
def batch_ended(*args: Any) -> None:
    ran.append("batch")


@job("kit")
async def later(what: Any) -> None:
    ran.append(what)


@job("kit")
def spawn(what: str) -> None:
    note.delay(f"spawned {what}")


@job("kit")
def again() -> None:
    again.delay()


@recurring("30 4 * * *", queue="night", retry=Retry(max=2, interval=600))
def daily() -> None:
    ran.append("daily")
    raise ConnectionError("away")


def in_turn(job_id: str, fails: int) -> str:
    """Fails this often."""
    found = get_current_job()
    assert found is not None
    if found.attempts < fails:
        raise ConnectionError("away")
    return job_id
