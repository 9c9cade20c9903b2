"""Jobs that would wait for each other for ever: whoever closes the circle is refused; what no search found is found later, and fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise

import pytest
import redis

from fusion import Queue
from fusion.exceptions import DependencyCycle, UnknownDependency
from fusion.store.access import inspector_of
from fusion.store.layout.records import NewJob
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, everything, fields_of, new, status_of
from tests.store.batch_hands import begin, callback
from tests.store.kin_hands import child, give, of_kin, settle

TASK = "tests.jobs.basic.noop"


def failed(hand: Hand, *jobs: NewJob) -> None:
    """Enqueue them and have each fail."""
    give(hand.broker, "q", *jobs)
    for _ in jobs:
        hand.tell(hand.take(), "failed", reason="r")
    settle(hand.broker)


def refused(conn: redis.Redis, call: Callable[[], object], path: str) -> None:
    """The call raises DependencyCycle with this path, and changes nothing."""
    before = everything(conn)
    with pytest.raises(DependencyCycle, match=f"would wait for itself: {path}\\."):
        call()
    assert everything(conn) == before


@pytest.mark.parametrize("life", ["none", "failed", "finished", "deleted"])
@pytest.mark.parametrize("sign", ["", "?", "~"])
def test_no_job_waits_for_itself(conn: redis.Redis, broker: Broker, hand: Hand, life: str, sign: str) -> None:
    if life != "none":
        give(broker, "q", new("x"))
        hand.tell(hand.take(), "failed" if life == "failed" else "finished", reason="r")
    if life == "deleted":
        broker.delete(["x"])
    refused(conn, lambda: give(broker, "q", child("x", f"{sign}x")), "x -> x")


def test_the_queue_refuses_it_too(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    failed(hand, new("x"))
    refused(conn, lambda: Queue("q").enqueue(TASK, job_id="x", depends_on="x"), "x -> x")


def test_an_id_that_lives_again_may_not_wait_for_those_that_wait_for_it(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    failed(hand, new("a"))
    give(broker, "q", child("b", "~a"), child("c", "b"), new("other"))
    refused(conn, lambda: give(broker, "q", child("a", "other", "c")), "a -> c -> b -> a")
    give(broker, "q", child("a", "other"))
    hand.tell(hand.take())
    order = []
    for _ in range(3):
        settle(broker)
        order.append((claimed := hand.take()).id)
        hand.tell(claimed)
    assert order == ["a", "b", "c"]


@pytest.mark.parametrize("parts", [False, True])
def test_a_call_may_not_close_a_circle_by_what_it_brings_together(
    conn: redis.Redis, broker: Broker, hand: Hand, parts: bool
) -> None:
    """k -> j is new, j -> z too, and z waits for k already."""
    failed(hand, new("k"))
    give(broker, "q", child("z", "~k"))
    datas = [Queue.prepare_data(TASK, job_id="j", depends_on="z"), Queue.prepare_data(TASK, job_id="k", depends_on="j")]
    if parts:
        datas[1:1] = [Queue.prepare_data(TASK, job_id=f"m{nth}", depends_on="j") for nth in range(90)]
    with pytest.raises(DependencyCycle, match="would wait for itself: k -> j -> z -> k"):
        Queue("q").enqueue_many(datas)
    settle(broker)
    assert (status_of(conn, "j"), status_of(conn, "k"), status_of(conn, "z")) == (None, "failed", "deferred")
    check_conservation(conn, ["k", "z"])
    assert not conn.exists("rq:graphs")


def test_jobs_of_one_call_in_whatever_order_may_not_wait_for_each_other(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    """Queues send parents before their children; a script does not count on that."""
    failed(hand, new("j"))
    failed(hand, new("k"))
    refused(conn, lambda: give(broker, "q", child("j", "?k"), child("k", "j")), "k -> j -> k")


@pytest.mark.parametrize("way", ["requeue", "restore"])
def test_a_requeued_job_may_not_wait_for_its_own_dependents(conn: redis.Redis, broker: Broker, hand: Hand, way: str) -> None:
    failed(hand, new("p"))
    give(broker, "q", child("j", "~p"))
    give(broker, "q", child("z", "~j"))
    if way == "requeue":
        broker.cancel("j")
        settle(broker)
    else:
        assert broker.delete_to_trash(["j"]) == ["kept"]  # z has not heard
    give(broker, "q", child("p", "z"))
    before = everything(conn)
    answers = broker.requeue(["j"], "n") if way == "requeue" else broker.restore(["j"], "n")
    assert answers == ["cycle j -> p -> z -> j"]
    assert everything(conn) == before
    if way == "requeue":
        with pytest.raises(DependencyCycle, match="'j' would wait for itself: j -> p -> z -> j"):
            Queue("q").fetch_job("j").requeue()  # type: ignore[union-attr]
    broker.cancel("z")
    settle(broker)
    assert (broker.requeue(["j"], "m") if way == "requeue" else broker.restore(["j"], "m")) in (["ok"], ["restored"])


def test_a_parent_that_one_of_a_hundred_and_more_is(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    failed(hand, new("a"))
    give(broker, "q", child("b", "~a"))
    give(broker, "q", *(new(f"p{nth}") for nth in range(130)))
    with pytest.raises(DependencyCycle, match="a -> b -> a"):
        Queue("q").enqueue(TASK, job_id="a", depends_on=[*(f"p{nth}" for nth in range(130)), "b"])
    settle(broker)
    assert status_of(conn, "p0") == "queued" and status_of(conn, "b") in ("failed", "deferred")
    assert not conn.exists("rq:graphs", "rq:job:a:parents")


def long_line(broker: Broker, hand: Hand, length: int) -> None:
    """`a` has failed, and a line of jobs waits for it, the last of them `n<length>`."""
    failed(hand, new("a"))
    give(broker, "q", child("n1", "~a"))
    for nth in range(2, length + 1):
        give(broker, "q", child(f"n{nth}", f"n{nth - 1}"))


def test_the_search_ends_and_what_is_beyond_fails_when_it_is_found(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    long_line(broker, hand, 199)
    refused(conn, lambda: give(broker, "q", child("a", "n199")), r"a -> n199 -> n198 -> n197 -> \.\.\. -> n1 -> a")
    give(broker, "q", *(child(f"n{nth}", f"n{nth - 1}") for nth in range(200, 206)))
    give(broker, "q", child("a", "n205"))
    assert status_of(conn, "a") == "deferred"
    for _ in range(20):
        broker.clean(interval=0)
        settle(broker)
    ended = [one for one in ("a", *(f"n{nth}" for nth in range(1, 206))) if status_of(conn, one) == "failed"]
    assert len(ended) >= 50
    reasons = [fields_of(conn, one)["reason"] for one in ended]
    assert any(reason.startswith("it waited for itself: ") and reason.count(" -> ") == 6 for reason in reasons)


@pytest.mark.parametrize("signs", [("", ""), ("?", "~"), ("~", "~"), ("?", "?")])
def test_a_circle_of_before_fails_and_says_how(conn: redis.Redis, broker: Broker, signs: tuple[str, str]) -> None:
    give(broker, "q", new("root"))
    give(broker, "q", child("a", "root"), child("b", f"{signs[0]}a"), child("beside", "?b"))
    # as a version without the search left it
    conn.sadd("rq:job:a:dependencies", f"{signs[1]}b")
    conn.hset("rq:job:a", "parents", json.dumps(["root", f"{signs[1]}b"]))
    conn.zadd("rq:job:b:children", {"a": 9})
    assert sorted(inspector_of(conn).circle(["none", "q"], 100)) == ["a", "b"], "as `doctor` says it"
    broker.clean(interval=0)
    assert inspector_of(conn).circle(["none", "q"], 100) == []
    found = {one: fields_of(conn, one) for one in "ab"}
    assert {row["error_class"] for row in found.values()} == {"fusion.exceptions.DependencyCycle"}
    assert {row["reason"] for row in found.values()} in (
        {"it waited for itself: a -> b -> a"},
        {"it waited for itself: b -> a -> b"},
    )
    settle(broker)
    assert status_of(conn, "beside") == "queued"
    check_conservation(conn, ["root", "a", "b", "beside"])


def test_deferred_jobs_without_a_circle_stay_deferred(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", new("root"))
    give(broker, "q", *(child(f"c{nth}", "root", *([f"c{nth - 1}"] if nth else [])) for nth in range(30)))
    for _ in range(5):
        broker.clean(interval=0)
    assert {status_of(conn, f"c{nth}") for nth in range(30)} == {"deferred"}


def test_two_producers_of_which_each_closes_it(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    """One call is whole before the other: the later one is refused, whichever that is."""
    for first, second in (("ab"), ("ba")):
        conn.flushall()
        hand = Hand(Broker(conn), "q")
        failed(hand, new("a"))
        failed(hand, new("b"))
        give(hand.broker, "q", child(first, f"~{second}"))
        refused(conn, lambda: give(hand.broker, "q", child(second, f"~{first}")), f"{second} -> {first} -> {second}")  # noqa: B023


def test_an_unknown_parent_is_still_named(conn: redis.Redis, broker: Broker) -> None:
    with pytest.raises(UnknownDependency):
        give(broker, "q", child("a", "nobody"))
    assert of_kin(conn) == set()


# -- what a batch calls back waits for its members


@pytest.mark.parametrize("batch", ["b", "inner"])
@pytest.mark.parametrize("when", ["complete", "success"])
@pytest.mark.parametrize("between", [0, 1, 3])
def test_no_member_waits_for_what_its_batch_calls_back(
    conn: redis.Redis, broker: Broker, batch: str, when: str, between: int
) -> None:
    begin(broker, "b", **{f"on_{when}": "told"})
    begin(broker, "inner", "b")
    callback(broker, "b", when, "told", queue="q")
    line = ["told", *(f"n{nth}" for nth in range(between))]
    for above, one in pairwise(line):
        give(broker, "q", child(one, above))
    member = child("m", line[-1], ties="pb", batch=batch)
    refused(conn, lambda: give(broker, "q", member), " -> ".join(["m", *reversed(line), "m"]))
    if between:
        broker.cancel("n0")
        settle(broker)
        refused(
            conn, lambda: give(broker, "q", child("n9", "told"), child("m", "n9", ties="pb", batch=batch)), "m -> n9 -> told -> m"
        )


def test_a_parent_of_a_member_may_not_wait_for_the_callback_of_the_batch(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    begin(broker, "b", on_complete="told")
    callback(broker, "b", "complete", "told", queue="q")
    failed(hand, new("x"))
    give(broker, "q", child("m", "~x", ties="pb", batch="b"))
    refused(conn, lambda: give(broker, "q", child("x", "told")), "x -> told -> m -> x")


def test_a_member_of_before_that_waits_for_what_its_batch_calls_back_fails_and_that_runs(
    conn: redis.Redis, broker: Broker
) -> None:
    begin(broker, "b", on_complete="told")
    callback(broker, "b", "complete", "told", queue="q")
    give(broker, "q", new("root"))
    give(broker, "q", child("m", "root", ties="pb", batch="b"))
    broker.close_batch("b")
    conn.sadd("rq:job:m:dependencies", "told")
    conn.zadd("rq:job:told:children", {"m": 9})
    broker.clean(interval=0)
    settle(broker)
    assert fields_of(conn, "m")["reason"] == "it waited for itself: m -> told -> m"
    assert status_of(conn, "told") == "queued"


def test_a_member_may_wait_for_what_another_batch_calls_back(conn: redis.Redis, broker: Broker) -> None:
    begin(broker, "b", on_complete="told")
    callback(broker, "b", "complete", "told", queue="q")
    begin(broker, "c")
    give(broker, "q", child("m", "told", ties="pb", batch="c"))
    assert status_of(conn, "m") == "deferred"
