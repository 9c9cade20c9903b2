"""What is enqueued in a transaction is sent when that is committed, all of it at once, and forgotten with it."""

from __future__ import annotations

import asyncio
import copy
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import redis
from asgiref.sync import async_to_sync, sync_to_async

from fusion import AsyncQueue, Job, Queue, QueueFull, StoreUnavailable
from fusion.exceptions import DuplicateJob, NoSuchJobError

SHIP = "tests.contrib.shop.orders.tasks.ship"


@pytest.fixture
def queue(shop: Path, conn: redis.Redis) -> Queue:
    return Queue("default", conn)


@pytest.fixture
def atomic(shop: Path) -> Any:
    from django.db import transaction

    return transaction.atomic


@pytest.fixture
def failures(shop: Path) -> Iterator[list[dict[str, Any]]]:
    """What `enqueue_failed` said."""
    from fusion.contrib.django.signals import enqueue_failed

    found: list[dict[str, Any]] = []

    def note(**said: Any) -> None:
        found.append(said)

    enqueue_failed.connect(note)
    yield found
    enqueue_failed.disconnect(note)


class RolledBack(Exception):
    pass


def rolled_back(atomic: Any, do: Callable[[], Any], **options: Any) -> Any:
    found = None
    with pytest.raises(RolledBack), atomic(**options):  # noqa: PT012
        found = do()
        raise RolledBack
    return found


def test_jobs_are_sent_at_the_commit_in_their_order(queue: Queue, atomic: Any) -> None:
    with atomic():
        jobs = [queue.enqueue(SHIP, 1)]
        with atomic():
            jobs.append(queue.enqueue(SHIP, 2))
        jobs += queue.enqueue_many([queue.prepare_data(SHIP, [3]), queue.prepare_data(SHIP, [4])])
        jobs.append(async_to_sync(_async_enqueue)())
        assert queue.count == 0 and not Job.exists(jobs[0].id)
        with pytest.raises(NoSuchJobError):
            jobs[0].wait(5)
    assert queue.get_job_ids() == [job.id for job in jobs]
    assert queue.enqueue(SHIP, 5).id in queue.get_job_ids()  # without a transaction: at once


async def _async_enqueue() -> Job:
    # the thread of a sync view is that of its transaction
    return await sync_to_async(Queue("default").enqueue, thread_sensitive=True)(SHIP, 9)


def test_on_the_event_loop_no_transaction_is_open(queue: Queue, atomic: Any) -> None:
    async def enqueue() -> Job:
        return await AsyncQueue("default").enqueue(SHIP, 1)

    assert asyncio.run(enqueue()).id in queue.get_job_ids()
    with atomic():
        assert async_to_sync(enqueue)().id in queue.get_job_ids()


def test_jobs_of_a_rolled_back_savepoint_are_dropped(queue: Queue, atomic: Any) -> None:
    rolled_back(atomic, lambda: queue.enqueue(SHIP, 1))
    with atomic():
        first = queue.enqueue(SHIP, 1)
        rolled_back(atomic, lambda: [queue.enqueue(SHIP, 2), queue.enqueue(SHIP, 3)])
        last = queue.enqueue(SHIP, 4)
    assert queue.get_job_ids() == [first.id, last.id]
    with atomic(durable=True):
        rolled_back(atomic, lambda: queue.enqueue(SHIP, 5))
    assert queue.count == 2


def test_where_transactions_are_ended_by_hand_an_enqueue_is_refused(queue: Queue, atomic: Any) -> None:
    """Nobody could tell when it is committed; Django refuses its own on_commit there, too."""
    from django.db import transaction

    transaction.set_autocommit(False)
    try:
        with pytest.raises(transaction.TransactionManagementError, match=r"atomic\(\), with on_commit=False .* outbox"):
            queue.enqueue(SHIP, 1)
        assert queue.count == 0
        at_once = queue.enqueue(SHIP, 2, on_commit=False)
        with atomic():
            held = queue.enqueue(SHIP, 3)
        assert queue.get_job_ids() == [at_once.id], "until the outer one is committed"
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)
    assert queue.get_job_ids() == [at_once.id], held.id


