"""Jobs before they are accepted, while they wait, and after: RQ's methods on Fusion's records."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
import redis

from fusion.exceptions import DeserializationError, SerializationError
from fusion.rq import Queue, RateLimit, Retry, cancel_job, requeue_job
from fusion.rq.connections import get_connection_kwargs
from fusion.rq.exceptions import DuplicateJobError, InvalidJobOperation, NoSuchJobError
from fusion.rq.job import Dependency, Job, JobStatus
from fusion.rq.registry import FailedJobRegistry, RateLimitRegistry, ScheduledJobRegistry
from fusion.rq.results import Result
from tests.rq import tasks_of_rq as tasks

Burst = Callable[..., bool]


def test_a_job_before_it_is_accepted(queue: Queue, burst: Burst, client: redis.Redis) -> None:
    job = Job.create(tasks.add, (1,), {"b": 2}, connection=client, id="early")
    assert (job.get_status(), job.func, job.args, job.kwargs) == (JobStatus.CREATED, tasks.add, (1,), {"b": 2})
    assert not Job.exists("early", client)
    job.meta["by"] = "me"
    job.timeout = "1m"

    queue.enqueue_job(job)

    assert (job.origin, job.get_status()) == ("work", "queued")
    burst()
    found = Job.fetch("early", client)
    assert (found.result, found.meta, found.timeout) == (3, {"by": "me"}, 60)


def test_a_finished_job_is_enqueued_again(queue: Queue, burst: Burst) -> None:
    job = queue.enqueue(tasks.add, 1, job_id="again")
    burst()
    assert job.is_finished
    queue.enqueue_job(job)
    assert job.is_queued and queue.job_ids == ["again"]
    burst()
    assert job.is_finished


def test_one_id_lives_once(queue: Queue) -> None:
    queue.enqueue(tasks.add, 1, job_id="one")
    for unique in (False, True):
        with pytest.raises(DuplicateJobError):
            queue.enqueue(tasks.add, 1, job_id="one", unique=unique)
    with pytest.raises(ValueError, match="explicit job_id"):
        queue.enqueue(tasks.add, 1, unique=True)


def test_an_argument_that_only_pickle_carries(queue: Queue) -> None:
    with pytest.raises(SerializationError, match=r"argument 1 .*FUSION_ALLOW_PICKLE=1.*docs/from-rq\.md"):
        queue.enqueue(tasks.add, object())


def test_cancel_twice_is_an_error(queue: Queue, client: redis.Redis) -> None:
    job = queue.enqueue(tasks.add, 1)
    cancel_job(job.id, client)
    assert job.is_canceled and len(queue.canceled_job_registry) == 1 and queue.count == 0
    with pytest.raises(InvalidJobOperation):
        job.cancel()


def test_a_job_that_is_gone(queue: Queue) -> None:
    job = queue.enqueue(tasks.add, 1)
    job.delete()
    with pytest.raises(InvalidJobOperation):
        job.get_status()
    with pytest.raises(NoSuchJobError):
        job.refresh()


def test_failed_jobs_are_in_their_queues_registry(queue: Queue, burst: Burst, client: redis.Redis) -> None:
    job, other = queue.enqueue(tasks.fail), Queue("other", client).enqueue(tasks.fail)
    burst("work", "other")
    registry = FailedJobRegistry(queue=queue)
    assert registry.get_job_ids() == [job.id] and job in registry and other not in registry
    assert len(queue.failed_job_registry) == registry.count == 1

    assert registry.requeue(job.id) == job
    assert queue.job_ids == [job.id] and registry.count == 0
    with pytest.raises(InvalidJobOperation):
        registry.requeue(job.id)
    burst()
    assert requeue_job(job.id, client).is_queued
    burst()
    registry.remove(job, delete_job=True)
    assert not Job.exists(job.id, client) and registry.count == 0
    assert [one.get_status() for one in (other,)] == ["failed"]


def test_pages_of_a_registry(queue: Queue, burst: Burst) -> None:
    ids = [queue.enqueue(tasks.add, n).id for n in range(4)]
    burst()
    registry = queue.finished_job_registry
    assert registry.get_job_ids() == ids
    assert (registry.get_job_ids(1, 2), registry.get_job_ids(-2), registry.get_job_ids(0, -2)) == (ids[1:3], ids[2:], ids[:3])
    assert registry.get_job_ids(desc=True) == ids[::-1]


def test_times(queue: Queue) -> None:
    later = queue.enqueue_in(timedelta(hours=1), tasks.add, 1)
    naive = datetime.now() + timedelta(hours=2)  # noqa: DTZ005 - a naive time, as RQ takes it
    latest = queue.enqueue_at(naive, tasks.add, 2, at_front=True)
    registry = ScheduledJobRegistry(queue=queue)
    assert registry.get_job_ids() == [later.id, latest.id] and later.is_scheduled
    assert abs(registry.get_scheduled_time(latest).timestamp() - naive.timestamp()) < 0.01


def test_a_due_job_runs(queue: Queue, burst: Burst) -> None:
    job = queue.enqueue_in(timedelta(seconds=0.05), tasks.add, 4)
    time.sleep(0.1)
    burst()
    assert job.result == 4


def test_a_child_waits_until_its_failed_parent_finishes(queue: Queue, burst: Burst, client: redis.Redis) -> None:
    parent = queue.enqueue(tasks.fail_while, "broken")
    child = queue.enqueue(tasks.add, 1, depends_on=parent)
    hardy = queue.enqueue(tasks.add, 2, depends_on=Dependency(jobs=parent, allow_failure=True))
    client.set("broken", 1)
    assert child.is_deferred and child.dependency == parent and child.id in queue.deferred_job_registry
    burst()
    assert (parent.get_status(), child.get_status(), hardy.get_status()) == ("failed", "deferred", "finished")
    client.delete("broken")
    parent.requeue()
    burst()
    assert (parent.get_status(), child.get_status()) == ("finished", "finished")


def test_an_unknown_parent_counts_as_finished(queue: Queue) -> None:
    with pytest.warns(RuntimeWarning, match="parent gone is gone"):
        job = queue.enqueue(tasks.add, 1, depends_on=["gone"])
    assert job.is_queued
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        child = queue.enqueue(tasks.add, 1, depends_on=[job])
    assert child.is_deferred


def test_retries(queue: Queue, burst: Burst) -> None:
    job = queue.enqueue(tasks.fail, retry=Retry(max=2))
    assert job.retries_left == 2
    burst()
    job.refresh()
    assert job.is_failed and job.retries_left == 0
    assert [one.type for one in job.results()] == [Result.Type.FAILED, Result.Type.RETRIED, Result.Type.RETRIED]
    assert "ValueError" in (job.latest_result().exc_string or "")


@pytest.mark.parametrize(("policy", "intervals"), [(Retry(3, [1, 2]), [1, 1, 2]), (Retry(1, [5, 10]), [10]), (Retry(2, 7), [7])])
def test_fewer_intervals_than_retries(queue: Queue, policy: Retry, intervals: list[int]) -> None:
    assert queue.enqueue(tasks.fail, retry=policy).retry_intervals == intervals


def test_a_policy_of_none(queue: Queue) -> None:
    with pytest.raises(ValueError, match="greater than 0"):
        Retry(max=0)


def test_a_rate_limit_holds_jobs_back(queue: Queue, burst: Burst) -> None:
    jobs = [queue.enqueue(tasks.add, n, rate_limit=RateLimit("gate", 1)) for n in range(2)]
    assert [job.get_status() for job in jobs] == ["queued", "rate_limited"]
    assert jobs[0].has_rate_limit and (jobs[0].rate_limit_key, jobs[0].rate_limit_concurrency) == ("gate", 1)
    burst()
    assert [job.result for job in jobs] == [0, 1]


def test_many(queue: Queue, burst: Burst) -> None:
    first = queue.enqueue(tasks.add, 0)
    jobs = queue.enqueue_many([
        Queue.prepare_data(tasks.add, (1,), depends_on=first, job_id="child"),
        Queue.prepare_data(tasks.add, (2,), {"b": 1}, timeout=7, job_id="free"),
    ])  # fmt: skip
    assert [job.id for job in jobs] == ["free", "child"] and jobs[0].timeout == 7
    burst()
    assert [job.result for job in jobs] == [3, 1]


def test_what_cannot_be_had_is_refused_by_name(queue: Queue, client: redis.Redis) -> None:
    job = queue.enqueue(tasks.add, 1)
    for call in (
        lambda: queue.enqueue(tasks.add, 1, pipeline=client.pipeline()),
        lambda: job.set_status(JobStatus.FAILED),
        lambda: queue.finished_job_registry.add(job),
    ):
        with pytest.raises(NotImplementedError, match=r"docs/from-rq\.md"):
            call()
    assert queue.count == 1


def test_a_cancel_lets_the_children_go(queue: Queue, client: redis.Redis) -> None:
    jobs = [queue.enqueue(tasks.add, n) for n in range(3)]
    kept = queue.enqueue(tasks.add, 3, depends_on=jobs[0])
    freed = [queue.enqueue(tasks.add, 4, depends_on=jobs[1:2]), queue.enqueue(tasks.add, 5, depends_on=jobs[1:3])]
    jobs[0].cancel()
    cancel_job(jobs[1].id, client, enqueue_dependents=True)
    assert [job.get_status() for job in (jobs[1], kept, *freed)] == ["canceled", "deferred", "queued", "deferred"]
    jobs[2].cancel(enqueue_dependents=True)
    assert queue.job_ids == [job.id for job in freed]


@pytest.mark.parametrize("by_registry", [True, False])
def test_a_requeue_puts_it_to_the_front(queue: Queue, burst: Burst, client: redis.Redis, by_registry: bool) -> None:
    failed = queue.enqueue(tasks.fail)
    burst()
    others = [queue.enqueue(tasks.add, n, at_front=n == 1) for n in range(2)]
    if by_registry:
        FailedJobRegistry(queue=queue).requeue(failed.id, at_front=True)
    else:
        failed.requeue(at_front=True)
    assert queue.job_ids == [failed.id, others[1].id, others[0].id]


def test_a_missing_name_names_its_counterpart() -> None:
    with pytest.raises(ImportError):
        from fusion.rq import NoSuchThing  # noqa: F401
    import fusion.rq as rq

    with pytest.raises(AttributeError, match=r"fusion\.rq\.worker_pool.*docs/from-rq\.md"):
        rq.WorkerPool  # noqa: B018


def test_times_that_were_not_given_are_none_and_the_usual_ones_hold(queue: Queue, burst: Burst, client: redis.Redis) -> None:
    job = queue.enqueue(tasks.add, 1)
    found = Job.fetch(job.id, client)
    assert (found.result_ttl, found.failure_ttl, found.get_result_ttl(9)) == (None, None, 9)
    given = Job.create(tasks.add, (1,), connection=client)
    given.result_ttl = 500
    queue.enqueue_job(given)
    assert Job.fetch(given.id, client).result_ttl == 500
    burst()
    assert job.is_finished
    left = queue.finished_job_registry.get_expiration_time(job) - datetime.now(timezone.utc)
    assert 490 < left.total_seconds() <= 500


def test_a_requeued_job_has_no_start(queue: Queue, burst: Burst, client: redis.Redis) -> None:
    job = queue.enqueue(tasks.fail)
    burst()
    job.refresh()
    assert job.started_at is not None
    queue.failed_job_registry.requeue(job.id)
    job.refresh()
    assert (job.started_at, job.ended_at) == (None, None)


def test_a_job_without_a_function(client: redis.Redis) -> None:
    job = Job("empty", client)
    job.description = "nothing"
    assert str(job) == "<Job empty: nothing>"
    for name in ("func", "args", "kwargs", "instance"):
        with pytest.raises(DeserializationError, match=r"make it with Job\.create"):
            getattr(job, name)
    with pytest.raises(ValueError, match=r"make it with Job\.create"):
        job.save()


@pytest.mark.parametrize("parents", [12345, [{"id": "no"}, "early"]])
def test_what_is_no_job_can_not_be_waited_for(client: redis.Redis, parents: object) -> None:
    with pytest.raises(ValueError, match="must contain objects of type Job"):
        Job.create(tasks.add, (1,), depends_on=parents, connection=client)


def test_the_jobs_of_a_rate_limit(queue: Queue, client: redis.Redis) -> None:
    first, second, third = (queue.enqueue(tasks.add, n, rate_limit=RateLimit("key", 1)) for n in range(3))
    registry = RateLimitRegistry("key", client)
    assert (registry.get_allowed_job_ids(), registry.get_rate_limited_job_ids()) == ([first.id], [second.id, third.id])
    assert (registry.get_allowed_job_count(), registry.get_rate_limited_job_count()) == (1, 2)
    with pytest.raises(InvalidJobOperation), client.pipeline() as pipe:
        first.cancel(pipeline=pipe)
    with pytest.raises(ValueError, match="takes no pipeline"), client.pipeline() as pipe:
        queue.enqueue_call(tasks.add, (1,), rate_limit=RateLimit("key", 1), pipeline=pipe)
    second.cancel()
    first.cancel()
    assert registry.get_allowed_job_ids() == [third.id]


def test_the_arguments_of_a_client_make_the_same_client(client: redis.Redis) -> None:
    again = redis.Redis(**get_connection_kwargs(client))
    client.set("a", "b")
    assert again.get("a") == b"b"


def test_emptying_a_queue_leaves_what_waits_for_others_or_for_a_time(queue: Queue, client: redis.Redis) -> None:
    parent = queue.enqueue(tasks.add, 1)
    child = queue.enqueue(tasks.add, 2, depends_on=parent)
    later = queue.enqueue_in(timedelta(hours=1), tasks.add, 3)
    assert parent.enqueued_at is not None and child.enqueued_at is None and later.enqueued_at is None
    assert queue.empty() == 1
    assert queue.job_ids == [] and not Job.exists(parent.id, client)
    assert (child.get_status(), later.get_status()) == ("deferred", "scheduled")
    assert queue.deferred_job_registry.get_job_ids() == [child.id]
