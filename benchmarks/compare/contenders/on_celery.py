"""Celery: acks late, no prefetching, jobs of a lost child rejected to the queue, a worker for OTPs and one of three processes for the rest; beat.

On TERM it stops softly: what is not done after the grace goes back to the queue. The visibility timeout of its Redis transport stays an hour: the
docs warn that a shorter one runs tasks twice that are due later.
"""

from __future__ import annotations

from celery import Celery

from benchmarks.compare import service
from benchmarks.compare.contenders import GRACE, URL

PACKAGE = "celery"
ENV = {"REMAP_SIGTERM": "SIGQUIT"}
AGAIN = {"autoretry_for": (Exception,), "max_retries": 3, "retry_backoff": 10}

app = Celery("compare", broker=URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    worker_soft_shutdown_timeout=GRACE,
    worker_enable_soft_shutdown_on_idle=True,
    broker_connection_retry_on_startup=True,
    task_routes={"otp": "otp", "mail": "mail", "webhook": "webhook", "poison": "mail", "tick": "mail"},
    beat_schedule={"tick": {"task": "tick", "schedule": 60.0}},
)


@app.on_after_configure.connect
def _each_minute(sender: Celery, **_: object) -> None:
    from celery.schedules import crontab

    sender.conf.beat_schedule["tick"]["schedule"] = crontab()


otp = app.task(service.otp, name="otp")
mail = app.task(service.mail, name="mail")
poison = app.task(service.poison, name="poison")
tick = app.task(service.tick, name="tick")
webhook = app.task(service.webhook, name="webhook", **AGAIN)


def commands() -> list[list[str]]:
    start = ["-m", "celery", "-A", "benchmarks.compare.contenders.on_celery"]
    kept = [*start, "worker", "--hostname", "otp@%h", "-Q", "otp", "--concurrency", "1"]
    shared = [*start, "worker", "--hostname", "mail@%h", "-Q", "mail,webhook", "--concurrency", "3"]
    return [kept, shared, [*start, "beat", "--schedule", "beat"]]


def enqueue(kind: str, job: str, seconds: float) -> None:
    if kind == "otp":
        otp.delay(job)
    elif kind == "poison":
        poison.delay(job)
    else:
        mail.apply_async((job, seconds), link=webhook.si(job) if kind == "told" else None)
