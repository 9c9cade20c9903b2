"""It sleeps until the next due instant, is woken for what is due before that, and costs next to nothing meanwhile."""

from __future__ import annotations

import time

import psutil
import pytest
import redis

from fusion import Job, Queue
from fusion.cron.scheduler import Scheduler
from tests.kit.schedulers import Schedulers
from tests.kit.waiting import eventually
from tests.kit.witnesses import status_of
from tests.scheduler.harness import NOOP, at, bells, now, ticks_of


@pytest.mark.long
def test_a_job_for_a_time_is_moved_then_although_it_would_look_by_itself_only_later(
    schedulers: Schedulers, conn: redis.Redis
) -> None:
    schedulers.start()
    queue = Queue("q", conn)
    for _ in range(2):  # nothing is planned; then the scheduler sleeps for something later
        eventually(lambda: bells(conn) == 1)
        job = queue.enqueue_in(1, NOOP)
        due = now(conn) + 1
        assert status_of(conn, job.id) == "scheduled"
        eventually(lambda job=job: status_of(conn, job.id) == "queued")  # type: ignore[misc]
        found = Job.fetch(job.id, conn)
        assert found.enqueued_at is not None
        # without the doorbell 4 seconds late: it looked when the one before was due, or when it started
        assert -0.1 < (found.enqueued_at - at(due)).total_seconds() < 2.5
        queue.enqueue_in(60, NOOP)


def test_an_entry_made_at_run_time_is_taken_up_at_once(schedulers: Schedulers, cron: Scheduler, conn: redis.Redis) -> None:
    schedulers.start()
    eventually(lambda: bells(conn) == 1)
    made = now(conn)
    cron.every(1, NOOP, id="e", queue="q")
    eventually(lambda: ticks_of(conn, "e"))
    assert ticks_of(conn, "e")[0] <= made + 3.5, "by itself it would look after 5 s"


@pytest.mark.long
def test_while_nothing_is_due_it_costs_next_to_nothing(schedulers: Schedulers, cron: Scheduler, conn: redis.Redis) -> None:
    scheduler = schedulers.start()
    cron.cron("0 0 1 1 *", NOOP, id="yearly")
    Queue("q", conn).enqueue_in(3600, NOOP)
    eventually(lambda: bells(conn) == 1)
    process = psutil.Process(scheduler.pid)
    conn.config_resetstat()
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    time.sleep(5.0)  # not a wait for anything: the window of the measurement
    seconds = time.monotonic() - began
    stats = {name.removeprefix("cmdstat_"): row["calls"] for name, row in conn.info("commandstats").items()}
    sent = sum(stats.get(name, 0) for name in ("evalsha", "eval", "blpop"))
    cpu = sum(process.cpu_times()[:2]) - before
    print(f"{sent} commands, {sum(stats.values())} with those inside scripts, and {cpu:.3f} s of CPU in {seconds:.1f} s: {stats}")
    assert 0 < sent / seconds < 5
    assert sum(stats.values()) / seconds < 20
    assert cpu < 0.1
