"""Registers what comes again and again, anew at each start, and runs the scheduler: `python clock.py [SECONDS]`."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from redis import Redis
from rq_scheduler import Scheduler

import tasks

scheduler = Scheduler("reports", connection=Redis.from_url(os.environ["REDIS_URL"]), interval=1)


def register():
    for job in list(scheduler.get_jobs()):
        if job.meta.get("interval") or job.meta.get("cron_string"):
            scheduler.cancel(job)
    soon = datetime.utcnow() + timedelta(seconds=1)  # noqa: DTZ003
    scheduler.schedule(soon, tasks.note, args=["thrice"], kwargs={"amount": 1}, interval=1, repeat=3, id="thrice", timeout=60)
    scheduler.schedule(
        soon + timedelta(hours=1), "tasks.note", args=["hourly"], interval=3600, id="hourly", description="each hour"
    )
    scheduler.cron("0 0 1 1 *", tasks.note, args=["yearly"], id="yearly", queue_name="reports", meta={"owner": "ann"})


if __name__ == "__main__":
    register()
    scheduler.run()
