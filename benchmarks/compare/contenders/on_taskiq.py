"""Taskiq: Redis streams, which acknowledge; retries; a broker with a process for OTPs, and one with three for the rest; its scheduler.

A message goes to another worker ten minutes after its worker fell silent, its default. One message is read at a time, as three processes share.
"""

from __future__ import annotations

import asyncio

from taskiq import SmartRetryMiddleware, TaskiqScheduler
from taskiq.schedule_sources import LabelScheduleSource
from taskiq_redis import RedisStreamBroker

from benchmarks.compare import service
from benchmarks.compare.contenders import GRACE, URL

PACKAGE = "taskiq"
ENV: dict[str, str] = {}
HERE = "benchmarks.compare.contenders.on_taskiq"


def _broker(name: str) -> RedisStreamBroker:
    made = RedisStreamBroker(url=URL, queue_name=name, consumer_group_name=name, xread_count=1, unacknowledged_lock_timeout=10)
    return made.with_middlewares(SmartRetryMiddleware(default_retry_count=3, default_retry_label=True, default_delay=10))


quick, slow = _broker("otp"), _broker("mail")
scheduler = TaskiqScheduler(slow, [LabelScheduleSource(slow)])

otp = quick.task(task_name="otp")(service.otp)
poison = slow.task(task_name="poison")(service.poison)
tick = slow.task(task_name="tick", schedule=[{"cron": "* * * * *"}])(service.tick)
webhook = slow.task(task_name="webhook")(service.webhook)


@slow.task(task_name="mail")
async def mail(job: str, seconds: float, told: bool) -> None:
    service.witness("start", "mail", job)
    await asyncio.sleep(seconds)
    service.witness("end", "mail", job)
    if told:
        await webhook.kiq(job)


_runner = asyncio.Runner()
_started = False


def commands() -> list[list[str]]:
    start = ["-m", "taskiq", "worker", "--max-async-tasks", "1", "--wait-tasks-timeout", str(GRACE)]
    return [
        [*start, "--workers", "1", f"{HERE}:quick"],
        [*start, "--workers", "3", f"{HERE}:slow"],
        ["-m", "taskiq", "scheduler", f"{HERE}:scheduler"],
    ]


def enqueue(kind: str, job: str, seconds: float) -> None:
    global _started
    if not _started:
        _runner.run(quick.startup())
        _runner.run(slow.startup())
        _started = True
    if kind == "otp":
        _runner.run(otp.kiq(job))
    elif kind == "poison":
        _runner.run(poison.kiq(job))
    else:
        _runner.run(mail.kiq(job, seconds, kind == "told"))
