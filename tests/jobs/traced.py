"""Tasks that say what others must not see, and make spans of their own. `CODE` is what an OTP looks like."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from pathlib import Path

from opentelemetry import trace

from fusion import Queue, get_current_job
from fusion.retry import Retry

CODE, OTHER = "493817", "8264"
log = logging.getLogger("tests.traced")


def works() -> str:
    """Logs, prints and returns codes, within a span of its own."""
    with trace.get_tracer("shop").start_as_current_span("look up"):
        log.warning("the code is %s", CODE)
        print("and", OTHER)
    trace.get_current_span().set_attribute("shop.order", "A-7")
    return CODE


async def works_async() -> str:
    with trace.get_tracer("shop").start_as_current_span("look up"):
        await asyncio.sleep(0.01)
        log.warning("the code is %s", CODE)
        print("and", OTHER)
    trace.get_current_span().set_attribute("shop.order", "A-7")
    return CODE


def fails_twice() -> None:
    """Fails in the first two runs."""
    job = get_current_job()
    with trace.get_tracer("shop").start_as_current_span("charge"):
        if job.attempts < 2:
            raise ConnectionError(f"wrong code {CODE}, attempt {job.attempts}")


def enqueues(queue: str) -> None:
    Queue(queue).enqueue("tests.jobs.traced.works", retry=Retry(max=0))


def dies(started: str = "") -> None:
    """Is killed from outside, long after a span of its own has ended."""
    with trace.get_tracer("shop").start_as_current_span("before"):
        time.sleep(0.15)
    if started:
        Path(started).touch()
        time.sleep(60)
    os.kill(os.getpid(), signal.SIGKILL)


def hangs(started: str) -> None:
    """Writes the pid of its process, and runs until it is stopped."""
    part = Path(f"{started}.part")
    part.write_text(str(os.getpid()))
    part.rename(started)
    while True:
        time.sleep(0.02)


def many(count: int, size: int = 1000) -> None:
    for at in range(count):
        with trace.get_tracer("shop").start_as_current_span(f"part {at}") as span:
            span.set_attribute("text", "x" * size)


def fails(to: str = "", otp: str = "") -> None:
    raise ConnectionError(f"wrong code {CODE}")


def logs_errors() -> str:
    log.error("no balance for code %s", CODE)
    return OTHER
