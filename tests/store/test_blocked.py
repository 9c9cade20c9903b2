"""Jobs that are blocked: of a task that a worker lacks, and of those that were lost again and again."""

from __future__ import annotations

import pytest
import redis

from fusion.kernel import defaults
from fusion.store.layout.records import ClaimFilter
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import (
    LEASE,
    Hand,
    drain,
    events_of,
    expire_lease,
    fields_of,
    ids,
    may_reap,
    now_ms,
    outcome,
    promote_all,
    put,
    status_of,
)

TASK = "tasks.sms.sendSMS"
WHY = f"fusion.exceptions.TaskNotFound: {TASK}: start the worker with --tasks tasks.sms"
SET = f"held:q:{TASK}"
LACKS = ClaimFilter(lacking={TASK: WHY})
HAS = ClaimFilter(sets=(SET,))


@pytest.fixture
def hand(broker: Broker, conn: redis.Redis) -> Hand:
    may_reap(conn)
    return Hand(broker, "q", "r")


def hold(hand: Hand, *job_ids: str, queue: str = "q", priority: int = 1) -> None:
    """These jobs are blocked for want of their task."""
    put(hand.broker, queue, *job_ids, priority=priority)
    while not hand.turn(slots=[0], queues=[queue], claim_filter=LACKS).jobs and hand.broker.connection.zcard(f"rq:queue:{queue}"):
        pass


