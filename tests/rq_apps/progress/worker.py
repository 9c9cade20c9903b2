"""Its worker."""

from __future__ import annotations

import os

from redis import Redis
from rq import Queue, Worker

connection = Redis.from_url(os.environ["REDIS_URL"])

if __name__ == "__main__":
    worker = Worker([Queue("microblog-tasks", connection=connection)], connection=connection, name="mail-and-export")
    worker.work(with_scheduler=True)
