"""`Job.results()` and `latest_result()`, beside what RQ's tell."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fusion import Job, Queue
from fusion.exceptions import NoSuchJobError
from fusion.jobs.results import Result, ResultType
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, put


@pytest.fixture
def hand(conn: redis.Redis) -> Hand:
    put(broker := Broker(conn), "q", "a")
    return Hand(broker, "q")


def test_none_before_the_first_run_ends(conn: redis.Redis, hand: Hand) -> None:
    job = Job.fetch("a", conn)
    assert (job.results(), job.latest_result()) == ([], None)
    hand.take()
    assert job.results() == []
    assert job.latest_result(timeout=0.05) is None


def test_the_newest_first_with_what_it_returned_or_raised(conn: redis.Redis, hand: Hand) -> None:
    for number in (1, 2):
        fields = {"exc_info": f"Traceback {number}\nValueError: {number}", "error_class": "ValueError"}
        hand.tell(hand.take(), "retry", reason=f"ValueError: {number}", delay=0.0, fields=fields)
    job = Job.fetch("a", conn)
    last, first = job.results()
    assert (last.type, last.exc_string) == (ResultType.RETRIED, "Traceback 2\nValueError: 2")
    assert (first.type, first.exc_string) == (ResultType.RETRIED, "ValueError: 1"), "of an earlier one the line that matters"
    hand.tell(hand.take(), "release", reason="its worker ends")
    hand.tell(hand.take(), fields={"result": "[1,2]"})
    results = job.results()
    assert [result.type for result in results] == ["successful", "released", "retried", "retried"]
    assert (results[0].return_value, results[0].exc_string, results[0].job_id) == ([1, 2], None, "a")
    assert results[0].type == Result.Type.SUCCESSFUL
    assert results[0].worker_name == "host.1"
    assert all(result.created_at and result.execution_started_at for result in results)
    assert results[1].return_value is None
    assert job.latest_result() == results[0]


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (lambda hand, claimed: hand.tell(claimed, "failed", reason="E: r", fields={"exc_info": "trace"}), "failed"),
        (lambda hand, claimed: (hand.broker.cancel("a"), hand.tell(claimed, "release", reason="r")), "canceled"),
        (lambda hand, claimed: (hand.broker.stop("a"), hand.tell(claimed, "release", reason="r")), "stopped"),
        (lambda hand, claimed: hand.tell(claimed, "lost", reason="r"), "lost"),
    ],
    ids=["failed", "canceled", "stopped", "lost"],
)
def test_each_way_to_end(conn: redis.Redis, hand: Hand, end: Callable[..., object], kind: str) -> None:
    end(hand, hand.take())
    (*_, first) = Job.fetch("a", conn).results()
    # one that was called off after its process gave it back has both
    assert kind in {str(result.type) for result in Job.fetch("a", conn).results()} or str(first.type) == "released"


def test_results_are_capped(conn: redis.Redis, hand: Hand) -> None:
    for number in range(14):
        hand.tell(hand.take(), "retry", reason=f"E: {number}", delay=0.0)
    hand.tell(hand.take(), fields={"result": "1"})
    results = Job.fetch("a", conn).results()
    assert len(results) == 11
    assert results[1].exc_string == "E: 13"


def test_a_job_that_is_gone(conn: redis.Redis) -> None:
    job = Queue("q", conn).enqueue("tests.jobs.basic.noop")
    job.delete()
    with pytest.raises(NoSuchJobError):
        job.results()
