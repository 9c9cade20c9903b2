"""Which job is claimed next, by whom, and what a claim leaves behind."""

from __future__ import annotations

import pytest
import redis

from fusion.kernel.timeutil import from_iso
from fusion.store.layout.records import TurnRequest
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import (
    DATA,
    LEASE,
    Hand,
    drain,
    events_of,
    everything,
    expire_lease,
    fields_of,
    full_of,
    ids,
    may_reap,
    now_ms,
    outcome,
    put,
    status_of,
    wire,
)


def test_a_claim_moves_the_job_and_gives_what_a_run_needs(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", log_tag="SMS_OTP", timeout=30, meta='{"k": 1}')
    hand = Hand(broker, "q")
    before = now_ms(conn)
    claimed = hand.take()
    after = now_ms(conn)
    assert (claimed.queue, claimed.id, claimed.execution_id) == ("q", "a", f"{hand.incarnation}:1:1")
    stored = full_of(conn, "a")
    names = "data func description timeout retryCount meta origin priority log_tag created_at enqueued_at"
    assert claimed.fields == {name.encode(): stored[name].encode() for name in names.split()}
    assert (stored["status"], stored["worker_name"], stored["deliveries"]) == ("started", "host.1", "1")
    assert stored["execution_id"] == claimed.execution_id
    started = from_iso(stored["started_at"])
    assert started is not None
    assert before - 1 <= started.timestamp() * 1000 <= after + 1
    lease = conn.zscore("rq:wip:q", "a")
    assert before + LEASE * 1000 <= lease <= after + LEASE * 1000, "milliseconds: ADR 0015"
    assert conn.hgetall("rq:worker:host.1:jobs") == {b"a": claimed.execution_id.encode()}
    assert check_conservation(conn, ["a"]) == {"a": "started"}
    assert [e["event"] for e in events_of(conn, "a")] == ["queued", "processing"]


def test_one_round_trip_finishes_a_job_and_claims_the_next(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", *(f"j{i}" for i in range(12)))
    hand = Hand(broker, "q", "r", "s")
    claimed = hand.take()
    with wire(conn) as sent:
        for _ in range(10):
            answer = hand.turn(outcome(claimed), slots=[0])
            assert answer.answers == ["ok"]
            (claimed,) = answer.jobs
    assert sent == ["EVALSHA"] * 10


def test_the_highest_class_of_any_queue_comes_first(broker: Broker) -> None:
    put(broker, "campaign", "c0", "c1", priority=0)
    put(broker, "mail", "m1", "m2")
    put(broker, "sms", "s2", priority=2)
    assert drain(Hand(broker, "campaign", "mail", "sms"), 1) == ["s2", "m1", "m2", "c0", "c1"]


def test_a_high_job_that_arrives_in_mid_drain_is_the_next_claim(broker: Broker) -> None:
    for i in range(20):
        put(broker, "campaign", f"c{i:02d}", priority=0)
    hand = Hand(broker, "campaign", "sms")
    assert ids(hand.claim(3)) == ["c00", "c01", "c02"]
    put(broker, "sms", "otp", priority=2)
    assert ids(hand.claim()) == ["otp"]
    put(broker, "campaign", "urgent", priority=255)
    assert ids(hand.claim()) == ["urgent"]
    assert ids(hand.claim()) == ["c03"]


def test_queues_of_one_class_take_turns_within_a_call(broker: Broker) -> None:
    for queue in "abc":
        put(broker, queue, *(f"{queue}{i}" for i in range(4)))
    hand = Hand(broker, "b", "c", "a")
    assert ids(hand.claim(7)) == ["b0", "c0", "a0", "b1", "c1", "a1", "b2"]
    assert ids(hand.claim(5, ["c", "a", "b"])) == ["c2", "a2", "b3", "c3", "a3"]


def test_queues_of_one_class_take_turns_when_the_caller_rotates(broker: Broker) -> None:
    for queue in "abc":
        put(broker, queue, *(f"{queue}{i:02d}" for i in range(30)))
    queues, hand, order = ["a", "b", "c"], Hand(broker, "a", "b", "c"), []
    for _ in range(90):
        claimed = hand.take(*queues)
        order.append(claimed.queue)
        at = queues.index(claimed.queue) + 1
        queues = queues[at:] + queues[:at]
    assert order == ["a", "b", "c"] * 30


def test_a_slot_with_a_floor_takes_that_class_and_above_only(broker: Broker) -> None:
    """Reserved slots stay free for what is urgent, whatever the order of the slots."""
    put(broker, "q", "low", "low-2", priority=0)
    hand = Hand(broker, "q", "r")
    assert ids(hand.turn(slots=[2, 0, 2]).jobs) == ["low"]
    put(broker, "r", "high", priority=3)
    assert ids(hand.turn(slots=[2]).jobs) == ["high"]


def test_so_it_is_beside_many_of_that_class_and_above(broker: Broker) -> None:
    put(broker, "q", "low", priority=0)
    put(broker, "q", *"abcd")
    put(broker, "q", "high", priority=2)
    hand = Hand(broker, "q")
    assert ids(hand.turn(slots=[1] * 8).jobs) == ["high", *"abcd"]
    assert drain(hand) == ["low"]


def test_nothing_is_claimed_while_suspended(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    first = hand.take()
    broker.suspend()
    answer = hand.turn(outcome(first), slots=[0])
    assert (answer.status, answer.answers, answer.jobs) == ("suspended", ["ok"], [])
    assert conn.hget("rq:worker:host.1", "state") == b"suspended"
    assert broker.resume()
    assert ids(hand.claim()) == ["b"]


def test_a_job_that_waited_too_long_expires_instead_of_running(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "late", "late-2", ttl=60)
    put(broker, "q", "fresh", ttl=60)
    for job_id in ("late", "late-2"):
        conn.hset(f"rq:job:{job_id}", "expires_at", now_ms(conn))
    assert ids(Hand(broker, "q").claim(3)) == ["fresh"]
    found = fields_of(conn, "late")
    assert (found["status"], found["reason"]) == ("canceled", "expired")
    assert "deliveries" not in found
    assert [e["event"] for e in events_of(conn, "late")] == ["queued", "expired"]
    assert check_conservation(conn, ["late", "late-2", "fresh"])["late-2"] == "canceled"


def test_much_that_is_no_work_is_cleared_in_bounded_steps(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", *(f"late{i:02d}" for i in range(50)), ttl=60)
    put(broker, "q", "good")
    for i in range(50):
        conn.hset(f"rq:job:late{i:02d}", "expires_at", 1)
    hand = Hand(broker, "q")
    answers = [hand.turn(slots=[0]) for _ in range(3)]
    assert [(a.again, ids(a.jobs)) for a in answers] == [(True, []), (True, []), (False, ["good"])]


def test_a_token_claims_once(broker: Broker, conn: redis.Redis) -> None:
    """ADR 0009: the resend of a turn gives the same jobs, not more."""
    put(broker, "q", "a", "b", "c", "d")
    hand = Hand(broker, "q")
    first = hand.take()
    sent = outcome(first)
    answer = hand.turn(sent, slots=[0, 0])
    before = everything(conn, clocks=True)
    again = hand.turn(sent, slots=[0, 0], token=hand.token)
    assert (again.answers, again.jobs) == (answer.answers, answer.jobs)
    assert ids(again.jobs) == ["b", "c"]
    assert everything(conn, clocks=True) == before


def test_a_resend_answers_each_outcome_alike(broker: Broker, conn: redis.Redis) -> None:
    """One that changed something stands before one that did not: neither gets the other's answer."""
    put(broker, "q", "a", "b", "c")
    hand = Hand(broker, "q")
    sent = [outcome(job) for job in hand.claim(3)]
    may_reap(conn)
    expire_lease(conn, "q", "b")
    assert broker.reap(LEASE, 0) == (1, False)
    assert hand.turn(*sent).answers == ["ok", "stale", "ok"]
    assert hand.turn(*sent, token=hand.token).answers == ["ok", "stale", "ok"]


def test_a_resend_gives_only_what_is_still_held_by_that_token(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    hand.claim(2)
    may_reap(conn)
    expire_lease(conn, "q", "a")
    assert broker.reap(LEASE, 0) == (1, False)
    assert ids(hand.turn(slots=[0, 0], token=hand.token).jobs) == ["b"]
    other = Hand(broker, "q", name="host.2")
    assert ids(other.claim()) == ["a"]
    assert ids(hand.turn(slots=[0, 0], token=hand.token).jobs) == ["b"]


def test_a_resend_gives_no_job_that_could_not_be_given(broker: Broker, conn: redis.Redis) -> None:
    """Its lease stands, and the first answer did not have it."""
    hand = Hand(broker, "q")
    conn.hset("rq:job:old", mapping={"status": "queued", "data": DATA, "origin": "q"})
    conn.zadd("rq:queue:q", {"old": 1})
    conn.set("rq:queues", "no set")
    first = hand.turn(slots=[0])
    assert ([queue for queue, _ in first.bad], first.jobs) == (["q"], [])
    assert status_of(conn, "old") == "started"
    assert hand.turn(slots=[0], token=hand.token).jobs == []


def test_a_resend_takes_no_entry_of_a_queue_for_an_answer(broker: Broker, conn: redis.Redis) -> None:
    """An entry that is no id stays in its queue while the set of failed jobs is broken. No job has it, and it may be long."""
    put(broker, "q", "a")
    hand = Hand(broker, "q")
    sent = outcome(hand.take())
    conn.zadd("rq:queue:q", {"x\n<failed": 1.5})
    conn.set("rq:queue:failed", "no set")
    first = hand.turn(sent, slots=[0])
    assert (first.answers, [queue for queue, _ in first.bad]) == (["ok"], ["q"])
    assert hand.turn(sent, slots=[0], token=hand.token).answers == ["ok"]


def test_an_outdated_token_does_nothing(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    claimed = hand.take()
    hand.turn(slots=[])
    before = everything(conn, clocks=True)
    late = hand.turn(outcome(claimed), slots=[0], token=1)
    assert (late.status, late.answers, late.jobs) == ("outdated", [], [])
    assert everything(conn, clocks=True) == before


def test_a_worker_that_is_not_registered_gets_nothing_and_changes_nothing(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    hand = Hand(broker, "q")
    claimed = hand.take()
    conn.delete("rq:worker:host.1")
    before = everything(conn, clocks=True)
    assert hand.turn(outcome(claimed), slots=[0]).status == "unregistered"
    assert everything(conn, clocks=True) == before


def test_it_tells_when_the_next_job_is_due(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "q")
    assert hand.turn(slots=[0]).next_in is None
    put(broker, "q", "a")
    hand.tell(hand.take(), "retry", delay=100.0)
    next_in = hand.turn(slots=[0]).next_in
    assert next_in is not None
    assert 90 < next_in <= 100


def test_the_hash_of_a_worker_shows_its_state(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b", "c")
    hand = Hand(broker, "q")

    def shown() -> dict[str, str]:
        return {k.decode(): v.decode() for k, v in conn.hgetall("rq:worker:host.1").items()}

    assert shown()["state"] == "started"
    hand.turn(slots=[])
    assert shown()["state"] == "idle"
    first = hand.take()
    assert (shown()["state"], shown()["current_job"]) == ("busy", "a")
    hand.turn(outcome(first), slots=[0])
    assert (shown()["state"], shown()["current_job"]) == ("busy", "b")
    second = hand.turn(slots=[0], token=hand.token).jobs[0]
    hand.tell(second, "failed", reason="r", elapsed=1.5)
    found = shown()
    assert (found["state"], found["current_job"]) == ("idle", "")
    assert (found["successful_job_count"], found["failed_job_count"], found["total_working_us"]) == ("1", "1", "1500000")
    assert 0 < conn.ttl("rq:worker:host.1") <= 420


def test_a_turn_is_a_sign_of_life_written_once_a_second_at_most(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "q")
    conn.hset("rq:worker:host.1", mapping={"beat_ms": now_ms(conn) - 5000, "last_heartbeat": "old"})
    conn.expire("rq:worker:host.1", 10)
    hand.turn()
    beat = conn.hget("rq:worker:host.1", "beat_ms")
    assert now_ms(conn) - int(beat) < 1000
    assert from_iso(conn.hget("rq:worker:host.1", "last_heartbeat")) is not None
    assert conn.ttl("rq:worker:host.1") > 400
    conn.hset("rq:worker:host.1", "beat_ms", now_ms(conn) + 60_000)
    hand.turn()
    assert int(conn.hget("rq:worker:host.1", "beat_ms")) <= now_ms(conn), "a clock set back does not stop it"


def test_the_hash_of_a_started_job_never_expires(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    conn.expire("rq:job:a", 5)
    Hand(broker, "q").take()
    assert conn.ttl("rq:job:a") == -1
    assert status_of(conn, "a") == "started"


@pytest.mark.parametrize("left", [0, 1])
def test_a_claim_rings_the_doorbell_for_the_jobs_left(broker: Broker, conn: redis.Redis, left: int) -> None:
    put(broker, "q", *(f"j{i}" for i in range(left + 1)))
    put(broker, "r", *(f"r{i}" for i in range(left)))
    conn.delete("rq:wake:q", "rq:wake:r")
    hand = Hand(broker, "q", "r", "empty")
    hand.take("q", "r", "empty")
    assert [conn.llen(f"rq:wake:{queue}") for queue in ("q", "r", "empty")] == [left, left, 0]
    hand.turn(slots=[])
    assert conn.llen("rq:wake:empty") == 0


def test_a_claim_rings_the_second_doorbell_for_a_high_job_left(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b", priority=2)
    hand = Hand(broker, "q")
    conn.delete("rq:wake:q", "rq:wake:q:high")
    hand.take()
    assert (conn.llen("rq:wake:q"), conn.llen("rq:wake:q:high")) == (1, 1)


def test_a_doorbell_holds_one_token(broker: Broker, conn: redis.Redis) -> None:
    for i in range(5):
        put(broker, "q", f"j{i}")
    hand = Hand(broker, "q")
    for _ in range(4):
        hand.take()
    broker.ring("q")
    assert conn.lrange("rq:wake:q", 0, -1) == [b"1"]


def test_nothing_rings_a_suspended_queue_and_resume_rings_those_with_work(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "empty", "e")
    hand = Hand(broker, "empty", "q")
    held = hand.take()
    conn.delete("rq:wake:empty")
    broker.suspend()
    put(broker, "q", "a")
    assert hand.tell(held, "release", reason="r") == "ok"
    broker.ring("q")
    assert conn.exists("rq:wake:q", "rq:wake:empty") == 0
    broker.cancel("e")
    broker.resume()
    assert (conn.llen("rq:wake:q"), conn.llen("rq:wake:empty")) == (1, 0)


def test_suspension_may_end_by_itself(broker: Broker, conn: redis.Redis) -> None:
    broker.suspend(100)
    assert 0 < conn.ttl("rq:suspended") <= 100
    assert broker.resume()
    assert not broker.resume()


def test_events_of_a_turn_are_numbered_without_a_gap_however_few_come_of_it(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a", "b", "c")
    conn.hset("rq:job:b", "expires_at", 1)
    hand = Hand(broker, "q")
    jobs = hand.turn(slots=[0] * 10).jobs
    hand.turn(*(outcome(job) for job in jobs), slots=[0] * 10)
    put(broker, "q", "d")
    numbers = [int(fields[b"n"]) for _, fields in conn.xrange("rq:events")]
    assert numbers == list(range(1, 10)), "4 queued, 1 expired, 2 processing, 2 completed"


def test_a_listed_order_holds_within_one_call(broker: Broker) -> None:
    for queue in ("a", "b"):
        for n in (1, 2):
            put(broker, queue, f"{queue}-{n}")
    hand = Hand(broker, "b", "a")

    def turn(token: int, listed: bool) -> list[str]:
        rest = ((), ("b", "a"), [0, 0], hand.lease, 420)
        return [job.id for job in broker.turn(TurnRequest(hand.name, hand.incarnation, token, *rest, listed=listed)).jobs]

    assert turn(1, listed=True) == ["b-1", "b-2"]
    assert turn(1, listed=True) == ["b-1", "b-2"], "a resend is answered alike"
    put(broker, "b", "b-3")
    assert turn(2, listed=False) == ["b-3", "a-1"]
