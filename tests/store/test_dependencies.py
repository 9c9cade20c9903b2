"""Jobs that wait for others: released once, when these have finished, or failed with them."""

from __future__ import annotations

import pytest
import redis

from fusion.exceptions import UnknownDependency
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, events_of, fields_of, ids, new, put, status_of
from tests.store.kin_hands import child, give, of_kin, settle


def test_a_child_waits_until_its_parent_has_finished(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "p")
    give(broker, "q", child("c", "p"))
    assert check_conservation(conn, ["p", "c"]) == {"p": "queued", "c": "deferred"}
    hand.tell(hand.take())
    assert hand.turn(slots=[0]).releases
    settle(broker)
    assert ids(hand.claim(2)) == ["c"]
    assert [event.get("reason") for event in events_of(conn, "c")][:2] == [None, "released"]


def test_all_of_several_parents_must_have_finished(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    give(broker, "q", child("c", "a", "b"))
    for state in ("deferred", "queued"):
        hand.tell(hand.take())
        settle(broker)
        assert status_of(conn, "c") == state


def test_parents_and_children_come_in_one_call(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    give(broker, "q", new("a"), child("b", "a"), child("c", "a", "b"))
    order = []
    for _ in range(3):
        (job,) = hand.claim(5)
        order.append(job.id)
        hand.tell(job)
        settle(broker)
    assert order == ["a", "b", "c"]
    assert of_kin(conn) == set()


def test_a_parent_that_has_finished_counts(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "p")
    hand.tell(hand.take())
    give(broker, "q", child("c", "p"))
    assert status_of(conn, "c") == "queued"


def test_a_parent_that_nobody_knows_is_refused_and_nothing_is_written(broker: Broker, conn: redis.Redis) -> None:
    with pytest.raises(UnknownDependency, match="'c' is to wait for 'nobody'"):
        give(broker, "q", new("a"), child("c", "a", "nobody"))
    assert not conn.exists("rq:job:a", "rq:job:c", "rq:queue:q", "rq:job:a:children")


@pytest.mark.parametrize("end", ["failed", "canceled", "deleted", "expired", "late"])
@pytest.mark.parametrize("sign", ["", "?", "~"])
def test_a_parent_that_does_not_finish(broker: Broker, conn: redis.Redis, hand: Hand, sign: str, end: str) -> None:
    put(broker, "q", "p")
    if end != "late":
        give(broker, "q", child("c", f"{sign}p"))
    if end == "canceled":
        broker.cancel("p")
    elif end == "deleted":
        broker.delete(["p"])
    elif end == "expired":
        conn.hset("rq:job:p", "expires_at", 1)
        assert hand.claim(1) == []
    else:
        hand.tell(hand.take(), "failed", reason="r")
    if end == "late":
        give(broker, "q", child("c", f"{sign}p"))
    settle(broker)
    how = "failed" if end == "late" else end
    if sign == "?":
        assert status_of(conn, "c") == "queued"
    elif sign == "" or end == "deleted":
        found = fields_of(conn, "c")
        assert (found["status"], found["reason"]) == ("failed", f"its parent p was {how}")
        assert found["error_class"] == "fusion.exceptions.DependencyFailed"
        assert of_kin(conn) == set()
    else:
        assert status_of(conn, "c") == "deferred"
        assert broker.requeue(["p"], "n") == ["ok"]
        settle(broker)
        assert status_of(conn, "c") == "deferred"
        hand.tell(hand.take())
        settle(broker)
        assert status_of(conn, "c") == "queued"
    check_conservation(conn, ["c"])


def test_a_child_that_waits_for_a_requeue_fails_when_the_parent_is_deleted(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    give(broker, "q", new("p"), child("c", "~p"))
    hand.tell(hand.take(), "failed", reason="r")
    settle(broker)
    broker.delete(["p"])
    settle(broker)
    assert fields_of(conn, "c")["reason"] == "its parent p was deleted"


def test_a_failure_goes_down_the_whole_tree(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    give(broker, "q", new("a"), child("b", "a"), child("c", "b"), child("d", "?c"), child("e", "d", "a"))
    hand.tell(hand.take(), "failed", reason="r")
    settle(broker)
    assert [status_of(conn, one) for one in "abcde"] == ["failed", "failed", "failed", "queued", "failed"]
    hand.tell(hand.take())
    settle(broker)
    assert of_kin(conn) == set()


def test_a_retry_is_no_end(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    give(broker, "q", new("p"), child("c", "p"))
    hand.tell(hand.take(), "retry", reason="r", delay=0)
    settle(broker)
    assert status_of(conn, "c") == "deferred"
    hand.tell(hand.take())
    settle(broker)
    assert status_of(conn, "c") == "queued"


def test_a_parent_is_kept_until_its_children_have_ended(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    broker.enqueue("q", [new("p", result_ttl=0), child("c", "p")], "n")
    hand.tell(hand.take(), fields={"result": "42"})
    settle(broker)
    assert conn.zscore("rq:finished:q", "p") == float("inf") and conn.ttl("rq:job:p") == -1
    assert conn.hget("rq:job:p", "result") == b"42"
    hand.tell(hand.take())
    settle(broker)
    assert 0 < (conn.zscore("rq:finished:q", "p") or 0) - conn.time()[0] <= 61
    assert conn.ttl("rq:job:p") > 0 and not conn.hexists("rq:job:p", "result")
    assert of_kin(conn) == set()


def test_a_child_that_nobody_worked_off_before_its_time_was_over_has_left_its_parents(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "p")
    give(broker, "q", child("told", "p"), child("untold", "p"))
    broker.cancel("told")
    settle(broker)
    assert 0 < conn.ttl("rq:job:told") <= conn.zscore("rq:canceled:q", "told") - conn.time()[0] + 3601
    broker.cancel("untold")
    assert conn.ttl("rq:job:untold") == -1  # Redis itself must not forget it first
    conn.zadd("rq:canceled:q", {"untold": conn.time()[0] - 1.5})
    broker.clean()
    assert not conn.exists("rq:job:untold")
    settle(broker)
    assert of_kin(conn) == set()


def test_a_full_set_of_ended_jobs_spares_parents(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    give(broker, "q", new("p", failure_ttl=60), child("c", "?p"))
    hand.tell(hand.take(), "failed", reason="r")
    settle(broker)
    before = conn.zscore("rq:queue:failed", "p")
    assert before == float("inf")
    hand.tell(hand.take(), "retry", reason="r", delay=60)
    settle(broker)
    assert conn.zscore("rq:queue:failed", "p") == before


def test_a_finished_parent_is_kept_for_a_child_that_comes_later(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    broker.enqueue("q", [new("p", result_ttl=600)], "n")
    hand.tell(hand.take())
    was = conn.zscore("rq:finished:q", "p")
    give(broker, "q", child("c", "p"))
    assert conn.zscore("rq:finished:q", "p") == float("inf")
    hand.tell(hand.take())
    settle(broker)
    assert conn.zscore("rq:finished:q", "p") == was
    assert of_kin(conn) == set()


@pytest.mark.parametrize("end", ["cancel", "delete", "empty"])
def test_a_child_that_ends_before_its_parent_is_forgotten_by_it(broker: Broker, conn: redis.Redis, hand: Hand, end: str) -> None:
    put(broker, "r", "p")
    give(broker, "q", child("c", "p"))
    {"cancel": lambda: broker.cancel("c"), "delete": lambda: broker.delete(["c"]), "empty": lambda: broker.empty("q")}[end]()
    settle(broker)
    assert of_kin(conn) == set()
    other = Hand(broker, "r", name="host.2")
    other.tell(other.take())
    assert conn.zscore("rq:finished:r", "p") != float("inf")


def test_a_child_that_was_put_back_waits_for_parents_that_have_not_ended(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    give(broker, "q", new("a"), new("b"), child("c", "a", "b"))
    hand.tell(hand.take(), "failed", reason="r")
    settle(broker)
    assert broker.requeue(["c"], "n") == ["ok"]
    assert check_conservation(conn, ["c"]) == {"c": "deferred"}
    hand.tell(hand.take())
    settle(broker)
    assert status_of(conn, "c") == "queued"
    hand.tell(hand.take(), "failed", reason="r")
    settle(broker)
    assert broker.requeue(["c"], "m") == ["ok"]
    assert status_of(conn, "c") == "queued", "the caller of requeue wants it to run now"
    drain(hand)


def test_many_children_are_released_in_the_order_in_which_they_came(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    give(broker, "q", new("p"))
    names = [f"c{i:03}" for i in range(180)]
    give(broker, "q", *(child(one, "p") for one in names))
    hand.tell(hand.take())
    calls = 0
    while broker.release()[1] == 0:
        calls += 1
    assert calls >= 3
    assert drain(hand) == names


@pytest.mark.parametrize("what", ["ended", "removed"])
def test_a_child_that_was_not_notified_is_found(broker: Broker, conn: redis.Redis, hand: Hand, what: str) -> None:
    give(broker, "q", new("p"), child("c", "p"), child("lost", "p"))
    conn.zrem("rq:job:p:children", "lost")
    if what == "ended":  # by a version that knows no children
        claimed = hand.take()
        conn.hset("rq:job:p", "ties", "")
        hand.tell(claimed)
    else:
        conn.zrem("rq:queue:q", "p")
        conn.delete("rq:job:p")
    settle(broker)
    assert [status_of(conn, one) for one in ("c", "lost")] == ["deferred", "deferred"]
    broker.clean()
    settle(broker)
    assert [status_of(conn, one) for one in ("c", "lost")] == (["queued"] * 2 if what == "ended" else ["failed"] * 2)


def test_a_parent_that_nobody_unpinned_is_found(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    give(broker, "q", new("p"), child("c", "p"))
    hand.tell(hand.take())
    settle(broker)
    conn.zrem("rq:queue:q", "c")
    conn.delete("rq:job:c")
    conn.zadd("rq:pinned", {"p": 1})
    broker.clean()
    assert conn.zscore("rq:finished:q", "p") != float("inf")
    assert of_kin(conn) == set()