def test_jobs_that_django_forgets_since_another_callback_raised_are_logged(
    queue: Queue, atomic: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from django.db import transaction

    with pytest.raises(RolledBack), atomic():  # noqa: PT012
        transaction.on_commit(_raise)
        lost = [queue.enqueue(SHIP, 1), queue.enqueue(SHIP, 2)]
    assert queue.count == 0
    (line,) = [record.getMessage() for record in caplog.records if record.name == "fusion.django"]
    assert line.startswith(f"{lost[0].id}, {lost[1].id}: enqueued in a transaction of default that is committed, and not sent")
    assert "raised RolledBack" in line
    rolled_back(atomic, lambda: queue.enqueue(SHIP, 3))
    with atomic():
        sent = queue.enqueue(SHIP, 4)
    assert queue.get_job_ids() == [sent.id]
    assert len([record for record in caplog.records if record.name == "fusion.django"]) == 1, "what is rolled back is no loss"


def _raise() -> None:
    raise RolledBack


def test_a_job_can_be_copied_whole(queue: Queue) -> None:
    """As Django does with what `setUpTestData` makes."""
    job = queue.enqueue(SHIP, 1, meta={"a": [1]})
    copied = copy.deepcopy({"job": job, "again": job})
    assert copied["job"] == job and copied["job"] is not job and copied["job"].connection is job.connection
    copied["job"].meta["a"].append(2)
    assert job.meta == {"a": [1]} and copied["job"].args == (1,)
    copied["job"].refresh()


def test_a_transaction_that_a_job_leaves_open_is_not_the_next_ones(
    shop: Path, conn: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    from django.db import connection, transaction

    from fusion.contrib.django.connections import Connections

    def run(task: Callable[[], object]) -> None:
        around = Connections().around_job(SimpleNamespace(id="job-1", func_name="shop.leave"))  # type: ignore[arg-type]
        next(around)
        task()
        assert next(around, None) is None

    run(lambda: transaction.atomic().__enter__())
    assert not connection.in_atomic_block
    assert "job job-1 (shop.leave) ended with a transaction of default open, which is rolled back" in caplog.text
    run(lambda: (transaction.atomic().__enter__(), transaction.atomic().__enter__(), connection.close()))
    with transaction.atomic():
        assert len(connection.atomic_blocks) == 1
    assert connection.get_autocommit() and not connection.savepoint_ids
    with transaction.atomic():
        run(lambda: None)
        assert connection.in_atomic_block, "one that was open before is whoever's that opened it"


def test_a_job_waits_for_each_transaction_that_is_open(queue: Queue, atomic: Any) -> None:
    with atomic(using="archive"):
        with atomic():
            both = queue.enqueue(SHIP, 1)
        assert queue.count == 0
        alone = queue.enqueue(SHIP, 2)
    assert sorted(queue.get_job_ids()) == sorted([both.id, alone.id])
    with atomic():
        rolled_back(atomic, lambda: queue.enqueue(SHIP, 3), using="archive")
    rolled_back(atomic, lambda: _with(atomic(using="archive"), lambda: queue.enqueue(SHIP, 4)))
    assert queue.count == 2


def _with(context: Any, do: Callable[[], Any]) -> Any:
    with context:
        return do()


def test_a_call_or_the_project_can_say_that_it_is_at_once(queue: Queue, atomic: Any) -> None:
    from django.conf import settings
    from django.test import override_settings

    with atomic():
        assert Job.exists(queue.enqueue(SHIP, 1, on_commit=False).id)
        with override_settings(FUSION={**settings.FUSION, "ON_COMMIT": False}):
            assert Job.exists(queue.enqueue(SHIP, 2).id)
            assert not Job.exists(queue.enqueue(SHIP, 3, on_commit=True).id)
    assert queue.count == 3


@pytest.mark.parametrize(
    ("variable", "project", "held"),
    [("0", True, False), ("false", None, False), ("yes", False, True), ("", False, False), ("", "off", False), ("", None, True)],
)
def test_a_variable_says_it_above_the_project(
    queue: Queue, atomic: Any, monkeypatch: pytest.MonkeyPatch, variable: str, project: Any, held: bool
) -> None:
    from django.test import override_settings

    monkeypatch.setenv("FUSION_ON_COMMIT", variable)
    with override_settings(FUSION={} if project is None else {"ON_COMMIT": project}), atomic():
        assert Job.exists(queue.enqueue(SHIP, 1).id) is not held
        assert not Job.exists(queue.enqueue(SHIP, 2, on_commit=True).id)


def test_a_backend_says_it_for_its_tasks(queue: Queue, atomic: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from django.conf import settings
    from django.test import override_settings

    from tests.contrib.shop.billing import tasks

    for says in (True, False):
        backend = {**settings.TASKS["default"], "OPTIONS": {"ENQUEUE_ON_COMMIT": says}}
        monkeypatch.setenv("FUSION_ON_COMMIT", str(not says))
        with override_settings(TASKS={"default": backend}), atomic():
            assert Job.exists(tasks.add.enqueue(1).id) is not says
            assert Job.exists(queue.enqueue(SHIP, 1).id) is says


def test_a_task_is_ready_at_once_and_there_at_the_commit(queue: Queue, atomic: Any) -> None:
    from fusion.contrib.django import protocol
    from tests.contrib.shop.billing import tasks

    told: list[Any] = []

    def note(task_result: Any, **_: Any) -> None:
        told.append(task_result)

    signal = protocol.signals().task_enqueued
    signal.connect(note)
    try:
        with atomic():
            result = tasks.add.enqueue(1)
            assert result.status == "READY" and result.id and result.enqueued_at is None and not told
            with pytest.raises(protocol.TaskResultDoesNotExist):
                result.refresh()
            now = tasks.add.using(backend="open").enqueue(2)
            assert told == [now] and now.enqueued_at is not None
            assert Job.exists(tasks.add.using(on_commit=False).enqueue(3).id)
        assert told[-1] is result and result.enqueued_at is not None
        assert tasks.add.get_result(result.id) == result
    finally:
        signal.disconnect(note)


def test_a_refused_enqueue_raises_after_the_commit(queue: Queue, atomic: Any, failures: list[Any], shop: Path) -> None:
    from tests.contrib.shop.orders.models import Customer

    queue.set_max_length(1)
    with pytest.raises(QueueFull) as full, atomic():  # noqa: PT012 - raised by the commit
        Customer.objects.create(name="Ada")
        fits = queue.enqueue(SHIP, 1)
        refused = queue.enqueue(SHIP, 2)
        other = Queue("mail", queue.connection).enqueue(SHIP, 3)
    assert Customer.objects.count() == 1 and full.value.job_ids == (refused.id,)  # type: ignore[attr-defined]
    assert Job.exists(fits.id) and Job.exists(other.id) and not Job.exists(refused.id)
    assert [(said["job_ids"], said["using"], said["error"]) for said in failures] == [((refused.id,), "default", full.value)]
    queue.set_max_length(None)
    assert failures[0]["held"].send()[0].id == refused.id
    with pytest.raises(ExceptionGroup) as several, atomic():  # noqa: PT012
        for _ in range(2):
            queue.enqueue(SHIP, 1, job_id=fits.id)
    assert [type(error) for error in several.value.exceptions] == [DuplicateJob] * 2


@pytest.mark.long
def test_without_redis_one_error_has_all_ids_and_repeats(queue: Queue, atomic: Any, failures: list[Any]) -> None:
    away = Queue("default", redis.Redis(host="127.0.0.1", port=1))
    with pytest.raises(StoreUnavailable) as found, atomic():
        jobs = [away.enqueue(SHIP, 1), Queue("mail", away.connection).enqueue(SHIP, 2)]
    assert found.value.job_ids == tuple(job.id for job in jobs) and len(failures) == 2
    with pytest.raises(StoreUnavailable) as again:
        found.value.repeat()
    assert again.value.job_ids == found.value.job_ids


def test_a_test_case_runs_what_it_captured(queue: Queue) -> None:
    from django.test import TestCase

    ids: list[list[str]] = []

    class Case(TestCase):
        databases = frozenset(("default", "archive"))

        def test_it(self) -> None:
            queue.enqueue(SHIP, 0)
            with self.captureOnCommitCallbacks(execute=True) as callbacks:
                job, other = queue.enqueue(SHIP, 1), queue.enqueue(SHIP, 2)
                assert queue.count == 0
            assert len(callbacks) == 2
            ids.extend([[job.id, other.id], queue.get_job_ids()])

    outcome = unittest.TestResult()
    unittest.TestLoader().loadTestsFromTestCase(Case).run(outcome)
    assert not outcome.errors + outcome.failures and ids[0] == ids[1]
