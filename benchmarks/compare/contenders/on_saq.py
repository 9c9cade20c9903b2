"""SAQ: retries, and a timeout for each job, after which the sweep takes up what a dead worker had.

A process is for OTPs, one runs three of the rest at once. Tasks are coroutines; what blocks goes to a thread.
"""

from __future__ import annotations

import asyncio

from saq import CronJob, Queue

from benchmarks.compare import service
from benchmarks.compare.contenders import GRACE, URL

PACKAGE = "saq"
ENV: dict[str, str] = {}
HERE = "benchmarks.compare.contenders.on_saq"
AGAIN = {"retries": 4, "retry_delay": 10}

quick = Queue.from_url(URL, name="otp")
slow = Queue.from_url(URL, name="mail")


async def otp(ctx: object, *, job: str) -> None:
    await asyncio.to_thread(service.otp, job)


async def mail(ctx: object, *, job: str, seconds: float, told: bool) -> None:
    service.witness("start", "mail", job)
    await asyncio.sleep(seconds)
    service.witness("end", "mail", job)
    if told:
        await slow.enqueue("webhook", job=job, timeout=20, **AGAIN)


async def webhook(ctx: object, *, job: str) -> None:
    await asyncio.to_thread(service.webhook, job)


async def poison(ctx: object, *, job: str) -> None:
    service.poison(job)


async def tick(ctx: object) -> None:
    service.tick()


kept = {"queue": quick, "functions": [otp], "concurrency": 1, "shutdown_grace_period_s": GRACE}
shared = {
    "queue": slow,
    "functions": [mail, webhook, poison],
    "concurrency": 3,
    "cron_jobs": [CronJob(tick, cron="* * * * *")],
    "shutdown_grace_period_s": GRACE,
}
_runner = asyncio.Runner()


def commands() -> list[list[str]]:
    return [["-m", "saq", f"{HERE}.kept"], ["-m", "saq", f"{HERE}.shared"]]


def enqueue(kind: str, job: str, seconds: float) -> None:
    if kind == "otp":
        _runner.run(quick.enqueue("otp", job=job, timeout=10, **AGAIN))
    elif kind == "poison":
        _runner.run(slow.enqueue("poison", job=job, timeout=10, **AGAIN))
    else:
        _runner.run(slow.enqueue("mail", job=job, seconds=seconds, told=kind == "told", timeout=60, **AGAIN))
