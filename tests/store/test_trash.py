"""The trash: what a person deleted comes back as it was, holds nothing while it is there, and never grows over its bounds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation, check_totals, leftovers, memberships
from tests.kit.hands import Hand, drain, events_of, everything, fields_of, new, now_ms, put, status_of
from tests.store.batch_hands import add, batch_faults, begin, callback, counts
from tests.store.kin_hands import child, of_kin, settle
from tests.store.kin_hands import give as give_kin
from tests.store.limits_hands import faults, give, holders, tied, waiting
from tests.store.unique_hands import flaws, lone, owner

HOUR_MS = 3_600_000


def trash(conn: redis.Redis) -> set[str]:
    return {raw.decode() for raw in conn.zrange("rq:trash", 0, -1)}


def sound(conn: redis.Redis) -> None:
    """Index, sizes and records agree, and nothing of a job in the trash stands elsewhere."""
    there = trash(conn)
    assert {raw.decode().removeprefix("rq:trash:job:") for raw in conn.scan_iter("rq:trash:job:*")} == there
    sizes = {name.decode(): int(value) for name, value in conn.hgetall("rq:trash:sizes").items()}
    assert sizes.pop("*", 0) == sum(sizes.values())
    assert set(sizes) == there
    assert all(0 < conn.pttl(f"rq:trash:job:{job_id}") <= HOUR_MS + 600_000 for job_id in there)
    check_totals(conn)


def gone_for(conn: redis.Redis, ms: int) -> None:
    """As if they had been deleted this long ago."""
    for job_id in trash(conn):
        conn.zadd("rq:trash", {job_id: now_ms(conn) - ms})


# -- each kind


@pytest.mark.parametrize("seed", range(3))
def test_a_queue_that_was_emptied_is_as_it_was(conn: redis.Redis, broker: Broker, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    for n in range(60):
        broker.enqueue("q", [new(f"j{n}", chance.choice((0, 1, 2)), front=chance.random() < 0.2, ttl=600)], f"n{n}")
    order = conn.zrange("rq:queue:q", 0, -1, withscores=True)
    before = {name: value for name, value in everything(conn).items() if name.startswith(("rq:job:", "rq:expiring"))}
    assert broker.empty_to_trash("q", 100) == (60, False, 60)
    assert memberships(conn) == {}
    sound(conn)
    jobs = [f"j{n}" for n in range(60)]
    chance.shuffle(jobs)
    for start in range(0, 60, 7):
        part = jobs[start : start + 7]
        assert broker.restore(part, "again") == ["restored"] * len(part)
    assert conn.zrange("rq:queue:q", 0, -1, withscores=True) == order
    for job_id in jobs:
        conn.hdel(f"rq:job:{job_id}", "requeue_nonce")
    assert {name: value for name, value in everything(conn).items() if name.startswith(("rq:job:", "rq:expiring"))} == before
    check_conservation(conn, jobs)
    sound(conn)
    assert leftovers(conn) == []
    assert not conn.exists("rq:trash", "rq:trash:sizes")


def test_ended_ones_come_back_to_their_sets_with_the_time_that_is_left(conn: redis.Redis, broker: Broker) -> None:
    hand = Hand(broker, "q")
    put(broker, "q", "done", "failed", "aside", "canceled", "stopped")
    hand.tell(hand.take(), fields={"result": "5"})
    for _ in range(2):
        hand.tell(hand.take(), "failed", reason="builtins.ValueError: no", fields={"error_class": "builtins.ValueError"})
    broker.quarantine(["aside"], "why")
    broker.cancel("canceled")
    broker.stop("stopped")
    jobs = ["done", "failed", "aside", "canceled", "stopped"]
    sets = {
        name: conn.zrange(f"rq:{name}", 0, -1, withscores=True)
        for name in ("finished:q", "queue:failed", "canceled:q", "stopped:q")
    }
    states = check_conservation(conn, jobs)
    groups = conn.zrange("rq:failures", 0, -1, withscores=True)
    assert broker.delete_to_trash(jobs) == ["kept"] * 5
    sound(conn)
    assert broker.restore(jobs, "n") == ["restored"] * 5
    assert check_conservation(conn, jobs) == states
    assert {name: conn.zrange(f"rq:{name}", 0, -1, withscores=True) for name in sets} == sets
    assert conn.zrange("rq:failures", 0, -1, withscores=True) == groups
    assert fields_of(conn, "aside")["quarantined"] == "why"
    assert fields_of(conn, "done")["result"] == "5"
    assert 0 < conn.pttl("rq:job:done") < 600_000 + HOUR_MS
    assert [event["event"] for event in events_of(conn, "failed")][-2:] == ["deleted", "restored"]
    broker.delete_to_trash(["failed"])
    conn.hset("rq:trash:job:failed", "trash_score", 1)
    assert broker.restore(["failed"], "n2") == ["restored"]
    assert conn.zscore("rq:queue:failed", "failed") > now_ms(conn) / 1000 + 60
    assert leftovers(conn) == []


@pytest.mark.parametrize("kept_by", ["its-batch", "a-child"])
def test_one_that_others_kept_from_being_forgotten_has_its_time_when_it_comes_back(
    conn: redis.Redis, broker: Broker, kept_by: str
) -> None:
    hand = Hand(broker, "q")
    if kept_by == "its-batch":
        begin(broker, "b", on_complete="told")
        add(broker, "b", "one", result_ttl=500)
    else:
        give_kin(broker, "q", new("one", result_ttl=500), child("kid", "one"))
    hand.tell(hand.take())
    assert conn.zscore("rq:finished:q", "one") == float("inf")
    assert broker.delete_to_trash(["one"]) == ["kept"]
    settle(broker)
    assert broker.restore(["one"], "n") == ["restored"]
    assert abs(conn.zscore("rq:finished:q", "one") - now_ms(conn) / 1000 - 500) < 10
    assert 500 < conn.ttl("rq:job:one") <= 4110 and conn.zscore("rq:pinned", "one") is None


@pytest.mark.parametrize("delay", [None, 60.0])
def test_one_that_waits_beside_a_living_parent_comes_back_without_a_wait(
    conn: redis.Redis, broker: Broker, delay: float | None
) -> None:
    give_kin(broker, "q", new("parent"), child("kid", "?parent", delay=delay))
    broker.cancel("parent")
    settle(broker)
    broker.requeue(["parent"], "n")
    assert status_of(conn, "kid") in ("queued", "scheduled")
    assert broker.delete_to_trash(["kid"]) == ["kept"] and broker.restore(["kid"], "n") == ["restored"]
    assert status_of(conn, "kid") in ("queued", "scheduled") and not conn.exists("rq:job:kid:dependencies")
    assert conn.zscore("rq:job:parent:children", "kid") is not None, "it may still read what that returned"


def test_a_scheduled_one_keeps_its_time(conn: redis.Redis, broker: Broker) -> None:
    broker.enqueue("q", [new("later", delay=60.0, ttl=5), new("soon", delay=60.0)], "n")
    due = conn.zscore("rq:scheduler:scheduled_jobs", "later")
    assert broker.delete_to_trash(["later", "soon"]) == ["kept", "kept"]
    conn.hset("rq:trash:job:soon", "trash_score", 1)
    assert broker.restore(["later", "soon"], "n") == ["restored", "restored"]
    assert conn.zscore("rq:scheduler:scheduled_jobs", "later") == pytest.approx(due, abs=0.001)
    assert check_conservation(conn, ["later", "soon"]) == {"later": "scheduled", "soon": "queued"}
    assert conn.zscore("rq:expiring", "later") is not None


def test_a_restored_blocked_job_waits_for_its_key_again(conn: redis.Redis, broker: Broker) -> None:
    give(broker, "q", "a", "b", "c")
    assert (holders(conn), waiting(conn)) == (["a"], ["b", "c"])
    assert broker.delete_to_trash(["a", "b"]) == ["kept", "kept"]
    assert holders(conn) == ["c"]
    assert broker.restore(["b", "a"], "n") == ["restored", "restored"]
    assert faults(conn) == []
    check_conservation(conn, "abc")
    hand = Hand(broker, "q")
    order = []
    while jobs := hand.claim(3):
        assert len(jobs) == 1
        order.append(jobs[0].id)
        hand.tell(jobs[0])
    assert sorted(order) == ["a", "b", "c"]


def test_a_unique_key_is_free_meanwhile(conn: redis.Redis, broker: Broker) -> None:
    broker.enqueue("q", [lone("a")], "n1")
    broker.delete_to_trash(["a"])
    assert owner(conn) is None
    broker.enqueue("q", [lone("b")], "n2")
    assert broker.restore(["a"], "r") == ["duplicate b"]
    broker.delete_to_trash(["b"])
    assert broker.restore(["a", "b"], "r") == ["restored", "duplicate a"]
    assert owner(conn) == "a"
    assert flaws(conn) == []
    sound(conn)


def test_parents_are_asked_again(conn: redis.Redis, broker: Broker) -> None:
    hand = Hand(broker, "q")
    give_kin(broker, "q", new("p1"), new("p2"), new("p3"))
    give_kin(broker, "q", child("c1", "p1"), child("c2", "p2"), child("c3", "p3"))
    children = ["c1", "c2", "c3"]
    assert broker.delete_to_trash(children) == ["kept"] * 3
    settle(broker)
    assert of_kin(conn) == set()
    hand.tell(hand.take())
    assert broker.delete(["p3"]) == ["deleted"]
    assert broker.restore(children, "n") == ["restored"] * 3
    settle(broker)
    assert check_conservation(conn, children) == {"c1": "queued", "c2": "deferred", "c3": "queued"}
    for job in hand.claim(9):
        hand.tell(job, "failed" if job.id == "p2" else "finished", reason="r")
    settle(broker)
    assert check_conservation(conn, children) == {"c1": "finished", "c2": "failed", "c3": "finished"}


def test_a_child_whose_parent_failed_meanwhile_fails(conn: redis.Redis, broker: Broker) -> None:
    hand = Hand(broker, "q")
    give_kin(broker, "q", new("p"))
    give_kin(broker, "q", child("c", "p"))
    broker.delete_to_trash(["c"])
    hand.tell(hand.take(), "failed", reason="r")
    assert broker.restore(["c"], "n") == ["restored"]
    settle(broker)
    assert status_of(conn, "c") == "failed"


def test_a_parent_that_is_deleted_holds_nobody_and_comes_back_alone(conn: redis.Redis, broker: Broker) -> None:
    give_kin(broker, "q", new("p"))
    give_kin(broker, "q", child("c", "?p"))
    assert broker.delete_to_trash(["p"]) == ["kept"]
    settle(broker)
    assert status_of(conn, "c") == "queued"
    assert broker.restore(["p"], "n") == ["restored"]
    check_conservation(conn, ["p", "c"])
    assert sorted(drain(Hand(broker, "q"))) == ["c", "p"]


def test_a_member_of_a_batch_is_open_again(conn: redis.Redis, broker: Broker) -> None:
    begin(broker, "b", on_complete="then")
    add(broker, "b", "m1", "m2")
    callback(broker, "b", "complete", "then")
    broker.close_batch("b")
    broker.delete_to_trash(["m1"])
    assert counts(conn, "b") == {"members": 2, "open": 1, "deleted": 1}
    assert broker.restore(["m1"], "n") == ["restored"]
    assert counts(conn, "b") == {"members": 2, "open": 2}
    hand = Hand(broker, "q", "back")
    for job in hand.claim(2):
        hand.tell(job)
    settle(broker)
    assert (batch_faults(conn), status_of(conn, "then")) == ([], "queued")


def test_a_restored_callback_waits_for_its_batch_again(conn: redis.Redis, broker: Broker) -> None:
    begin(broker, "b", on_complete="then")
    add(broker, "b", "m1")
    callback(broker, "b", "complete", "then")
    broker.close_batch("b")
    broker.delete_to_trash(["then"])
    assert broker.restore(["then"], "n") == ["restored"]
    settle(broker)
    assert status_of(conn, "then") == "deferred"
    hand = Hand(broker, "q")
    hand.tell(hand.take())
    settle(broker)
    assert status_of(conn, "then") == "queued"


# -- who may not come back


def test_a_job_that_cannot_be_restored_says_why(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "twice", "over", ttl=60)
    put(broker, "q", "late", "full")
    broker.delete_to_trash(["twice", "over", "late", "full"])
    put(broker, "q", "twice")
    conn.hset("rq:trash:job:over", "expires_at", 1)
    conn.zadd("rq:trash", {"late": now_ms(conn) - HOUR_MS - 1})
    broker.set_gate("q", {"max_length": 1})
    before = everything(conn)
    asked = ["twice", "over", "late", "full", "nobody"]
    assert broker.restore(asked, "n") == ["taken", "expired", "missing", "full", "missing"]
    assert everything(conn) == before
    broker.set_gate("q", {"max_length": None})
    assert broker.restore(["full"], "n") == ["restored"]
    assert broker.restore(["full"], "n") == ["restored"], "a resend"
    assert broker.restore(["full"], "n2") == ["missing"]


def test_concurrent_deletes_and_restores_handle_each_job_once(conn: redis.Redis, broker: Broker) -> None:
    ids = [f"j{n}" for n in range(60)]
    put(broker, "q", *ids)
    for round_ in range(10):
        with ThreadPoolExecutor(4) as four:
            deleted = list(four.map(lambda _: [broker.delete_to_trash([one])[0] for one in ids], range(4)))
        with ThreadPoolExecutor(4) as four:
            calls = four.map(lambda n, r=round_: [broker.restore([one], f"{r} {n} {one}")[0] for one in ids], range(4))  # type: ignore[misc]
            restored = list(calls)
        for each in zip(*deleted, strict=True):
            assert Counter(each) == {"kept": 1, "missing": 3}
        for each in zip(*restored, strict=True):
            assert Counter(each) == {"restored": 1, "missing": 3}
    assert set(check_conservation(conn, ids).values()) == {"queued"}
    assert not conn.exists("rq:trash", "rq:trash:sizes")


def test_the_newer_one_of_an_id_is_kept(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "a", log_tag="old")
    broker.delete_to_trash(["a"])
    put(broker, "q", "a", log_tag="new")
    broker.delete_to_trash(["a"])
    sound(conn)
    assert broker.restore(["a"], "n") == ["restored"]
    assert fields_of(conn, "a")["log_tag"] == "new"


def test_a_broken_key_stops_one_and_loses_none(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "a")
    put(broker, "r", "b")
    broker.delete_to_trash(["a", "b"])
    conn.set("rq:queue:q", "junk")
    first, second = broker.restore(["a", "b"], "n")
    assert first.startswith("error: WRONGTYPE")
    assert second == "restored"
    conn.delete("rq:queue:q")
    assert broker.restore(["a"], "n") == ["restored"]


# -- what is not kept


def test_for_good(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "a", "b")
    assert broker.delete(["a"]) == ["deleted"]
    assert broker.empty("q") == (1, False)
    assert not conn.exists("rq:trash", "rq:trash:sizes")
    assert list(conn.scan_iter("rq:trash*")) == []


@pytest.mark.long
def test_full_by_count_and_by_bytes(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "a", "b", "c", "d")
    conn.zadd("rq:trash", {f"x{n}": now_ms(conn) for n in range(9_999)})
    assert broker.delete_to_trash(["a", "b"]) == ["kept", "deleted"]
    conn.delete("rq:trash")
    conn.hset("rq:trash:sizes", "*", 64 * 2**20 - 100)
    assert broker.delete_to_trash(["c"]) == ["deleted"]
    conn.hset("rq:trash:sizes", "*", 0)
    conn.zadd("rq:trash", {f"x{n}": now_ms(conn) - HOUR_MS for n in range(10_000)})
    assert broker.delete_to_trash(["d"]) == ["kept"], "those whose hour is over make room"


def test_jobs_that_could_not_be_restored_are_not_kept_in_the_trash(conn: redis.Redis, broker: Broker) -> None:
    broker.enqueue_part("q", [new("g", ties="p")], "17", 0)
    put(broker, "_callbacks", "cb-1")
    assert broker.delete_to_trash(["g", "cb-1"]) == ["deleted"] * 2
    assert trash(conn) == set()


def test_it_forgets_after_an_hour(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", *(f"j{n}" for n in range(700)))
    while broker.empty_to_trash("q")[1]:
        pass
    assert len(trash(conn)) == 700
    gone_for(conn, HOUR_MS)
    for left in (600, 500, 400, 300, 200, 100, 0):
        assert broker.clean(interval=60), "it is to be called again"
        assert len(trash(conn)) == left
    assert not broker.clean(interval=60)
    assert leftovers(conn) == []


def test_it_is_emptied(conn: redis.Redis, broker: Broker) -> None:
    put(broker, "q", "a", "b", "c")
    broker.empty_to_trash("q")
    assert broker.empty_trash(2) == (2, True)
    sound(conn)
    assert broker.empty_trash(2) == (1, False)
    assert leftovers(conn) == []


@pytest.mark.parametrize("broken", ["rq:trash", "rq:trash:sizes"])
def test_a_broken_trash_keeps_nobody_from_deleting(conn: redis.Redis, broker: Broker, broken: str) -> None:
    put(broker, "q", "a", "b")
    conn.set(broken, "junk")
    assert broker.delete_to_trash(["a"]) == ["deleted"]
    assert broker.empty_to_trash("q") == (1, False, 0)
    assert memberships(conn) == {}
    assert list(conn.scan_iter("rq:job:*")) == []


# -- many


@pytest.mark.long
def test_ten_thousand_go_and_come_back(conn: redis.Redis, broker: Broker) -> None:
    jobs = [f"j{n}" for n in range(10_000)]
    for start in range(0, 10_000, 500):
        put(broker, "q", *jobs[start : start + 500])
    order = conn.zrange("rq:queue:q", 0, -1)
    kept, again = 0, True
    while again:
        _, again, more = broker.empty_to_trash("q")
        kept += more
    assert kept == 10_000
    for start in range(0, 10_000, 50):
        broker.restore(jobs[start : start + 50], "n")
    assert conn.zrange("rq:queue:q", 0, -1) == order
    check_conservation(conn, jobs)
    sound(conn)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_walk(conn: redis.Redis, broker: Broker) -> None:
    """Deletes, restores and ends in any order: each job is in one state, or in the trash, and all counts hold."""
    chance, hand = random.Random(7), Hand(broker, "q")  # noqa: S311
    jobs = [f"j{n}" for n in range(12)]
    moves: list[Callable[[str], object]] = [
        lambda job: put(broker, "q", job, ttl=600) if status_of(conn, job) is None else None,
        lambda job: broker.enqueue("q", [tied(job)], f"t{chance.random()}") if status_of(conn, job) is None else None,
        lambda job: broker.delete_to_trash([job]),
        lambda job: broker.delete_to_trash([job]),
        lambda job: broker.restore([job], f"{chance.random()}"),
        lambda job: broker.restore([job], f"{chance.random()}"),
        lambda job: [hand.tell(one, chance.choice(["finished", "failed", "retry"]), reason="r") for one in hand.claim(2)],
        lambda job: broker.cancel(job),
        lambda job: broker.requeue([job], f"{chance.random()}"),
    ]
    for _ in range(400):
        chance.choice(moves)(chance.choice(jobs))
        there = [job for job in jobs if conn.exists(f"rq:job:{job}")]
        check_conservation(conn, there)
        sound(conn)
        assert faults(conn) == []
