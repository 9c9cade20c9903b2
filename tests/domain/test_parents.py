"""What a job tells of those that it waited for, and a task of its own."""

from __future__ import annotations

import pytest
import redis

from fusion import Dependency, Job, Queue
from fusion.exceptions import DeserializationError, NoSuchJobError, OptionError
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand
from tests.store.kin_hands import settle

TASK = "tests.jobs.basic.noop"


def test_a_child_reads_what_its_parents_returned_in_the_order_in_which_they_were_named(conn: redis.Redis, broker: Broker) -> None:
    queue = Queue("q")
    a, b = (queue.enqueue(TASK, job_id=one, result_ttl=0) for one in "ab")
    child = queue.enqueue(TASK, depends_on=[b, a])
    assert (child.dependency_ids, a.dependent_ids) == (["b", "a"], [child.id])
    hand = Hand(broker, "q")
    for result in ("1", "2"):
        hand.tell(hand.take(), fields={"result": result})
    settle(broker)
    assert [job.result for job in Job.fetch(child.id).dependencies] == [2, 1]


def test_all_of_many_parents_know_their_child(conn: redis.Redis) -> None:
    queue = Queue("q")
    parents = queue.enqueue_many([Queue.prepare_data(TASK) for _ in range(230)])
    child = queue.enqueue(TASK, depends_on=parents)
    assert Job.fetch(child.id).dependency_ids == [job.id for job in parents]


@pytest.mark.parametrize("listed", ["{", "5", "null", "[" * 100_000])
def test_a_list_of_parents_that_another_program_wrote_is_an_error_of_fusions(conn: redis.Redis, listed: str) -> None:
    job = Queue("q").enqueue(TASK)
    conn.hset(f"rq:job:{job.id}", "parents", listed)
    with pytest.raises(DeserializationError, match="its list of parents can't be read"):
        _ = Job.fetch(job.id).dependency_ids


def test_a_parent_that_nobody_knows_is_what_rq_raises(conn: redis.Redis) -> None:
    with pytest.raises(NoSuchJobError):
        Queue("q").enqueue(TASK, depends_on="nobody")


@pytest.mark.parametrize("wrong", [7, {"a": object()}, "not an id!", [None]])
def test_depends_on_refuses_values_that_are_not_jobs(wrong: object) -> None:
    with pytest.raises(OptionError):
        Queue("q").enqueue(TASK, depends_on=wrong)


def test_a_dependency_says_one_thing() -> None:
    with pytest.raises(OptionError, match="one of the two"):
        Dependency(jobs="a", allow_failure=True, on_failure="wait")
    with pytest.raises(OptionError, match="names a job at least"):
        Dependency(jobs=[])
    with pytest.raises(OptionError, match="use 'fail', 'ignore' or 'wait'"):
        Dependency(jobs="a", on_failure="go")  # type: ignore[arg-type]
