"""RQ's cron: entries that live in the process of a CronScheduler, by this machine's time zone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import redis

from fusion.rq import Queue
from fusion.rq.cron import CronJob, CronScheduler, create_cron, get_cron_job_ids, register
from fusion.rq.cron_job_registry import get_names
from fusion.rq.exceptions import DuplicateSchedulerError, SchedulerNotFound
from tests.kit.process import ROOT
from tests.kit.waiting import eventually
from tests.rq import tasks_of_rq as tasks


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=timezone.utc)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("cron", "after", "due"),
    [
        ("0 9 * * *", utc(2026, 7, 1, 8), utc(2026, 7, 2, 7)),  # nine o'clock there
        ("30 2 * * *", utc(2026, 10, 24, 23), utc(2026, 10, 25, 0, 30)),  # the hour that comes twice: the first time
        ("30 2 * * *", utc(2026, 10, 25, 0, 30), utc(2026, 10, 26, 1, 30)),
        ("30 2 * * *", utc(2026, 3, 28, 2), utc(2026, 3, 29, 1, 30)),  # the hour that is left out: shifted
    ],
)
def test_the_local_time_counts(berlin: None, cron: str, after: datetime, due: datetime) -> None:
    job = CronJob("work", tasks.add, cron=cron)
    job.set_enqueue_time(after)
    assert job.next_enqueue_time == due


def test_an_interval_is_due_at_once_and_a_cron_waits(client: redis.Redis, queue: Queue) -> None:
    scheduler = CronScheduler(client)
    often = scheduler.register(tasks.add, "work", args=(1,), interval=60, name="often", job_timeout=9)
    scheduler.register(tasks.add, "work", cron="0 0 1 1 *")
    assert scheduler.enqueue_jobs() == [often] and scheduler.enqueue_jobs() == []
    (job,) = queue.jobs
    assert (job.args, job.timeout) == ((1,), 9)
    assert get_cron_job_ids("often", client) == often.get_job_ids(client) == [job.id]
    assert get_names(client) == ["often"]
    assert 50 < scheduler.calculate_sleep_interval() <= 60
    often.set_enqueue_time(datetime.now(timezone.utc) - timedelta(seconds=61))
    assert often.should_run() and scheduler.calculate_sleep_interval() == 0


def test_a_scheduler_is_seen_while_it_runs(client: redis.Redis) -> None:
    scheduler = CronScheduler(client, name="one")
    scheduler.register(tasks.add, "work", kwargs={"a": 1}, interval=5, meta={"x": 1})
    with pytest.raises(SchedulerNotFound):
        CronScheduler.fetch("one", client)
    scheduler.register_birth()
    with pytest.raises(DuplicateSchedulerError):
        CronScheduler(client, name="one").register_birth()
    (seen,) = CronScheduler.all(client)
    assert seen == scheduler and [job.to_dict() for job in seen.get_jobs()] == [job.to_dict() for job in scheduler.get_jobs()]
    assert seen.last_heartbeat is not None and client.ttl(seen.key) > 100
    scheduler.register_death()
    assert CronScheduler.all(client) == []


@pytest.mark.parametrize("times", [{}, {"interval": 1, "cron": "* * * * *"}])
def test_one_of_both_times(times: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="interval"):
        CronJob("work", tasks.add, **times)  # type: ignore[arg-type]


def test_what_a_module_registers(client: redis.Redis, tmp_path: Path) -> None:
    config = tmp_path / "cron_config.py"
    config.write_text(
        "from fusion.rq import cron\nfrom tests.rq.tasks_of_rq import add, fail\n"
        "cron.register(add, 'work', args=(1,), interval=3)\ncron.register(fail, 'work', cron='0 9 * * *', name='daily')\n"
    )
    scheduler = CronScheduler(client)
    scheduler.load_config_from_file(str(config))
    assert [job.name for job in scheduler.get_jobs()] == ["tests.rq.tasks_of_rq.add", "daily"]
    register(tasks.add, "work", interval=1)
    assert len(create_cron(client).get_jobs()) == 1 and create_cron(client).get_jobs() == []
    with pytest.raises(ImportError, match="nowhere"):
        scheduler.load_config_from_file("nowhere.at.all")


def test_a_signal_ends_it(client: redis.Redis, redis_url: str, queue: Queue) -> None:
    program = (
        "import redis\nfrom fusion.rq.cron import CronScheduler\nfrom tests.rq.tasks_of_rq import add\n"
        f"scheduler = CronScheduler(redis.Redis.from_url({redis_url!r}), name='short')\n"
        "scheduler.register(add, 'work', args=(1,), interval=1)\nscheduler.start()\n"
    )
    running = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        eventually(lambda: queue.count >= 2, timeout=60)
        assert [one.name for one in CronScheduler.all(client)] == ["short"]
        running.send_signal(signal.SIGTERM)
        assert running.wait(30) == 0
        assert CronScheduler.all(client) == []
    finally:
        running.kill()
        running.wait()
