"""The service's table of recurring tasks: what it says, how it is taken up, and that its rows run."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest
import redis

import wrappers.instance
from fusion import Job, Queue
from fusion.cron.declared import collect
from fusion.cron.plan import Plan
from fusion.cron.scheduler import Scheduler
from fusion.exceptions import SerializationError
from fusion.settings import Settings
from tests.kit.workers import Workers
from wrappers.scheduler_task import TABLE, add, register

MAINTENANCE = "redis_maintenance_on_failed_queue"


def spec_of(scheduler: Scheduler, entry: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(scheduler.get(entry).spec)
    return found


def test_failed_jobs_are_looked_at_every_five_minutes() -> None:
    (row,) = (row for row in TABLE if row.id == MAINTENANCE)
    assert (row.cron, row.function, row.data) == ("*/5 * * * *", "tasks.maintenance.run_maintenance_on_failed_queue", None)
    entry = collect(wrappers.instance.SCHEDULE).entries[MAINTENANCE]
    assert (entry.plan.text, entry.queue, entry.overlap, entry.misfire) == ("*/5 * * * * UTC", "scheduler", "skip", "latest")
    assert json.loads(entry.job.fields["data"]) == [row.function, None, [], {}]


def test_every_row_names_a_function_that_may_run_and_a_queue_that_is_served() -> None:
    found = collect(wrappers.instance.SCHEDULE)
    assert (found.faults, found.broken) == ({}, {})
    assert {row.id for row in TABLE} <= set(found.entries)
    for row in TABLE:
        module, _, function = row.function.rpartition(".")
        assert callable(getattr(import_module(module), function))
        assert module in wrappers.instance.TASKS
        assert found.entries[row.id].queue in wrappers.instance.QUEUES


def test_the_settings_of_the_service_name_the_table() -> None:
    assert Settings.load("instance", env={}).schedule == ("wrappers.scheduler_task",)


@pytest.mark.parametrize(
    ("data", "args"),
    [(None, []), ({}, []), ({"days": 30}, [{"days": 30}]), (0, [0]), ([], [[]]), ("abc", ["abc"]), ([1, 2], [[1, 2]])],
)
def test_the_data_is_the_one_argument(conn: redis.Redis, data: Any, args: list[Any]) -> None:
    scheduler = Scheduler(conn)
    assert add(scheduler, data, "30 2 * * *", "tasks.reports.send", id="nightly") == "nightly"
    spec = spec_of(scheduler, "nightly")
    assert json.loads(spec["fields"]["data"]) == ["tasks.reports.send", None, args, {}]
    assert spec["queue"] == "scheduler"


def test_options_are_those_of_the_scheduler(conn: redis.Redis) -> None:
    scheduler = Scheduler(conn)
    options: dict[str, Any] = {"queue": "email", "timezone": "Europe/Berlin", "priority": 2, "misfire": "skip"}
    add(scheduler, None, "30 2 * * *", "tasks.reports.send", id="nightly", **options)
    assert Plan.from_json(scheduler.get("nightly").plan).timezone == "Europe/Berlin"
    spec = spec_of(scheduler, "nightly")
    assert (spec["queue"], spec["priority"], spec["misfire"]) == ("email", 2, "skip")


@pytest.mark.parametrize("data", [{}, None])
def test_the_documented_line_runs_at_every_tick(conn: redis.Redis, workers: Workers, data: Any) -> None:
    scheduler = Scheduler(conn)
    add(scheduler, data, "*/5 * * * *", "tasks.maintenance.run_maintenance_on_failed_queue", id=MAINTENANCE)
    job = scheduler.run(MAINTENANCE)
    workers.burst("scheduler", env={"FUSION_TASKS": "tasks.maintenance"})
    job.refresh()
    assert (job.get_status(), job.result) == ("finished", {"requeued": 0, "quarantined": 0, "left": 0, "refused": {}}), (
        job.exc_info
    )


def test_a_mistake_is_told_at_once(conn: redis.Redis) -> None:
    scheduler = Scheduler(conn)
    with pytest.raises(ValueError, match="'61' is not a valid minute"):
        add(scheduler, None, "61 * * * *", "tasks.reports.send", id="nightly")
    with pytest.raises(SerializationError):
        add(scheduler, object(), "* * * * *", "tasks.reports.send", id="nightly")
    assert scheduler.ids() == []


def test_the_table_taken_up_twice_is_the_same_table(conn: redis.Redis) -> None:
    scheduler = Scheduler(conn)
    register(scheduler)
    before = scheduler.entries()
    register(scheduler)
    assert scheduler.ids() == sorted(row.id for row in TABLE)
    assert [info.rev for info in scheduler.entries()] == [info.rev for info in before]


def test_a_worker_of_the_service_runs_what_is_enqueued(conn: redis.Redis, workers: Workers) -> None:
    scheduler = Scheduler(conn)
    register(scheduler)
    job = scheduler.run(MAINTENANCE)
    assert (job.id, job.origin) == (f"cron-{MAINTENANCE}-manual-1", "scheduler")
    assert Queue("scheduler", conn).count == 1
    workers.burst("-c", "instance", "--customq", "all", env={"FUSION_TASKS": ""})
    ended = Job.fetch(job.id, conn)
    assert ended.is_finished, ended.reason
    assert ended.result == {"requeued": 0, "quarantined": 0, "left": 0, "refused": {}}
