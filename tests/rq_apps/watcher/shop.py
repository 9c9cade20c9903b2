"""Fills the queues of the shop: `python shop.py PATH`."""

from __future__ import annotations

import os
import sys
from datetime import timedelta

from redis import Redis
from rq import Queue, Retry

import tasks

connection = Redis.from_url(os.environ["REDIS_URL"])
high, low = Queue("high", connection=connection), Queue("low", connection=connection)

if __name__ == "__main__":
    high.enqueue(tasks.charge, 5, job_id="paid")
    high.enqueue(tasks.charge, -1, job_id="refused", description="charge of nobody")
    low.enqueue(tasks.wait_for, sys.argv[1], job_id="waits", job_timeout=600)
    low.enqueue_many(Queue.prepare_data(tasks.charge, (amount,), job_id=f"low-{amount}") for amount in range(5))
    low.enqueue_call("tasks.charge", args=(7,), timeout=60, job_id="after", depends_on="waits")
    low.enqueue_in(timedelta(hours=1), tasks.charge, 9, job_id="tomorrow", retry=Retry(max=2))
    low.enqueue(tasks.charge, 3, job_id="first", at_front=True)
