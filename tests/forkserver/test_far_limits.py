"""Limits that are weeks, years or longer than all timers away: the server waits for the nearest, and runs the others' jobs as well."""

from __future__ import annotations

import os
import time

import pytest

from fusion.execution.perform import callback_limit
from fusion.runtime.loop import Loop
from tests.forkserver.driver import Driver, job_fields

#: 24.85 days are as many milliseconds as a C int holds.
FAR = [25 * 86400.0, 3650 * 86400.0, 1e9, 1e12, 1e300]


@pytest.mark.parametrize("seconds", FAR)
def test_a_job_may_have_a_very_long_timeout(seconds: float) -> None:
    with Driver() as driver:
        far = driver.hand_out(job_fields("tests.jobs.plain.add", 1, kwargs={"b": 1}, timeout=repr(seconds)))
        assert driver.finish(far).result == 2
        waiting = driver.hand_out(job_fields("tests.jobs.hostile.own_handlers", timeout=repr(seconds)))
        near = driver.hostile("bare_except", timeout="0.2")
        assert near.exited.why == "timeout", "a nearer limit is kept beside it"
        driver.server.kill(waiting, 9)
        assert driver.finish(waiting).exited.why == "killed"


@pytest.mark.parametrize("seconds", [*FAR, float("inf")])
def test_the_loop_waits_for_what_comes_first(seconds: float) -> None:
    loop, heard = Loop(), []
    reader, writer = os.pipe()
    loop.watch(reader, lambda: heard.append(os.read(reader, 1)))
    os.write(writer, b"x")
    began = time.monotonic()
    loop.run_once(seconds)
    assert heard == [b"x"]
    assert time.monotonic() - began < 5
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize(
    ("stored", "limit"), [(None, 60), (0, 60), (-1, 60), (float("nan"), 60), ("30", 30), (1e12, 1e9), (float("inf"), 1e9)]
)
def test_a_stored_limit_of_a_callback(stored: object, limit: float) -> None:
    """Both sides of the fork go by it: the alarm of the process, and the moment at which its group is killed."""
    assert callback_limit({"timeout": stored}) == limit
