"""A spare that waits runs a job that does nothing: the pages are its own by the time a job comes, and nobody else notices."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import pytest

from tests.forkserver.driver import Driver, job_fields

MODULE = "tests.jobs.rehearsed"
#: Without a timeout: it does not touch the alarm itself.
COMPARE = job_fields(f"{MODULE}.compare", timeout="")


def rehearsing(hook: str = "note") -> Driver:
    return Driver(modules=(MODULE,), after_fork=f"{MODULE}.{hook}")


def faults_of(pid: int) -> int:
    with open(f"/proc/{pid}/stat") as file:
        return int(file.read().rpartition(")")[2].split()[7])


def after_a_pause(driver: Driver) -> Any:
    """What a spare says that has waited until it touches nothing more."""
    horse = driver.server.fork()
    pid = driver.wait_until(horse.known_pid, "its pid")
    before, since = -1, time.monotonic()
    while (now := faults_of(pid)) != before or time.monotonic() < since + 0.2:
        if now != before:
            before, since = now, time.monotonic()
        time.sleep(0.01)
    return driver.finish(driver.hand_out(COMPARE, horse)).result


def test_a_spare_that_waits_rehearses_without_a_trace() -> None:
    with rehearsing() as driver:
        assert after_a_pause(driver) == [2, []]


@pytest.mark.parametrize("hook", ["note_with_alarm", "note_with_handler", "note_with_thread"])
def test_a_spare_does_not_rehearse_beside_user_threads(hook: str) -> None:
    with rehearsing(hook) as driver:
        assert after_a_pause(driver) == [1, []]


def test_a_spare_does_not_rehearse_with_a_job() -> None:
    with rehearsing() as driver:
        assert driver.server.pid is not None
        os.kill(driver.server.pid, signal.SIGSTOP)
        horse = driver.hand_out(COMPARE)
        os.kill(driver.server.pid, signal.SIGCONT)
        assert driver.finish(horse).result == [1, []]


def test_jobs_that_come_amid_it_run() -> None:
    with rehearsing() as driver:
        seen = set()
        for _ in range(40):
            horse = driver.server.fork()
            time.sleep(random.uniform(0.028, 0.036))  # about when it begins
            seen.add(driver.finish(driver.hand_out(COMPARE, horse)).result[0])
        assert seen <= {1, 2}
