"""Dramatiq: retries as they come (20), a process for OTPs and three of one thread for the rest.

APScheduler enqueues the recurring job, as its cookbook has it.
"""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.compare import service
from benchmarks.compare.contenders import GRACE, URL

PACKAGE = "dramatiq"
ENV: dict[str, str] = {}
HERE = "benchmarks.compare.contenders.on_dramatiq"

dramatiq.set_broker(RedisBroker(url=URL))
otp = dramatiq.actor(service.otp, queue_name="otp")
mail = dramatiq.actor(service.mail, queue_name="mail")
webhook = dramatiq.actor(service.webhook, queue_name="webhook", min_backoff=10_000)
poison = dramatiq.actor(service.poison, queue_name="mail")
tick = dramatiq.actor(service.tick, queue_name="mail")


def commands() -> list[list[str]]:
    start = ["-m", "dramatiq", HERE, "--worker-shutdown-timeout", str(GRACE * 1000), "--threads", "1"]
    return [[*start, "--processes", "1", "-Q", "otp"], [*start, "--processes", "3", "-Q", "mail", "webhook"], ["-m", HERE]]


def enqueue(kind: str, job: str, seconds: float) -> None:
    if kind == "otp":
        otp.send(job)
    elif kind == "poison":
        poison.send(job)
    elif kind == "told":
        (mail.message(job, seconds) | webhook.message_with_options(args=(job,), pipe_ignore=True)).run()
    else:
        mail.send(job, seconds)


if __name__ == "__main__":
    from apscheduler.schedulers.blocking import BlockingScheduler
    from apscheduler.triggers.cron import CronTrigger

    scheduler = BlockingScheduler()
    scheduler.add_job(tick.send, CronTrigger.from_crontab("* * * * *"))
    scheduler.start()
