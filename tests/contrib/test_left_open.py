"""A job that leaves a transaction open: what the next jobs of its process write is committed all the same, whatever the executor."""

from __future__ import annotations

from pathlib import Path

import pytest

from fusion import Job, Queue
from tests.contrib.harness import Managed, Manages
from tests.kit.waiting import eventually, unhurried

TASKS = "tests.contrib.shop.orders.tasks"
FLAGS = {
    "pool": ("--horses", "1"),
    "thread": ("--executor", "thread", "--threads", "2"),
    "asyncio": ("--executor", "asyncio", "--concurrency", "4"),
}


def _worker(manages: Manages, executor: str) -> Managed:
    return manages.start("fusion_worker", *FLAGS[executor], "--skip-checks").ready()


def _run(task: str, *args: str) -> Job:
    job = Queue("mail").enqueue(f"{TASKS}.{task}", *args)
    eventually(lambda: job.get_status() in ("finished", "failed"), unhurried(20))
    return job


def _numbers() -> set[str]:
    from tests.contrib.shop.orders.models import Order

    return set(Order.objects.values_list("number", flat=True))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("executor", FLAGS)
@pytest.mark.parametrize("task", ["leave_open", "leave_open_later"])
def test_a_transaction_that_a_job_leaves_open_takes_no_later_ones_writes(manages: Manages, executor: str, task: str) -> None:
    worker = _worker(manages, executor)
    first = _run(task, "left")
    threads = {_run(name, name).result for name in ("write", "write_later")}
    assert _numbers() == {"write", "write_later"}, "the open one is rolled back, and nothing else"
    if (executor, task) != ("pool", "leave_open_later"):  # there a thread is left, and the process is replaced
        assert f"job {first.id} ({TASKS}.{task}) ended with a transaction of default open, which is rolled back" in worker.output
    if executor == "asyncio" and task == "leave_open_later":
        assert first.result in threads, "in the same thread, with the same connection"


@pytest.mark.timeout(120)
@pytest.mark.parametrize("executor", ["thread", "asyncio"])
def test_a_transaction_that_another_job_holds_is_not_ended_by_who_ends(manages: Manages, tmp_path: Path, executor: str) -> None:
    """Coroutines share the connections of one thread. One that holds a transaction over an await has it until it leaves it."""
    _worker(manages, executor)
    at, leave = tmp_path / "at", tmp_path / "leave"
    holds = Queue("mail").enqueue(f"{TASKS}.hold_open", "held", str(at), str(leave))
    eventually(at.exists, unhurried(20))
    _run("write_later", "beside")
    leave.touch()
    eventually(lambda: holds.get_status() in ("finished", "failed"), unhurried(20))
    assert holds.get_status() == "finished"
    assert _numbers() == {"held", "beside"}
