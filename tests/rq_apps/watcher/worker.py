"""A worker of the shop: `python worker.py NAME QUEUE...`."""

from __future__ import annotations

import os
import sys

from redis import Redis
from rq import Worker

connection = Redis.from_url(os.environ["REDIS_URL"])

if __name__ == "__main__":
    Worker(sys.argv[2:], connection=connection, name=sys.argv[1]).work()
