"""Another time for a job that waits for one, races with that, and who is woken."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable

import pytest
import redis

from fusion.store.client.connections import connect
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, events_of, everything, expire_lease, fields_of, may_reap, new, now_ms, put, status_of
from tests.store.cron_hands import rung

SCHEDULED = "rq:scheduler:scheduled_jobs"


def _soon(conn: redis.Redis, seconds: float = 60.0) -> float:
    return now_ms(conn) / 1000 + seconds


@pytest.mark.parametrize("ahead", [5.0, 3600.0, 0.25])
def test_it_waits_for_the_other_time(broker: Broker, conn: redis.Redis, ahead: float) -> None:
    broker.enqueue("q", [new("a", due=_soon(conn), log_tag="SMS_OTP")], "n")
    due = _soon(conn, ahead)
    before = fields_of(conn, "a")
    assert broker.reschedule("a", due) == "ok"
    assert conn.zscore(SCHEDULED, "a") == round(due, 3)
    assert fields_of(conn, "a") == before
    event = events_of(conn, "a")[-1]
    assert (event["event"], event["reason"], event["log_tag"], event["queue"]) == ("scheduled", "rescheduled", "SMS_OTP", "q")
    assert check_conservation(conn, ["a"]) == {"a": "scheduled"}
    state = everything(conn, clocks=True)
    assert broker.reschedule("a", due) == "ok"
    assert everything(conn, clocks=True) == state, "the same time again is nothing new"


@pytest.mark.parametrize("due", [1.0, 0.0, -5.0])
def test_a_time_in_the_past_is_due_at_once(broker: Broker, conn: redis.Redis, due: float) -> None:
    broker.enqueue("q", [new("a", due=_soon(conn))], "n")
    rung(conn)
    assert broker.reschedule("a", due) == "ok"
    assert rung(conn)
    assert broker.promote()[:2] == (1, None)
    assert drain(Hand(broker, "q")) == ["a"]
    assert check_conservation(conn, ["a"]) == {"a": "started"}


def test_the_ttl_moves_along_with_the_time_it_was_enqueued_for(broker: Broker, conn: redis.Redis) -> None:
    broker.enqueue("q", [new("a", due=_soon(conn), ttl=1.1)], "n")
    conn.hset("rq:job:a", "ttl", "1.1")  # as the job's field has it, in seconds
    due = _soon(conn, 600)
    broker.reschedule("a", due)
    assert fields_of(conn, "a")["expires_at"] == str(round(due * 1000) + 1100)
    broker.reschedule("a", 1.0)
    assert int(fields_of(conn, "a")["expires_at"]) == pytest.approx(now_ms(conn) + 1100, abs=1000), "it is due now, not in 1970"


def test_a_retry_is_rescheduled_and_its_ttl_is_not(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "q")
    put(broker, "q", "a", "b", ttl=60)
    conn.hset("rq:job:a", "ttl", 60)
    hand.tell(hand.take(), "retry", delay=500.0, reason="r")
    expires = fields_of(conn, "a")["expires_at"]
    assert broker.reschedule("a", _soon(conn, 5)) == "ok"
    assert fields_of(conn, "a")["expires_at"] == expires
    assert broker.reschedule("a", 1.0) == "ok"
    broker.promote()
    assert drain(hand, 1) == ["a", "b"], "it keeps its place"
    assert check_conservation(conn, ["a", "b"]) == {"a": "started", "b": "started"}


def test_only_scheduled_jobs_are_rescheduled(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "q")
    put(broker, "q", "finished", "failed", "started", "canceled", "queued")
    finished, failed, _ = hand.claim(3)
    hand.tell(finished)
    hand.tell(failed, "failed", reason="r")
    broker.cancel("canceled")
    before = everything(conn, clocks=True)
    for status in ("finished", "failed", "started", "canceled", "queued"):
        assert broker.reschedule(status, _soon(conn)) == status
    assert broker.reschedule("nobody", _soon(conn)) == "missing"
    assert everything(conn, clocks=True) == before


# -- at once


def _both(url: str, *calls: Callable[[Broker, int], object], rounds: int) -> None:
    """Each call in a thread and on a connection of its own, all at once."""
    start, errors = threading.Barrier(len(calls)), list[BaseException]()

    def run(call: Callable[[Broker, int], object]) -> None:
        conn = connect(url)
        try:
            broker = Broker(conn)
            start.wait(10)
            for i in range(rounds):
                call(broker, i)
        except BaseException as error:
            errors.append(error)
        finally:
            conn.close()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors


@pytest.mark.long
def test_rescheduled_promoted_and_canceled_at_once(broker: Broker, conn: redis.Redis, redis_url: str) -> None:
    names = [f"j{i:03d}" for i in range(600)]
    broker.enqueue("q", [new(job_id, due=_soon(conn, 600)) for job_id in names], "n")
    answers: Counter[str] = Counter()

    def earlier(broker: Broker, i: int) -> None:
        answers[broker.reschedule(names[i], 1.0)] += 1

    def later(broker: Broker, i: int) -> None:
        answers[broker.reschedule(names[i * 7 % 600], _soon(conn, 900 + i))] += 1

    def cancel(broker: Broker, i: int) -> None:
        if i % 3 == 0:
            answers[f"cancel: {broker.cancel(names[i * 11 % 600])}"] += 1

    def promote(broker: Broker, _: int) -> None:
        broker.promote(3)

    _both(redis_url, earlier, later, cancel, promote, rounds=600)
    states = Counter(check_conservation(conn, names).values())
    assert states["canceled"] == answers["cancel: canceled"] == 200
    assert set(answers) <= {"ok", "queued", "canceled", "cancel: canceled"}
    hand = Hand(broker, "q")
    got = drain(hand)
    for job_id in conn.zrange(SCHEDULED, 0, -1):
        assert broker.reschedule(job_id.decode(), 1.0) == "ok"
    while broker.promote(500)[0]:
        got += drain(hand)
    assert len(got) == len(set(got)) == 400, "each job that was not canceled is claimed once"
    assert set(check_conservation(conn, names).values()) == {"started", "canceled"}


# -- the doorbell of the scheduler


def test_only_what_is_due_before_all_others_rings(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "now")
    assert not rung(conn)
    broker.enqueue("q", [new("first", due=_soon(conn, 60))], "n1")
    assert rung(conn), "there was nothing to wait for before"
    broker.enqueue("q", [new("second", due=_soon(conn, 90)), new("third", delay=70.0)], "n2")
    assert not rung(conn)
    broker.enqueue("q", [new("fourth", delay=95.0), new("earliest", delay=10.0)], "n3")
    assert rung(conn)
    broker.enqueue("q", [new("past", due=1.0)], "n4")
    assert not rung(conn)
    assert broker.reschedule("second", _soon(conn, 80)) == "ok"
    assert not rung(conn)
    assert broker.reschedule("second", _soon(conn, 5)) == "ok"
    assert rung(conn)
    assert broker.cancel("second") == "canceled"
    broker.promote()
    assert not rung(conn)


def test_one_token_at_most_and_suspension_silences_nothing(broker: Broker, conn: redis.Redis) -> None:
    broker.suspend()
    broker.pause("q")
    for i in range(3):
        broker.enqueue("q", [new(f"j{i}", due=_soon(conn, 60 - i))], f"n{i}")
    assert conn.lrange("rq:wake:_scheduler", 0, -1) == [b"1"]
    assert conn.exists("rq:wake:q") == 0


def test_retries_ring_too(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "q")
    put(broker, "q", "a", "b", "c", "d")
    a, b, c, d = hand.claim(4)
    for claimed, kind, delay, earlier in ((a, "retry", 60.0, True), (b, "retry", 90.0, False), (c, "held", 30.0, True)):
        assert hand.tell(claimed, kind, delay=delay, reason="r") == "ok"
        assert rung(conn) is earlier, claimed.id
    conn.hset("rq:job:d", "lost", 1)
    may_reap(conn)
    expire_lease(conn, "q", "d")
    assert broker.reap(30.0, 0) == (1, False)
    assert rung(conn), "one lost twice waits a second"
    assert (d.id, status_of(conn, "d")) == ("d", "scheduled")
    assert set(check_conservation(conn, "abcd").values()) == {"scheduled"}


def test_a_schedule_that_can_not_be_read_is_named_and_accepts_nothing(broker: Broker, conn: redis.Redis) -> None:
    conn.set(SCHEDULED, "junk")
    for call in (
        lambda: broker.enqueue("q", [new("a", delay=5.0)], "n"),
        lambda: broker.promote(),
    ):
        with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
            call()
    put(broker, "q", "b", "c")
    assert status_of(conn, "a") is None
    assert sorted(drain(Hand(broker, "q"))) == ["b", "c"]