def test_what_a_process_found_missing_is_blocked(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    assert hand.tell(hand.take(), "held", reason=WHY, fields={"exc_info": "x", "task": TASK}) == "ok"
    found = fields_of(conn, "a")
    assert (found["status"], found["waits_in"], found["reason"], "task" in found) == ("blocked", SET, WHY, False)
    assert check_conservation(conn, ["a"]) == {"a": "blocked"}
    assert conn.zscore("rq:blocked:q", "a") == int(found["held_since"]) + defaults.HOLD_TIMEOUT * 1000
    assert hand.claim() == []
    assert conn.llen(f"rq:wake:{SET}") == 1
    assert events_of(conn, "a")[-1]["event"] == "held"


def test_the_others_are_set_aside_without_a_claim(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    names = [f"j{i:03d}" for i in range(250)]
    put(broker, "q", *names)
    broker.enqueue("q", [_of_other_task("good")], "n")
    turns = 1
    while not (jobs := hand.turn(slots=[0], claim_filter=LACKS).jobs):
        turns += 1
        assert turns < 10, "each sets many aside"
    assert ids(jobs) == ["good"]
    assert set(check_conservation(conn, names).values()) == {"blocked"}
    assert not any(field in fields_of(conn, "j000") for field in ("deliveries", "execution_id"))
    assert [event["event"] for event in events_of(conn, "j000")] == ["queued", "blocked"]


def _of_other_task(job_id: str) -> object:
    from tests.kit.hands import new

    job = new(job_id)
    return type(job)(job_id, 1, {**job.fields, "data": b'["tasks.other", null, [], {}]'})


def test_a_worker_with_the_task_claims_held_jobs_in_queue_order(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "first")
    hold(hand, "second", "high", queue="q")
    assert check_conservation(conn, ["first", "second"])["second"] == "blocked"
    put(broker, "q", "third")
    hold(hand, "urgent", queue="r", priority=2)
    other = Hand(broker, "q", "r", name="host.2")
    order = []
    while jobs := other.turn(slots=[0, 0], claim_filter=ClaimFilter(sets=(SET, f"held:r:{TASK}"))).jobs:
        order += ids(jobs)
    assert order == ["urgent", "first", "second", "high", "third"]
    assert not conn.exists("rq:blocked:q") and not conn.exists(f"rq:waits:{SET}")
    assert "waits_in" not in fields_of(conn, "second")
    assert hand.turn(*(outcome(job) for job in jobs)).answers == []


def test_only_who_asks_for_them_gets_them(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hold(hand, "a")
    assert hand.claim() == []
    broker.pause("q")
    assert hand.turn(slots=[0], claim_filter=HAS).jobs == []
    conn.delete(f"rq:wake:{SET}")
    broker.unpause("q")
    assert conn.llen(f"rq:wake:{SET}") == 1
    broker.suspend()
    assert hand.turn(slots=[0], claim_filter=HAS).jobs == []
    conn.delete(f"rq:wake:{SET}")
    broker.resume()
    assert conn.llen(f"rq:wake:{SET}") == 1
    assert hand.turn(slots=[2], claim_filter=HAS).jobs == [], "a slot for HIGH alone"
    assert ids(hand.turn(slots=[0], claim_filter=HAS).jobs) == ["a"]


def test_workers_learn_of_new_sets_once(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    assert hand.turn(slots=[0]).waits is None
    hold(hand, "a")
    told = hand.turn(slots=[0]).waits
    assert told is not None and told[1] == [SET]
    known = ClaimFilter(known=told[0])
    assert hand.turn(slots=[0], claim_filter=known).waits is None
    hold(hand, "b", queue="r")
    again = hand.turn(slots=[0], claim_filter=known).waits
    assert again is not None and set(again[1]) == {SET, f"held:r:{TASK}"}


def test_a_worker_that_serves_by_a_wildcard_finds_them(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hold(hand, "a")
    assert ids(hand.turn(slots=[0], queues=["q*"], claim_filter=HAS).jobs) == ["a"]


@pytest.mark.parametrize("how", ["cancel", "delete", "empty", "ttl", "timeout"])
def test_ways_out(broker: Broker, conn: redis.Redis, hand: Hand, how: str) -> None:
    put(broker, "q", "a", ttl=60)
    hand.turn(slots=[0], claim_filter=LACKS)
    if how == "cancel":
        assert broker.cancel("a") == "canceled"
    elif how == "delete":
        assert broker.delete(["a"]) == ["deleted"]
    elif how == "empty":
        assert broker.empty("q") == (1, False)
    elif how == "ttl":
        conn.hset("rq:job:a", "expires_at", 1)
        assert hand.turn(slots=[0], claim_filter=HAS).jobs == []
    else:
        conn.zadd("rq:blocked:q", {"a": 1})
        conn.hset("rq:reap", "last", 0)
        broker.reap(LEASE, 0)
        found = fields_of(conn, "a")
        assert (found["status"], found["reason"], found["attempts"]) == ("failed", WHY, "1")
        assert found["error_class"] == "fusion.exceptions.TaskNotFound"
        assert broker.requeue(["a"], "n") == ["ok"]
        assert ids(hand.claim()) == ["a"]
        return
    assert status_of(conn, "a") == {"cancel": "canceled", "ttl": "canceled"}.get(how)
    assert conn.zcard("rq:blocked:q") == conn.zcard(f"rq:waits:{SET}") == 0
    if how in ("cancel", "ttl"):
        assert "waits_in" not in fields_of(conn, "a")
        check_conservation(conn, ["a"])


def test_a_held_job_stays_live(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hold(hand, "a")
    assert broker.requeue(["a"], "n") == ["blocked"]
    assert broker.reschedule("a", 1.0) == "blocked"
    with pytest.raises(Exception, match="blocked"):
        put(broker, "q", "a")


def test_a_bounded_number_of_held_sets_is_listed(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """They come from what producers wrote. What is beyond waits in the schedule."""
    conn.hset("rq:waits", mapping={f"held:q:t{i}": "1 x" for i in range(1001)})
    put(broker, "q", "a", "b")
    hand.tell(hand.take(), "held", reason=WHY, delay=15.0, fields={"task": TASK})
    assert status_of(conn, "a") == "scheduled"
    assert ids(hand.turn(slots=[0], claim_filter=LACKS).jobs) == ["b"], "found missing by its process, too"


@pytest.mark.parametrize("name", ["no name", "", "x" * 201, "a:b"])
def test_what_is_no_task_names_no_set(broker: Broker, conn: redis.Redis, hand: Hand, name: str) -> None:
    put(broker, "q", "a")
    hand.tell(hand.take(), "held", reason=WHY, delay=15.0, fields={"task": name})
    assert check_conservation(conn, ["a"]) == {"a": "scheduled"}
    assert not conn.exists("rq:waits")


def test_sets_that_are_empty_are_forgotten(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hold(hand, "a")
    hand.turn(slots=[0], claim_filter=HAS)
    broker.reap(LEASE, 0)
    assert conn.hexists("rq:waits", SET), "not at once"
    conn.hset("rq:waits", SET, f"{now_ms(conn) - 61_000} x")
    broker.reap(LEASE, 0)
    assert not conn.exists("rq:waits")
    told = hand.turn(slots=[0], claim_filter=ClaimFilter(known="1", sets=(SET,))).waits
    assert told == ("", [])


def test_they_wait_though_the_last_worker_ends(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hold(hand, "a")
    broker.deregister("host.1", hand.incarnation)
    assert check_conservation(conn, ["a"]) == {"a": "blocked"}
    next_one = Hand(broker, "q", name="host.2")
    (job,) = next_one.turn(slots=[0], claim_filter=ClaimFilter(sets=(SET,))).jobs
    assert job.id == "a"


# -- probation


def lose(broker: Broker, conn: redis.Redis, *job_ids: str) -> None:
    expire_lease(conn, "q", *job_ids)
    broker.reap(LEASE, 0)
    promote_all(broker, conn)


def test_shared_losses_count_up_to_probation(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    names = ["a", "b", "c"]
    put(broker, "q", *names)
    for lost in (1, 2):
        assert ids(hand.claim(4)) == names
        lose(broker, conn, *names)
        assert [fields_of(conn, name)["lost"] for name in names] == [str(lost)] * 3
    assert {event["blame"] for event in events_of(conn, "a") if event["event"] == "abandoned"} == {"shared"}
    assert hand.claim(4) == []
    assert set(check_conservation(conn, names).values()) == {"blocked"}
    alone = Hand(broker, "q", name="host.2", alone=True)
    for lost in (3, 4):
        assert alone.take().id == "a", "in their order"
        lose(broker, conn, "a")
        assert fields_of(conn, "a")["lost"] == str(lost)
        assert alone.turn(slots=[0], claim_filter=ClaimFilter(alone=True)).jobs == []
    assert alone.take().id == "a"
    lose(broker, conn, "a")
    assert status_of(conn, "a") == "failed"
    assert "poison pill" in fields_of(conn, "a")["reason"]
    assert drain(alone, 1) == ["b", "c"]


@pytest.mark.parametrize("max_lost", [1, 2])
def test_a_low_cap_blames_nobody_for_a_shared_loss(conn: redis.Redis, max_lost: int) -> None:
    broker = Broker(conn, FleetConstants(max_lost=max_lost))
    may_reap(conn)
    hand = Hand(broker, "q")
    put(broker, "q", "a", "b")
    for _ in range(max_lost):
        hand.claim(2)
        lose(broker, conn, "a", "b")
    assert status_of(conn, "a") == "queued"
    assert hand.claim(2) == []
    assert status_of(conn, "a") == "blocked"
    alone = Hand(broker, "q", name="host.2", alone=True)
    assert alone.take().id == "a"
    lose(broker, conn, "a")
    assert status_of(conn, "a") == "failed"


def test_on_lost(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """At most one run is meant, whoever was to blame; and deliveries of callbacks go on for ever."""
    put(broker, "q", "once", on_lost="fail")
    put(broker, "q", "ever", on_lost="again")
    hand.claim(2)
    lose(broker, conn, "once", "ever")
    assert (status_of(conn, "once"), status_of(conn, "ever")) == ("failed", "queued")
    for _ in range(6):
        assert ids(hand.claim(2)) == ["ever"]
        lose(broker, conn, "ever")


def test_a_fork_servers_death_is_shared_and_a_process_s_own_is_not(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    first, second = hand.claim(2)
    hand.turn(outcome(first, "struck", reason="r"), outcome(second, "lost", reason="r"))
    blames = [events_of(conn, name)[-1]["blame"] for name in "ab"]
    assert blames == ["shared", "job"]


def test_one_worker_of_a_host_has_the_right(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    ask = broker.hold_probation
    sets = ["probation:q"]
    assert not ask("h", "one", 20, sets), "there is no such job"
    conn.zadd("rq:waits:probation:q", {"a": 1})
    broker.pause("q")
    assert not ask("h", "one", 20, sets)
    broker.unpause("q")
    assert ask("h", "one", 20, sets)
    assert not ask("h", "two", 20, sets)
    assert ask("other", "two", 20, sets)
    conn.delete("rq:waits:probation:q")
    assert ask("h", "one", 20, sets, keep=True)
    assert 0 < conn.pttl("rq:probation:h") <= 20_000
    assert not ask("h", "one", 20, sets)
    assert not conn.exists("rq:probation:h")


def test_a_worker_for_isolated_jobs_claims_no_others(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    only = ClaimFilter(sets=("probation:q",), alone=True, only=True)
    assert hand.turn(slots=[0], claim_filter=only).jobs == []
    conn.hset("rq:job:a", mapping={"lost": 2, "deliveries": 2})
    assert ids(hand.claim()) == ["b"]
    (job,) = hand.turn(slots=[0], claim_filter=only).jobs
    assert (job.id, job.execution_id[-1]) == ("a", "s")


def test_a_broken_set_hides_no_other_work(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    hold(hand, "a")
    conn.delete(f"rq:waits:{SET}")
    conn.set(f"rq:waits:{SET}", "junk")
    put(broker, "q", "b")
    turn = hand.turn(slots=[0], claim_filter=HAS)
    assert ids(turn.jobs) == ["b"]
    assert [queue for queue, _ in turn.bad] == [SET]
