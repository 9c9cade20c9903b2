"""A drain runs jobs in the order in which a real worker runs them after the same calls."""

from __future__ import annotations

import random
import time
from datetime import datetime, timedelta, timezone

import pytest

from fusion import Job, Queue, Retry, get_current_connection
from fusion.store.access import broker_of
from fusion.testing import Kit, RealWorker
from tests.kit.waiting import eventually
from tests.testing.kit_tasks import in_turn

QUEUES = ("first", "second")
JOBS = 40
#: Seconds after the start of a run at which those for later begin to be due, one after the other for five seconds; by then all are enqueued.
IN_THE_KIT, IN_FACT, FOR = 3600.0, 45.0, 5.0


def enqueue(seed: int, first: float) -> list[Job]:
    """Jobs of all priorities, some for later, some that fail and run again at once, some that wait for others."""
    chance, jobs, begun = random.Random(seed), list[Job](), datetime.now(timezone.utc)
    later = [first + n * FOR / JOBS for n in range(JOBS)]
    chance.shuffle(later)
    for n in range(JOBS):
        options = {
            "priority": chance.choice(("high", "moderate", "low")),
            "job_id": f"job-{n}",
            "at_front": chance.random() < 0.1,
        }
        if jobs and chance.random() < 0.3:
            options["depends_on"] = chance.choice(jobs)
        elif chance.random() < 0.2:
            options["enqueue_at"] = begun + timedelta(seconds=later[n])
        fails = chance.choice((0, 0, 0, 1, 2))
        jobs.append(Queue(chance.choice(QUEUES)).enqueue(in_turn, f"job-{n}", fails, retry=Retry(max=2), **options))
    return jobs


def started(jobs: list[Job]) -> list[str]:
    """Their ids in the order of their last runs."""
    found: list[tuple[datetime, str]] = []
    for job in jobs:
        job.refresh()
        assert job.started_at is not None
        found.append((job.started_at, job.id))
    return [name for _, name in sorted(found)]


def of_the_kit(seed: int) -> list[str]:
    with Kit() as kit:
        jobs = enqueue(seed, IN_THE_KIT)
        kit.travel(IN_THE_KIT + FOR)
        kit()
        last = {run.id: n for n, run in enumerate(kit.runs)}
        assert sorted(last, key=last.__getitem__) == started(jobs)
        return started(jobs)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.gate), 1, 2, 3, 4])
def test_the_order_is_that_of_a_real_worker(seed: int) -> None:
    with RealWorker("--order", "round-robin", queues=QUEUES) as worker:
        worker.stop()
        due = time.time() + IN_FACT + FOR
        jobs = enqueue(seed, IN_FACT)
        eventually(lambda: time.time() > due, 90, why="all of them are due")
        while broker_of(get_current_connection()).promote()[0]:  # else the first turn might come before
            pass
        worker.start()
        for job in jobs:
            job.wait(120)
        real = started(jobs)
    assert of_the_kit(seed) == real


@pytest.mark.parametrize("seed", range(5, 10))
def test_two_drains_have_one_order(seed: int) -> None:
    assert of_the_kit(seed) == of_the_kit(seed)
