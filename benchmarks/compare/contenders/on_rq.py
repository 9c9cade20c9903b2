"""RQ: four workers, one of them for OTPs alone, the others take OTPs first; retries, with the scheduler that they need; `rq cron`.

A job that its worker abandoned is retried as one that failed, so each job has a `Retry`. The webhook is a job that depends on the mail: RQ's own
`Webhook` is sent once, by the worker, and its failures are logged alone.
"""

from __future__ import annotations

from redis import Redis
from rq import Queue, Retry, cron

from benchmarks.compare import service
from benchmarks.compare.contenders import URL

PACKAGE = "rq"
ENV: dict[str, str] = {}
RETRY = {"max": 3, "interval": [10, 30, 60]}

if __name__ != "__main__":
    cron.register(service.tick, "mail", cron="* * * * *")


def commands() -> list[list[str]]:
    worker = ["-m", "rq.cli", "worker", "--url", URL, "--with-scheduler"]
    kept, shared = [*worker, "otp"], [*worker, "otp", "mail", "webhook"]
    return [kept, shared, shared, shared, ["-m", "rq.cli", "cron", "--url", URL, "benchmarks.compare.contenders.on_rq"]]


def enqueue(kind: str, job: str, seconds: float) -> None:
    connection = Redis.from_url(URL)
    retry = Retry(**RETRY)
    if kind == "otp":
        Queue("otp", connection=connection).enqueue(service.otp, job, retry=retry)
    elif kind == "poison":
        Queue("mail", connection=connection).enqueue(service.poison, job, retry=retry)
    else:
        sent = Queue("mail", connection=connection).enqueue(service.mail, job, seconds, retry=retry)
        if kind == "told":
            Queue("webhook", connection=connection).enqueue(service.webhook, job, depends_on=sent, retry=Retry(**RETRY))
