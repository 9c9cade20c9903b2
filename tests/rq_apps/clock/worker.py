"""The worker."""

from __future__ import annotations

import os

from redis import Redis
from rq import Worker

if __name__ == "__main__":
    Worker(["reports"], connection=Redis.from_url(os.environ["REDIS_URL"])).work()
