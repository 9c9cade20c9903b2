"""rq-scheduler's Scheduler: single jobs in Fusion's schedule, recurring ones as cron entries."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
import redis

from fusion.cron.entry import Entry
from fusion.cron.scheduler import Scheduler as Entries
from fusion.rq import Queue
from fusion.rq.exceptions import NoSuchJobError
from fusion.rq.job import Job
from fusion.rq_scheduler import Scheduler
from fusion.rq_scheduler.recurring import local_zone
from fusion.store.access import cron_inspector_of
from tests.kit.process import ROOT
from tests.kit.waiting import eventually, unhurried
from tests.rq import tasks_of_rq as tasks

Burst = Callable[..., bool]


@pytest.fixture
def scheduler(client: redis.Redis) -> Scheduler:
    return Scheduler("work", connection=client)


def in_(seconds: float) -> datetime:
    return datetime.now(timezone.utc) + timedelta(seconds=seconds)


def test_a_single_job_waits_for_its_time_and_any_worker_runs_it(scheduler: Scheduler, burst: Burst) -> None:
    due = in_(0.3)
    job = scheduler.enqueue_at(due, tasks.given, 1, job_id="one", job_description="the one", timeout=9, priority=7)
    assert (job.id, job.description, job.timeout, job.get_status()) == ("one", "the one", 9, "scheduled")
    assert job in scheduler and "one" in scheduler and "other" not in scheduler
    eventually(lambda: burst() and job.is_finished)
    assert job.result == [[1], {"priority": 7}]
    assert "one" not in scheduler and list(scheduler.get_jobs()) == []


def test_a_naive_time_is_utc(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        job = scheduler.enqueue_at(datetime(2030, 1, 2, 3, 4, 5), tasks.add, 1)  # noqa: DTZ001 - as programs give it
    finally:
        monkeypatch.undo()
        time.tzset()
    ((found, when),) = scheduler.get_jobs(with_times=True)
    assert found == job and when == datetime(2030, 1, 2, 3, 4, 5)  # noqa: DTZ001 - as rq-scheduler returns it


def test_what_others_have_scheduled_is_not_listed(scheduler: Scheduler, queue: Queue, client: redis.Redis) -> None:
    queue.enqueue_in(timedelta(hours=1), tasks.add, 1)
    Entries(client).every(60, tasks.add, id="declared-elsewhere")
    later, sooner = scheduler.enqueue_in(timedelta(hours=2), tasks.add, 2), scheduler.enqueue_in(timedelta(hours=1), tasks.add, 3)
    assert list(scheduler.get_jobs()) == [sooner, later]
    assert list(scheduler.get_jobs(until=timedelta(minutes=90))) == [sooner] and scheduler.count() == 2
    assert list(scheduler.get_jobs(offset=1, length=1)) == [later]
    for job in scheduler.get_jobs():
        scheduler.cancel(job)
    assert later.is_canceled and scheduler.count() == 0
    assert Entries(client).ids() == ["declared-elsewhere"] and queue.scheduled_job_registry.count == 1
    scheduler.cancel("never-there")


def test_another_time(scheduler: Scheduler) -> None:
    job = scheduler.enqueue_in(timedelta(hours=1), tasks.add, 1)
    scheduler.change_execution_time(job, in_(-1))
    assert list(scheduler.get_jobs_to_queue()) == [job] and scheduler.enqueue_jobs() == [job]
    assert job.is_queued
    with pytest.raises(ValueError, match="not in scheduled jobs"):
        scheduler.change_execution_time(job, in_(60))
    with pytest.raises(NotImplementedError, match="with its id"):
        scheduler.change_execution_time(scheduler.schedule(in_(60), tasks.add, interval=60), in_(5))


def test_a_recurring_job_is_an_entry_with_rqs_meaning(scheduler: Scheduler, client: redis.Redis) -> None:
    job = scheduler.cron(
        "0 9 * * 1", tasks.given, args=(1,), kwargs={"a": 2}, id="report", meta={"team": "x"}, timeout=9, queue_name="other"
    )
    assert (job.id, job.args, job.kwargs, job.origin) == ("report", (1,), {"a": 2}, "other")
    assert job.meta == {"team": "x", "cron_string": "0 9 * * 1", "use_local_timezone": False}
    entry = Entry.of(*(getattr(Entries(client).get("report"), name) for name in ("id", "plan", "spec")))
    assert (entry.plan.expression, entry.plan.timezone) == ("0 9 * * 1", "UTC")
    fields = {name: entry.job.fields[name] for name in ("retry", "on_lost", "timeout")}
    assert fields == {"retry": '{"max": 0, "as": "rq"}', "on_lost": "fail", "timeout": 9}
    (found,) = scheduler.get_jobs()
    assert found == job and (found.func_name, found.meta, found.get_status()) == (job.func_name, job.meta, "scheduled")
    found.refresh()
    assert found.args == (1,)
    scheduler.cancel("report")
    assert scheduler.count() == 0 and "report" not in scheduler
    with pytest.raises(NoSuchJobError):
        found.refresh()


def test_repeat_says_how_many_runs_there_are(scheduler: Scheduler, client: redis.Redis) -> None:
    scheduler.schedule(in_(30), tasks.add, interval=60, repeat=3, id="thrice")
    scheduler.cron("*/5 * * * *", tasks.add, repeat=2, id="twice")
    for name, count in (("thrice", 3), ("twice", 2)):
        info = Entries(client).get(name)
        plan = Entry.of(info.id, info.plan, info.spec).plan
        ticks, tick = 0, int(time.time())
        while (tick := plan.after(tick)) is not None:  # type: ignore[assignment]
            ticks += 1
        assert ticks == count
    with pytest.raises(ValueError, match="without interval"):
        scheduler.schedule(in_(1), tasks.add, repeat=2)
    with pytest.raises(ValueError, match="repeat=0"):
        scheduler.cron("* * * * *", tasks.add, repeat=0)


def test_what_a_recurring_job_can_not_have(scheduler: Scheduler) -> None:
    with pytest.raises(NotImplementedError, match="at_front= of a recurring job"):
        scheduler.cron("* * * * *", tasks.add, at_front=True)
    with pytest.raises(NotImplementedError, match="depends_on= of a recurring job"):
        scheduler.schedule(in_(1), tasks.add, interval=1, depends_on="x")
    with pytest.raises(NotImplementedError, match="fusion scheduler"):
        scheduler.run(burst=True)
    with pytest.raises(ValueError, match="connection"):
        Scheduler()


def test_this_machines_zone(monkeypatch: pytest.MonkeyPatch, scheduler: Scheduler, client: redis.Redis) -> None:
    monkeypatch.setenv("TZ", ":Europe/Berlin")
    assert local_zone() == "Europe/Berlin"
    scheduler.cron("0 9 * * *", tasks.add, id="local", use_local_timezone=True)
    info = Entries(client).get("local")
    assert Entry.of(info.id, info.plan, info.spec).plan.timezone == "Europe/Berlin"


@pytest.mark.timeout(100)
def test_it_runs(scheduler: Scheduler, queue: Queue, client: redis.Redis, burst: Burst, redis_url: str) -> None:
    code = f"import redis; from fusion.rq_scheduler import Scheduler; Scheduler(connection=redis.Redis.from_url({redis_url!r})).run()"
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env={**os.environ}) as process:
        try:
            eventually(cron_inspector_of(client).schedulers, timeout=unhurried(25))
            job = scheduler.schedule(in_(2), tasks.progress, interval=1, repeat=2, id="ticking", queue_name="work")
            assert "ticking" in scheduler
            eventually(
                lambda: Entries(client).get("ticking").enqueued + Entries(client).get("ticking").missed == 2,
                timeout=unhurried(25),
            )
            assert "ticking" not in scheduler and list(scheduler.get_jobs()) == []
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
    ids = queue.job_ids
    assert ids  # two, unless this machine slept over a tick
    burst()
    for job_id in ids:
        run = Job.fetch(job_id, client)
        assert run.result == [job_id, job_id, "started", "work"] and run.meta["progress"] == 50
    assert job.id not in ids
