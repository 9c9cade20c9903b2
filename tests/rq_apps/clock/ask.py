"""Schedules single jobs, as a web request would. Each line of stdin names actions: it does them, and prints what is scheduled."""

from __future__ import annotations

import json
import os
import sys
from datetime import datetime, timedelta

from redis import Redis
from rq.job import Job
from rq_scheduler import Scheduler

import tasks

connection = Redis.from_url(os.environ["REDIS_URL"])
scheduler = Scheduler("reports", connection=connection)
NEW_YEAR = datetime(2040, 1, 1, 12, 30)  # noqa: DTZ001 - UTC, as rq-scheduler takes it


def act(action, job_id):
    if action == "in":
        scheduler.enqueue_in(timedelta(seconds=1), tasks.note, job_id, job_id=job_id, job_result_ttl=600)
    elif action == "at":
        scheduler.enqueue_at(NEW_YEAR, tasks.note, job_id, amount=2, job_id=job_id, job_description="for the new year")
    elif action == "cancel":
        scheduler.cancel(job_id)


def show():
    found = {}
    for job, when in scheduler.get_jobs(with_times=True):
        far = when > datetime.utcnow() + timedelta(days=400)  # noqa: DTZ003
        found[job.id] = [job.description, job.func_name, list(job.args), job.origin, when.isoformat() if far else None]
    names = ("thrice", "hourly", "yearly", "soon", "party", "never")
    return {
        "jobs": found,
        "in": {name: name in scheduler for name in names},
        "notes": {key.decode(): int(value) for key, value in connection.hgetall("app:notes").items()},
        "owner": next((job.meta.get("owner") for job in scheduler.get_jobs() if job.id == "yearly"), None),
        "until tomorrow": sorted(job.id for job in scheduler.get_jobs(until=timedelta(days=1))),
        "status": Job.fetch("party", connection=connection).get_status() if Job.exists("party", connection=connection) else None,
    }


if __name__ == "__main__":
    for line in sys.stdin:
        words = line.split()
        for action, job_id in zip(words[::2], words[1::2], strict=True):
            act(action, job_id)
        print(json.dumps(show()), flush=True)
