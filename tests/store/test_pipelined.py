"""Jobs claimed to wait behind others: marked, resent alike, and lost at nobody's cost unless they were told begun."""

from __future__ import annotations

import pytest
import redis

from fusion.kernel import defaults
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import LEASE, Hand, events_of, everything, expire_lease, fields_of, ids, may_reap, outcome, put, status_of


@pytest.fixture
def hand(broker: Broker, conn: redis.Redis) -> Hand:
    may_reap(conn)
    return Hand(broker, "q", "r")


def lose(broker: Broker, conn: redis.Redis, way: str, *job_ids: str) -> None:
    if way == "prune":
        broker.prune(LEASE, "host.1")
    else:
        expire_lease(conn, "q", *job_ids)
        assert broker.reap(LEASE, 0) == (len(job_ids), False)


def test_the_last_slots_are_ahead(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", *"abcd")
    jobs = hand.turn(slots=[0, 0, 0, 0, 0], ahead=3).jobs
    assert [job.execution_id for job in jobs] == [f"{hand.incarnation}:1:{n}" for n in ("1", "2", "3a", "4a")]
    assert [job.ahead for job in jobs] == [False, False, True, True]
    assert set(check_conservation(conn, "abcd").values()) == {"started"}
    answer = hand.turn(*(outcome(job) for job in jobs))
    assert answer.answers == ["ok"] * 4
    assert set(check_conservation(conn, "abcd").values()) == {"finished"}


def test_the_mark_goes_by_the_slot_and_not_by_the_count(broker: Broker, hand: Hand) -> None:
    """A slot for HIGH that finds none takes nothing from those behind it."""
    put(broker, "q", "a", "b")
    jobs = hand.turn(slots=[2, 0], ahead=1).jobs
    assert [(job.id, job.ahead) for job in jobs] == [("a", True)]


def test_a_resend_gives_the_same_jobs_with_the_same_marks(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    put(broker, "r", "c", "d")
    first = hand.turn(slots=[0, 0, 0], ahead=2)
    before = everything(conn)
    again = hand.turn(slots=[0, 0, 0], ahead=2, token=hand.token)
    assert again.jobs == first.jobs
    assert [job.ahead for job in again.jobs] == [False, True, True]
    assert everything(conn) == before
    hand.broker.cancel(first.jobs[1].id)
    lose(broker, conn, "reap", *[job.id for job in first.jobs if job.queue == "q"])
    left = hand.turn(slots=[0, 0, 0], ahead=2, token=hand.token).jobs
    assert ids(left) == [job.id for job in first.jobs if job.queue == "r"], "only what is still held by that token"


def test_a_resend_that_tells_begun_changes_nothing_more(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    jobs = hand.turn(slots=[0, 0], ahead=1).jobs
    hand.turn(begun=[jobs[1]])
    before = everything(conn)
    assert before["rq:job:b"][0][b"begun"] == jobs[1].execution_id.encode()
    hand.turn(begun=[jobs[1]], token=hand.token)
    assert everything(conn) == before


def test_begun_is_said_by_the_holder_only(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    (job,) = hand.turn(slots=[0], ahead=1).jobs
    assert hand.tell(job, "release") == "ok"
    conn.set("rq:job:broken", "no hash")
    assert hand.turn(begun=[job]).status == "ok"
    assert "begun" not in fields_of(conn, "a")
    (job,) = hand.turn(slots=[0], ahead=1).jobs
    conn.rename("rq:job:a", "rq:job:aside")
    conn.set("rq:job:a", "no hash")
    put(broker, "q", "b")
    assert ids(hand.turn(slots=[0], begun=[job]).jobs) == ["b"], "a broken key hides no claim"


@pytest.mark.parametrize("way", ["reap", "prune"])
def test_losing_a_job_that_had_not_begun_costs_nothing(broker: Broker, conn: redis.Redis, hand: Hand, way: str) -> None:
    put(broker, "q", *"abc")
    jobs = hand.turn(slots=[0, 0, 0], ahead=2).jobs
    hand.turn(begun=[jobs[1]])
    lose(broker, conn, way, *"abc")
    assert [fields_of(conn, name).get("lost") for name in "abc"] == ["1", "1", "0"]
    assert [fields_of(conn, name).get("spared") for name in "abc"] == [None, None, "1"]
    assert set(check_conservation(conn, "abc").values()) == {"queued"}
    assert [events_of(conn, name)[-1]["event"] for name in "abc"] == ["abandoned"] * 3
    other = Hand(broker, "q", name="host.2")
    again = other.claim(3)
    assert ids(again) == ["a", "b", "c"], "at their places"
    late = Hand(broker, "q", name="host.3")
    assert late.tell(jobs[2]) == "stale"
    assert other.turn(*(outcome(job) for job in again)).answers == ["ok"] * 3
    assert not {"lost", "spared", "begun"} & {name for job in "abc" for name in fields_of(conn, job)}


def test_an_earlier_begin_is_not_this_ones(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    (first,) = hand.turn(slots=[0], ahead=1).jobs
    hand.turn(begun=[first])
    assert hand.tell(first, "release") == "ok"
    hand.turn(slots=[0], ahead=1)
    lose(broker, conn, "reap", "a")
    assert fields_of(conn, "a")["lost"] == "0"


def test_a_job_is_let_off_so_many_times(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """One that takes its worker down as soon as it begins never gets as far as being told begun: it must end some day."""
    put(broker, "q", "pill")
    for _ in range(defaults.MAX_LOST):
        hand.turn(slots=[0], ahead=1)
        lose(broker, conn, "reap", "pill")
        assert (status_of(conn, "pill"), fields_of(conn, "pill")["lost"]) == ("queued", "0")
    for _ in range(defaults.PROBATION):
        conn.zadd("rq:scheduler:scheduled_jobs", {"pill": 1}, xx=True)
        broker.promote()
        assert ids(hand.turn(slots=[0], ahead=1).jobs) == ["pill"]
        lose(broker, conn, "reap", "pill")
    alone = Hand(broker, "q", name="host.2", alone=True)
    for _ in range(defaults.MAX_LOST - defaults.PROBATION):
        conn.zadd("rq:scheduler:scheduled_jobs", {"pill": 1}, xx=True)
        broker.promote()
        assert alone.take().id == "pill"
        lose(broker, conn, "reap", "pill")
    assert check_conservation(conn, ["pill"]) == {"pill": "failed"}
    assert "poison pill" in fields_of(conn, "pill")["reason"]
    assert broker.requeue(["pill"], "n") == ["ok"]
    assert "spared" not in fields_of(conn, "pill")


def test_on_lost_fail_is_failed_even_so(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """It may have run for a moment, and was to run once at most."""
    put(broker, "q", "a", on_lost="fail")
    hand.turn(slots=[0], ahead=1)
    lose(broker, conn, "reap", "a")
    assert check_conservation(conn, ["a"]) == {"a": "failed"}


def test_many_slots_at_an_empty_queue_cost_one_look(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hand.turn(slots=[0] * 40, ahead=38)  # the script is known
    conn.config_resetstat()
    assert hand.turn(slots=[0] * 40, ahead=38).jobs == []
    assert conn.info("commandstats")["cmdstat_zrevrange"]["calls"] == 2, "one for each queue"
