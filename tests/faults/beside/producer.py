"""`python -m tests.faults.beside.producer KIND DIRECTORY`: enqueues until the file `DIRECTORY/stop` is there.

KIND is `fusion`, `door` (fusion.rq) or `stock` (RQ and rq-scheduler, of the version that PYTHONPATH names). Before a call it writes the id to
`KIND.tried`, after it has returned to `KIND.acknowledged`: one O_APPEND write each. Killed and started again it goes on with the next number.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import redis

OURS, THEIRS, SHARED, ADOPTED = "ours", "theirs", "shared", "adopted"
SOAK, STOCK = "tests.faults.soak.tasks", "tests.faults.beside.tasks"
#: Seconds between two calls: RQ's workers are not to fall behind on a busy machine.
PAUSE = {"fusion": 0.12, "door": 0.12, "stock": 0.6}
_KEPT = {"result_ttl": 86400}


def _fusion() -> Callable[[str, random.Random, str], Any]:
    from fusion import Dependency, Queue
    from fusion.retry import Retry

    def send(name: str, chance: random.Random, before: str) -> Any:
        queue = Queue(chance.choice((OURS, OURS, SHARED, ADOPTED)))
        options = {"job_id": name, "priority": chance.randrange(3), **_KEPT}
        seconds = chance.uniform(0, 0.3)
        match _kind(name):
            case "later":
                return queue.enqueue_in(timedelta(seconds=chance.uniform(0.2, 2)), f"{SOAK}.effect", seconds, **options)
            case "refuse":
                return queue.enqueue(f"{SOAK}.refuse", **options)
            case "flaky":
                return queue.enqueue(f"{SOAK}.flaky", 1, retry=Retry(max=2, interval=[0.1]), **options)
            case "child" if before:
                options["depends_on"] = Dependency(before, on_failure="ignore")
        return queue.enqueue(f"{SOAK}.effect", seconds, **options)

    return send


def _door() -> Callable[[str, random.Random, str], Any]:
    from fusion.rq import Queue, Retry
    from fusion.rq.dependency import Dependency
    from fusion.rq.job import Job

    connection = redis.Redis.from_url(os.environ["FUSION_REDIS_URL"])

    def send(name: str, chance: random.Random, before: str) -> Any:
        queue = Queue(chance.choice((OURS, OURS, SHARED, ADOPTED)), connection=connection)
        options: dict[str, Any] = {"job_id": name, **_KEPT}
        seconds = chance.uniform(0, 0.3)
        match _kind(name):
            case "later":
                return queue.enqueue_in(timedelta(seconds=chance.uniform(0.2, 2)), f"{SOAK}.effect", seconds, **options)
            case "refuse":
                return queue.enqueue(f"{SOAK}.refuse", **options)
            case "flaky":
                return queue.enqueue(f"{SOAK}.flaky", 1, retry=Retry(max=2, interval=[1]), **options)
            case "draft":
                job = Job.create(f"{SOAK}.effect", (seconds,), id=name, connection=connection, origin=queue.name, **_KEPT)
                job.save()
                return queue.enqueue_job(job)
            case "child" if before:
                options["depends_on"] = Dependency(jobs=[before], allow_failure=True)
        return queue.enqueue(f"{SOAK}.effect", seconds, **options)

    return send


def _stock() -> Callable[[str, random.Random, str], Any]:
    from rq import Queue, Retry
    from rq.job import Dependency
    from rq_scheduler import Scheduler

    connection = redis.Redis.from_url(os.environ["RQ_REDIS_URL"])
    clock = Scheduler(THEIRS, connection=connection)

    def send(name: str, chance: random.Random, before: str) -> Any:
        kind = _kind(name)
        places = (THEIRS, THEIRS, SHARED, ADOPTED) if kind in ("plain", "refuse") else (THEIRS, THEIRS, SHARED)
        queue = Queue(chance.choice(places), connection=connection)
        seconds = chance.uniform(0, 0.3)
        options: dict[str, Any] = {"job_id": name, **_KEPT}
        match kind:
            case "later":
                return queue.enqueue_in(timedelta(seconds=1), f"{STOCK}.visit", name, seconds, **options)
            case "clock":  # rq-scheduler's
                return clock.enqueue_in(timedelta(seconds=2), f"{STOCK}.visit", name, seconds, job_id=name, job_result_ttl=86400)
            case "refuse":
                return queue.enqueue(f"{STOCK}.refuse", name, **options)
            case "flaky":
                return queue.enqueue(f"{STOCK}.refuse", name, retry=Retry(max=1, interval=1), **options)
            case "child" if before:
                options["depends_on"] = Dependency(jobs=[before], allow_failure=True)
        return queue.enqueue(f"{STOCK}.visit", name, seconds, **options)

    return send


def _kind(name: str) -> str:
    """What a job is: of a stock one its run is counted by."""
    number = int(name.rpartition("-")[2])
    return {1: "later", 2: "refuse", 3: "flaky", 4: "child", 5: "draft", 6: "clock"}.get(number % 20, "plain")


def main(kind: str, home: Path) -> None:
    tried, acknowledged = (
        os.open(home / f"{kind}.{name}", os.O_WRONLY | os.O_APPEND | os.O_CREAT) for name in ("tried", "acknowledged")
    )
    number = len((home / f"{kind}.tried").read_text().splitlines())
    send = {"fusion": _fusion, "door": _door, "stock": _stock}[kind]()
    before = ""
    while not (home / "stop").exists():
        name = f"{kind}-{number}"
        os.write(tried, f"{name}\n".encode())
        send(name, random.Random(name), before)
        os.write(acknowledged, f"{name}\n".encode())
        number, before = number + 1, name
        time.sleep(PAUSE[kind])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
