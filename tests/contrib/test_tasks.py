"""The backend of Django's task protocol: what it enqueues, what a worker makes of it, and what a TaskResult says."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion import Job, Queue
from tests.kit.waiting import eventually
from tests.kit.workers import Workers

TASKS = "tests.contrib.shop.billing.tasks"


@pytest.fixture
def tasks(shop: Path, conn: redis.Redis) -> Any:
    from tests.contrib.shop.billing import tasks

    return tasks


@pytest.fixture
def protocol(shop: Path) -> Any:
    from fusion.contrib.django import protocol

    return protocol


@pytest.fixture
def said(tmp_path: Path) -> Path:
    """What signals said in jobs' processes."""
    return tmp_path / "signals"


@pytest.fixture
def worker(workers: Workers, tasks: Any, said: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SHOP_SIGNALS", str(said))
    return workers.start("default", "mail", "--tasks", f"tests.contrib.set_up,{TASKS}", ready=False).wait_ready(60)


def ended(result: Any) -> Any:
    def look() -> bool:
        result.refresh()
        return result.is_finished  # type: ignore[no-any-return]

    eventually(look)
    return result


def test_a_task_is_a_job_of_its_own_name(tasks: Any, protocol: Any) -> None:
    result = tasks.add.using(priority=7).enqueue(1, 2)
    job = Job.fetch(result.id)
    assert (job.func_name, job.args, job.origin, job.priority) == (f"{TASKS}.add", (1, 2), "default", 8)
    assert (result.status, result.args, result.kwargs, result.attempts, result.errors) == ("READY", [1, 2], {}, 0, [])
    assert result.enqueued_at == job.created_at and result.started_at is result.finished_at is None
    assert result.backend == "default" and result.task.priority == 7
    again = tasks.add.get_result(result.id)
    assert again == result
    with pytest.raises(protocol._exceptions.TaskResultMismatch):
        tasks.refuse.get_result(result.id)


@pytest.mark.parametrize(("number", "priority"), [(-100, 0), (-1, 0), (0, 1), (1, 2), (50, 51), (100, 101)])
def test_each_priority_has_its_place_and_keeps_its_number(tasks: Any, number: int, priority: int) -> None:
    result = tasks.add.using(priority=number).enqueue()
    assert Job.fetch(result.id).priority == priority
    assert tasks.add.get_result(result.id).task.priority == number


def test_a_task_for_later_waits_for_its_time(tasks: Any, protocol: Any) -> None:
    due = datetime.now(timezone.utc).replace(microsecond=0) + timedelta(hours=1)
    result = tasks.add.using(run_after=due).enqueue()
    assert Job.fetch(result.id).scheduled_at() == due
    assert tasks.add.get_result(result.id).task.run_after == due and result.status == "READY"
    with pytest.raises(protocol.InvalidTask):
        tasks.add.using(run_after=datetime(2030, 1, 1))  # noqa: DTZ001


def test_results_show_types_of_fusion_as_tagged_json(tasks: Any) -> None:
    moment = datetime(2030, 1, 1, tzinfo=timezone.utc)
    result = tasks.day_after.enqueue(moment)
    tagged = {"__fusion__": ["datetime", ["2030-01-01T00:00:00+00:00", None, 0]]}
    assert result.args == [tagged] == tasks.day_after.get_result(result.id).args
    assert Job.fetch(result.id).args == (moment,)
    with pytest.raises(TypeError, match="argument 1"):
        tasks.add.enqueue(object())


def test_a_job_of_another_backend_has_no_result(tasks: Any, protocol: Any) -> None:
    backend = protocol.task_backends["default"]
    plain = Queue("default").enqueue(f"{TASKS}.helper")
    unknown = Queue("default").enqueue("tests.contrib.never_loaded.run")
    others = tasks.add.using(backend="open").enqueue()
    for job_id in ("none", "not an id", plain.id, unknown.id, others.id):
        with pytest.raises(protocol.TaskResultDoesNotExist):
            backend.get_result(job_id)
    by_path = Queue("default").enqueue(f"{TASKS}.add", 3, priority="low")
    assert backend.get_result(by_path.id).task.priority == -1


def test_the_async_twins_do_the_same(tasks: Any) -> None:
    async def both() -> tuple[Any, Any]:
        result = await tasks.add.aenqueue(4)
        await result.arefresh()
        return result, await tasks.add.aget_result(result.id)

    result, again = asyncio.run(both())
    assert result == again and result.args == [4]


def test_the_queue_must_be_one_of_the_backends(tasks: Any, protocol: Any) -> None:
    with pytest.raises(protocol.InvalidTask, match="spam"):
        tasks.add.using(queue_name="spam")
    assert Job.fetch(tasks.add.using(queue_name="spam", backend="open").enqueue().id).origin == "spam"


def test_options_of_fusion_reach_the_job(tasks: Any) -> None:
    job = Job.fetch(tasks.patient.using(log_tag="BILL", meta={"of": "shop"}, ttl="5m").enqueue().id)
    assert (job.timeout, job.result_ttl, job.log_tag, job.meta["of"]) == (20, 60, "BILL", "shop")
    assert job.retry is not None and job.retry.max == 3
    with pytest.raises(TypeError):
        tasks.add.using(timeuot=5)


def test_the_task_has_every_option_that_a_declared_one_can_have(shop: Path) -> None:
    from fusion.contrib.django.tasks import OPTIONS
    from fusion.enqueue.options import ENTRY
    from fusion.enqueue.options import OPTIONS as ALL

    wanted = {option.name for option in ALL if option.of == ENTRY} - {"priority", "job_timeout"}
    assert set(OPTIONS) >= wanted
    assert set(OPTIONS) - wanted == {"timeout", "max_delay", "max_queue_length", "on_commit"}


def test_a_worker_runs_tasks_and_their_results_say_how(tasks: Any, protocol: Any, worker: Any, said: Path) -> None:
    """One worker for all: each job is its own process anyway."""
    sums = [tasks.add.enqueue(1, 2), tasks.add_later.enqueue(3, 4)]
    context, again = tasks.told.enqueue(), tasks.patient.enqueue(often=3)
    moment, failed = tasks.day_after.enqueue(datetime(2030, 1, 1, tzinfo=timezone.utc)), tasks.refuse.enqueue()
    unstored = tasks.answer_with_a_function.enqueue()
    by_name = Queue("default").enqueue(f"{TASKS}.add", 5)
    no_task = Queue("default").enqueue(f"{TASKS}.helper", meta={"django_task": {"backend": "default"}})
    for result, total in zip(sums, (3, 7), strict=True):
        assert ended(result).return_value == total
        assert result.attempts == 1 and result.started_at is not None and result.started_at <= result.finished_at
        assert result.enqueued_at <= result.started_at == result.last_attempted_at
    assert ended(context).return_value == [context.id, 1, "RUNNING", 1, []]
    assert ended(again).return_value == [again.id, 3, "RUNNING", 3, []]
    assert again.attempts == 3 and [one.exception_class for one in again.errors] == [ValueError] * 2
    assert again.started_at < again.last_attempted_at
    assert ended(moment).return_value == datetime(2030, 1, 2, tzinfo=timezone.utc)
    assert ended(failed).status == "FAILED" and failed.errors[0].exception_class is LookupError
    assert (
        failed.errors[0].traceback.endswith("LookupError: no such invoice\n") and "running.py" not in failed.errors[0].traceback
    )
    assert failed.attempts == 1 and len(failed.worker_ids) == 1
    with pytest.raises(ValueError, match="Task failed"):
        _ = failed.return_value
    assert ended(unstored).status == "FAILED" and unstored.errors[0].exception_class is TypeError
    by_name.wait(10)
    assert by_name.result == 5
    assert no_task.wait(10) == "failed" and "TaskNotAllowed" in no_task.error_class
    lines = eventually(lambda: (found := said.read_text().splitlines()) and len(found) >= 18 and found)
    told = [line for line in lines if again.id in line]
    runs = [f"started FusionBackend {again.id} RUNNING {attempt} None" for attempt in (1, 2, 3)]
    assert told == [*runs, f"finished FusionBackend {again.id} SUCCESSFUL 3 {again.return_value}"]
    assert f"finished FusionBackend {failed.id} FAILED 1 None" in lines
    assert f"finished FusionBackend {by_name.id} SUCCESSFUL 1 5" in lines


def test_recurring_declares_an_entry_with_what_the_task_says(tasks: Any) -> None:
    from fusion.cron.declared import collect

    found = collect([], [TASKS])
    assert "dunning" not in found.faults, (found.faults, found.broken)  # other tests of this process declare entries, too
    entry = found.entries["dunning"]
    assert entry.queue == "mail" and entry.job.priority == 0
    assert '"django_task":{"backend":"default","priority":-5}' in entry.job.fields["meta"]


def test_a_decorated_task_limits_its_concurrency(tasks: Any) -> None:
    job = Job.fetch(tasks.remind.enqueue("ada").id)
    assert job.concurrency_key == "invoices/ada"
    assert job._text("max_concurrent") == "2" and job._text("limit_duration") == "300000"
    from fusion.contrib.django.tasks import limits_concurrency, recurring

    for decorate in (limits_concurrency(to=1), recurring(every="5m")):
        with pytest.raises(TypeError, match="must stand above @task"):
            decorate(tasks.helper)
