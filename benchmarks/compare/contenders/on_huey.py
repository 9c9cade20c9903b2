"""Huey: process workers, priorities, retries, and the signal by which a task that a stop interrupts is put back.

One consumer is for OTPs, one for the rest. Huey does not acknowledge: a task that is taken is in the worker's memory alone.
"""

from __future__ import annotations

from huey import PriorityRedisHuey, crontab
from huey.signals import SIGNAL_INTERRUPTED

from benchmarks.compare import service
from benchmarks.compare.contenders import GRACE, URL

PACKAGE = "huey"
ENV: dict[str, str] = {}
HERE = "benchmarks.compare.contenders.on_huey"

quick = PriorityRedisHuey("otp", url=URL, results=False)
slow = PriorityRedisHuey("mail", url=URL, results=False)

otp = quick.task(retries=3, retry_delay=10, name="otp")(service.otp)
mail = slow.task(retries=3, retry_delay=10, name="mail")(service.mail)
webhook = slow.task(retries=3, retry_delay=10, name="webhook")(service.webhook)
poison = slow.task(retries=3, retry_delay=10, name="poison")(service.poison)
tick = slow.periodic_task(crontab(), name="tick")(service.tick)


@quick.signal(SIGNAL_INTERRUPTED)
def _put_back_otp(signal: str, task: object) -> None:
    quick.enqueue(task)


@slow.signal(SIGNAL_INTERRUPTED)
def _put_back(signal: str, task: object) -> None:
    slow.enqueue(task)


def commands() -> list[list[str]]:
    start = ["-m", "huey.bin.huey_consumer", "-k", "process", "-g", "TERM", "-t", str(GRACE)]
    return [[*start, "-w", "1", f"{HERE}.quick"], [*start, "-w", "3", f"{HERE}.slow"]]


def enqueue(kind: str, job: str, seconds: float) -> None:
    if kind == "otp":
        otp(job)
    elif kind == "poison":
        poison(job)
    elif kind == "told":
        slow.enqueue(mail.s(job, seconds).then(webhook.s(job)))
    else:
        mail(job, seconds)
