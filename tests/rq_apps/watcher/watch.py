"""Shows queues, registries, workers and jobs. Each line of stdin names actions: it does them, and prints what there is."""

from __future__ import annotations

import json
import os
import sys

from redis import Redis
from rq import Queue, Worker
from rq.command import send_stop_job_command
from rq.job import Job
from rq.registry import (
    CanceledJobRegistry,
    DeferredJobRegistry,
    FailedJobRegistry,
    FinishedJobRegistry,
    ScheduledJobRegistry,
    StartedJobRegistry,
)
from rq.suspension import is_suspended, resume, suspend

connection = Redis.from_url(os.environ["REDIS_URL"])
REGISTRIES = {
    "started": StartedJobRegistry,
    "finished": FinishedJobRegistry,
    "failed": FailedJobRegistry,
    "deferred": DeferredJobRegistry,
    "scheduled": ScheduledJobRegistry,
    "canceled": CanceledJobRegistry,
}


def queues():
    found = {}
    for queue in sorted(Queue.all(connection=connection), key=lambda one: one.name):
        counts = {name: registry(queue=queue).count for name, registry in REGISTRIES.items()}
        found[queue.name] = {"queued": queue.count, **counts, "page": queue.get_job_ids(0, 3), "empty": queue.is_empty()}
        for name, registry in REGISTRIES.items():
            found[queue.name][f"{name} ids"] = sorted(registry(queue.name, connection=connection).get_job_ids())
    return found


def workers():
    found = {}
    for worker in Worker.all(connection=connection):
        job = worker.get_current_job()
        found[worker.name] = {
            "state": worker.get_state(),
            "queues": worker.queue_names(),
            "job": job.id if job else None,
            "job id": worker.get_current_job_id(),
            "successful": worker.successful_job_count,
            "failed": worker.failed_job_count,
            "time": worker.total_working_time >= 0,
            "lives": worker.pid is not None and worker.last_heartbeat is not None and worker.birth_date is not None,
        }
    return found


def job(job_id):
    one = Job.fetch(job_id, connection=connection)
    result = one.latest_result()
    return {
        "status": one.get_status(),
        "origin": one.origin,
        "description": one.description,
        "function": one.func_name,
        "args": list(one.args),
        "timeout": one.timeout,
        "times": [one.created_at is not None, one.enqueued_at is not None, one.started_at is not None, one.ended_at is not None],
        "error": one.exc_info.strip().splitlines()[-1] if one.is_failed else None,
        "result": one.return_value(),
        "outcome": result.type.name if result else None,
        "by": one.worker_name if one.is_started else None,
        "parents": list(one._dependency_ids),
        "same": one == Job.fetch(job_id, connection=connection),
    }


def act(action, job_id):
    if action == "requeue":
        FailedJobRegistry(queue=Queue("high", connection=connection)).requeue(job_id)
    elif action == "remove":
        FailedJobRegistry(queue=Queue("high", connection=connection)).remove(job_id, delete_job=True)
    elif action == "stop":
        send_stop_job_command(connection, job_id)
    elif action == "cancel":
        Job.fetch(job_id, connection=connection).cancel()
    elif action == "empty":
        Queue(job_id, connection=connection).empty()
    elif action == "suspend":
        suspend(connection)
    elif action == "resume":
        resume(connection)


def show():
    names = ["paid", "refused", "waits", "after", "tomorrow"]
    return {
        "queues": queues(),
        "workers": workers(),
        "count": [Worker.count(connection=connection), Worker.count(queue=Queue("low", connection=connection))],
        "jobs": {name: job(name) for name in names if Job.exists(name, connection=connection)},
        "suspended": bool(is_suspended(connection)),
    }


if __name__ == "__main__":
    for line in sys.stdin:
        words = line.split()
        for action, job_id in zip(words[::2], words[1::2], strict=True):
            act(action, job_id)
        print(json.dumps(show()), flush=True)
