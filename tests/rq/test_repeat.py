"""`Repeat`: the same job runs again, after each run that finishes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion.kernel.timeutil import now
from fusion.rq import Callback, Queue, Repeat, Retry, SimpleWorker
from fusion.rq.job import Job
from fusion.rq.registry import FailedJobRegistry, ScheduledJobRegistry
from fusion.rq.results import Result
from fusion.store.access import broker_of
from tests.kit.hands import promote_all
from tests.rq import tasks_of_rq as tasks

Burst = Callable[..., bool]


def _lines(path: Path) -> list[str]:
    return path.read_text().split()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def test_a_job_runs_so_many_times_more_under_its_id(queue: Queue, burst: Burst, client: redis.Redis, path: Path) -> None:
    job = queue.enqueue(tasks.count, str(path), on_success=Callback(tasks.note_run), repeat=Repeat(times=2))
    assert (job.repeats_left, job.repeat_intervals) == (2, [0])
    burst()
    job.refresh()
    assert (job.get_status(), job.result, job.repeats_left, len(_lines(path))) == ("finished", [str(path), 3], 0, 3)
    assert _lines(Path(f"{path}.heard")) == ["1", "2", "3"], "on_success is called for each run"
    assert [(one.type, one.return_value) for one in job.results()] == [
        (Result.Type.SUCCESSFUL, [str(path), 3]),
        (Result.Type.SUCCESSFUL, None),
        (Result.Type.SUCCESSFUL, None),
    ]


def test_the_intervals_come_in_their_order_and_the_last_one_stays(
    queue: Queue, burst: Burst, client: redis.Redis, path: Path
) -> None:
    job = queue.enqueue(tasks.count, str(path), repeat=Repeat(times=3, interval=[30, 0]))
    burst()
    job.refresh()
    assert (job.get_status(), job.result, job.repeats_left, job.repeat_intervals) == ("scheduled", [str(path), 1], 2, [0])
    assert job.latest_result().return_value == [str(path), 1]
    due = ScheduledJobRegistry(queue=queue).get_scheduled_time(job)
    assert timedelta(seconds=20) < due - now() <= timedelta(seconds=30)
    promote_all(broker_of(client), client)
    burst()
    job.refresh()
    assert (job.get_status(), job.result, job.repeats_left) == ("finished", [str(path), 4], 0)


def test_a_run_that_fails_ends_it_and_a_requeue_goes_on(queue: Queue, burst: Burst, client: redis.Redis, path: Path) -> None:
    job = queue.enqueue(tasks.count, str(path), fails_at=[2], repeat=Repeat(times=2))
    burst()
    job.refresh()
    assert (job.get_status(), job.result, job.repeats_left, len(_lines(path))) == ("failed", None, 1, 2)
    assert [one.type.name for one in job.results()] == ["FAILED", "SUCCESSFUL"]
    FailedJobRegistry(queue=queue).requeue(job)
    burst()
    job.refresh()
    assert (job.get_status(), job.result, job.repeats_left, len(_lines(path))) == ("finished", [str(path), 4], 0, 4)


def test_retries_count_over_all_runs_as_in_rq(queue: Queue, burst: Burst, client: redis.Redis, path: Path) -> None:
    job = queue.enqueue(tasks.count, str(path), fails_at=[1, 3, 5], retry=Retry(max=2), repeat=Repeat(times=3))
    burst()
    job.refresh()
    assert (job.get_status(), job.repeats_left, job.retries_left, len(_lines(path))) == ("failed", 1, 0, 5)


def test_none_is_the_result_of_a_run_that_returned_none(queue: Queue, burst: Burst, client: redis.Redis, path: Path) -> None:
    path.touch()
    job = queue.enqueue(tasks.take_away, str(path), repeat=Repeat(times=2))
    burst()
    job.refresh()
    assert (job.get_status(), job.result) == ("finished", None)


def test_whoever_stops_it_ends_its_repeats(queue: Queue, burst: Burst, client: redis.Redis) -> None:
    job = queue.enqueue(tasks.stop_itself, repeat=Repeat(times=2))
    burst()
    job.refresh()
    assert (job.get_status(), job.repeats_left) == ("stopped", 2)


def test_a_lost_run_ends_it_as_in_rq_and_with_retries_it_goes_on(
    queue: Queue, burst: Burst, client: redis.Redis, path: Path
) -> None:
    jobs = [
        queue.enqueue(tasks.die_once, f"{path}{n}", retry=retry, repeat=Repeat(times=1))
        for n, retry in enumerate((None, Retry(max=1)))
    ]
    burst()
    promote_all(broker_of(client), client)
    burst()
    for job in jobs:
        job.refresh()
    assert [(job.get_status(), job.repeats_left) for job in jobs] == [("failed", 1), ("finished", 0)]


def test_its_children_run_after_its_first_run(queue: Queue, burst: Burst, client: redis.Redis, path: Path) -> None:
    parent = queue.enqueue(tasks.count, str(path), repeat=Repeat(times=1, interval=600))
    child = queue.enqueue(tasks.add, 1, depends_on=parent)
    burst()
    assert (parent.get_status(), child.get_status(), child.result) == ("scheduled", "finished", 1)
    parent.cancel()
    assert parent.is_canceled


def test_every_way_to_enqueue_takes_it(queue: Queue, client: redis.Redis) -> None:
    repeat = Repeat(times=2, interval=(1, 2))
    draft = Job.create(tasks.add, (1,), connection=client)
    draft.repeats_left, draft.repeat_intervals = 2, [1, 2]
    draft.save()
    jobs = [
        queue.enqueue_call(tasks.add, (1,), repeat=repeat),
        queue.enqueue_at(now(), tasks.add, 1, repeat=repeat),
        *queue.enqueue_many([queue.prepare_data(tasks.add, (1,), repeat=repeat)]),
        queue.enqueue_job(Job.fetch(draft.id, client)),
    ]
    for job in jobs:
        found = Job.fetch(job.id, client)
        assert (found.repeats_left, found.repeat_intervals, found._text("ties")) == (2, [1, 2], "r")
    plain = queue.enqueue(tasks.add, 1)
    assert (plain.repeats_left, plain.repeat_intervals) == (None, None) and not client.hexists(plain.key, "ties")


def test_a_worker_in_this_process_repeats_too(queue: Queue, client: redis.Redis, path: Path) -> None:
    job = queue.enqueue(tasks.count, str(path), repeat=Repeat(times=1))
    SimpleWorker([queue], connection=client).work(burst=True)
    job.refresh()
    assert (job.get_status(), job.result, len(_lines(path))) == ("finished", [str(path), 2], 2)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"times": 0}, ValueError),
        ({"times": 1, "interval": -1}, ValueError),
        ({"times": 1, "interval": [1, -1]}, ValueError),
        ({"times": 1, "interval": []}, ValueError),
        ({"times": 1, "interval": "10"}, TypeError),
        ({"times": 1, "interval": None}, TypeError),
    ],
)
def test_what_can_not_be_repeated(given: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Repeat(**given)
    with pytest.raises(NotImplementedError, match=r"Repeat\.schedule\(\) .* a worker does it"):
        Repeat.schedule(None, None)
