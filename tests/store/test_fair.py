"""Fair turns: in a class of a queue the keys that have jobs waiting take turns, each in the order of its own arrival."""

from __future__ import annotations

from collections import defaultdict

import pytest
import redis

from fusion import decorators
from fusion.exceptions import OptionError
from fusion.queue import Queue
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, everything, fields_of, ids, new, outcome, promote_all, put
from tests.kit.promises import claim
from tests.store.limits_hands import faults, holders, tied, waiting

FAIR = "rq:fair:q"


def fill(broker: Broker, key: str, count: int, first: int = 0, **more: object) -> None:
    """Jobs `<key>-<n>` of a fair key; of nobody, for the key ''."""
    fields = {"fair_key": key} if key else {}
    for start in range(first, first + count, 1000):
        many = range(start, min(start + 1000, first + count))
        broker.enqueue("q", [new(f"{key or 'none'}-{i:06d}", **fields, **more) for i in many], f"n{key}{start}")


def turns(conn: redis.Redis) -> dict[str, float]:
    return {member.decode(): score for member, score in conn.zrange(FAIR, 0, -1, withscores=True)}


def by_key(order: list[str]) -> dict[str, list[str]]:
    found = defaultdict[str, list[str]](list)
    for job_id in order:
        found[job_id.rpartition("-")[0]].append(job_id)
    return found


@pytest.mark.parametrize("others", [1, 10, 50])
@pytest.mark.parametrize("known", [True, False])
def test_one_job_waits_for_one_of_each_other_key_at_most(broker: Broker, others: int, known: bool) -> None:
    """At any moment of a load. If its key is `known`, it may have had this turn already and waits for the next: for two of each."""
    for i in range(others):
        fill(broker, f"big{i}", 3000 // others)
    hand = Hand(broker, "q")
    for nth in range(30):
        job_id = f"{'az'[nth % 2]}-{nth}"  # equal turns are ordered by ids
        put(broker, "q", job_id, fair_key="small" if known else job_id)
        between: list[str] = []
        while (job := hand.take().id) != job_id:
            between.append(job)
        assert len(between) <= others * (2 if known else 1)
        assert all(len(jobs) <= (2 if known else 1) for jobs in by_key(between).values())
        hand.claim(nth % 7)


def test_new_keys_without_end_starve_nobody(broker: Broker) -> None:
    """One comes for each job that is claimed, of a key that nobody knows and with a better id: a turn takes a thousand and ends."""
    put(broker, "q", "a", fair_key="a")
    hand, found = Hand(broker, "q"), list[str]()
    for nth in range(1050):
        put(broker, "q", f"z{nth:05d}", fair_key=f"k{nth}")
        found.append(hand.take().id)
    assert 990 < found.index("a") < 1010


@claim("P10")
def test_each_key_keeps_its_own_order_and_all_have_equal_shares(broker: Broker) -> None:
    for key, count in (("a", 300), ("b", 200), ("c", 100)):
        fill(broker, key, count)
    order = drain(Hand(broker, "q"))
    for key, jobs in by_key(order).items():
        assert jobs == sorted(jobs), key
    assert {key: len(jobs) for key, jobs in by_key(order[:300]).items()} == {"a": 100, "b": 100, "c": 100}
    assert {key: len(jobs) for key, jobs in by_key(order[300:500]).items()} == {"a": 100, "b": 100}


def test_jobs_without_a_key_take_part_as_one(broker: Broker) -> None:
    fill(broker, "big", 200)
    fill(broker, "", 100)
    fill(broker, "other", 1)
    order = drain(Hand(broker, "q"))
    assert order.index("other-000000") <= 2
    assert {key: len(jobs) for key, jobs in by_key(order[:201]).items()} == {"big": 100, "none": 100, "other": 1}
    assert by_key(order)["none"] == sorted(by_key(order)["none"])


def test_jobs_before_the_first_fair_key_keep_their_order(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "elsewhere", *(f"e{i}" for i in range(50)))
    fill(broker, "", 100)
    assert not conn.exists(FAIR)
    fill(broker, "a", 20)
    fill(broker, "", 20, 100)
    order = drain(Hand(broker, "q"))
    assert by_key(order)["none"] == [f"none-{i:06d}" for i in range(120)]
    assert {key: len(jobs) for key, jobs in by_key(order[:40]).items()} == {"none": 20, "a": 20}


def test_jobs_without_a_key_that_come_with_the_first_fair_one_keep_their_order(broker: Broker) -> None:
    put(broker, "q", "n1", "n2")
    broker.enqueue("q", [new("n3"), new("a1", fair_key="a"), new("n4"), new("n5")], "same call")
    put(broker, "q", "n6")
    order = drain(Hand(broker, "q"))
    assert [job_id for job_id in order if job_id != "a1"] == ["n1", "n2", "n3", "n4", "n5", "n6"]
    assert order.index("a1") <= 1


def test_a_queue_without_fair_keys_has_no_trace_of_turns(broker: Broker, conn: redis.Redis) -> None:
    fill(broker, "", 10)
    hand = Hand(broker, "q")
    assert drain(hand) == [f"none-{i:06d}" for i in range(10)]
    assert not [key for key in everything(conn) if "fair" in str(key)]
    assert [fields_of(conn, f"none-{i:06d}")["seq"] for i in range(10)] == [str(i + 1) for i in range(10)]


def test_one_whose_keys_take_turns_gets_no_more_by_coming_job_by_job(broker: Broker) -> None:
    fill(broker, "big", 100)
    hand = Hand(broker, "q")
    fill(broker, "drip", 1)
    order: list[str] = []
    for nth in range(1, 50):
        order += ids(hand.claim(2))
        fill(broker, "drip", 1, nth)
    assert {key: len(jobs) for key, jobs in by_key(order).items()} == {"big": 49, "drip": 49}


def test_each_priority_has_turns_of_its_own(broker: Broker) -> None:
    put(broker, "q", *(f"a-{i}" for i in range(10)), priority=2, fair_key="a")
    fill(broker, "a", 5)
    fill(broker, "b", 1)
    put(broker, "q", "b-high", priority=2, fair_key="b")
    order = drain(Hand(broker, "q"))
    assert order.index("b-high") <= 1
    assert set(order[11:13]) >= {"b-000000"}


def test_a_front_job_is_first_and_takes_no_turn(broker: Broker, conn: redis.Redis) -> None:
    fill(broker, "a", 3)
    fill(broker, "b", 2)
    before = turns(conn)
    put(broker, "q", "front", front=True, fair_key="b")
    assert turns(conn) == before
    assert drain(Hand(broker, "q"))[0] == "front"


def test_a_resend_takes_no_turn(broker: Broker, conn: redis.Redis) -> None:
    jobs = [new("a-1", fair_key="a"), new("a-2", fair_key="a"), new("b-1", fair_key="b")]
    broker.enqueue("q", jobs, "same")
    before = turns(conn), [fields_of(conn, job.id)["seq"] for job in jobs]
    broker.enqueue("q", jobs, "same")
    broker.enqueue("q", [*jobs[:1], new("a-3", fair_key="a")], "same")
    assert [fields_of(conn, job.id)["seq"] for job in jobs] == before[1]
    assert turns(conn)["1:b"] == before[0]["1:b"]
    order = by_key(drain(Hand(broker, "q")))
    assert order == {"a": ["a-1", "a-2", "a-3"], "b": ["b-1"]}


@pytest.mark.parametrize("kind", ["release", "retry", "lost"])
def test_a_returned_job_keeps_its_place(broker: Broker, conn: redis.Redis, kind: str) -> None:
    fill(broker, "a", 10)
    hand = Hand(broker, "q")
    first, *rest = hand.claim(5)
    place = fields_of(conn, first.id)["seq"]
    before = turns(conn)
    assert hand.tell(first, kind) == "ok"
    assert turns(conn) == before
    assert fields_of(conn, first.id)["seq"] == place
    assert hand.take().id == first.id
    assert hand.turn(*(outcome(job) for job in rest)).answers == ["ok"] * 4


def test_a_retry_that_goes_behind_takes_its_key_s_next_turn(broker: Broker) -> None:
    fill(broker, "a", 20)
    fill(broker, "b", 2)
    hand = Hand(broker, "q")
    job = next(job for job in hand.claim(2) if job.id.startswith("b"))
    assert hand.tell(job, "retry", fields={"seq": ""}) == "ok"
    order = drain(hand)
    assert by_key(order)["b"] == ["b-000001", "b-000000"]
    assert order.index("b-000000") <= 5


def test_jobs_of_a_time_take_their_turn_when_it_comes(broker: Broker, conn: redis.Redis) -> None:
    fill(broker, "b", 3, delay=60)
    fill(broker, "", 3, delay=60)
    before = turns(conn)
    assert before == {}
    fill(broker, "a", 100)
    promote_all(broker, conn)
    order = drain(Hand(broker, "q"))
    assert {key: len(jobs) for key, jobs in by_key(order[:9]).items()} == {"a": 3, "b": 3, "none": 3}
    assert all(jobs == sorted(jobs) for jobs in by_key(order).values())


def test_a_requeued_job_takes_a_turn_or_its_old_place(broker: Broker, conn: redis.Redis) -> None:
    fill(broker, "b", 2)
    hand = Hand(broker, "q")
    for job in hand.claim(2):
        hand.tell(job, "failed")
    fill(broker, "a", 100)
    assert broker.requeue(["b-000001"], "n1") == ["ok"]
    assert broker.requeue(["b-000000"], "n2", keep_place=True) == ["ok"]
    order = drain(hand)
    assert order[0] == "b-000000"
    assert order.index("b-000001") <= 2


def test_turns_of_keys_that_are_idle_are_forgotten(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "q")
    for nth in range(0, 3000, 100):
        broker.enqueue("q", [new(f"j{i}", fair_key=f"k{i}") for i in range(nth, nth + 100)], f"n{nth}")
        drain(hand)
    assert conn.zcard(FAIR) <= 300
    fill(broker, "one", 1)
    drain(hand)
    for _ in range(10):  # and of a great many at once, a bounded number at a time
        fill(broker, "one", 1, _ + 1)
        drain(hand)
    assert conn.zcard(FAIR) <= 3


def test_the_state_goes_when_the_queue_is_found_empty(broker: Broker, conn: redis.Redis) -> None:
    fill(broker, "a", 2)
    broker.clean(1000, 1000)
    assert conn.exists(FAIR)
    drain(Hand(broker, "q"))
    broker.clean(1000, 1000)
    assert not conn.exists(FAIR)
    fill(broker, "", 1)
    assert not conn.exists(FAIR)


def test_after_a_queue_was_emptied_nobody_pays_for_it(broker: Broker) -> None:
    fill(broker, "a", 400)
    assert [broker.empty("q") for _ in range(2)] == [(300, True), (100, False)]
    fill(broker, "a", 1, 1000)
    fill(broker, "b", 100)
    assert drain(Hand(broker, "q")).index("a-001000") <= 1


def test_a_turn_is_never_above_the_number_of_arrival(broker: Broker, conn: redis.Redis) -> None:
    """So what the queue gets once it has no turns any more stands behind all that has one."""
    hand = Hand(broker, "q")
    for nth in range(60):
        fill(broker, f"k{nth % 7}", 3, 10 * nth)
        fill(broker, "", 1, nth)
        hand.claim(nth % 5)
        numbers = [int(fields_of(conn, job.decode())["seq"]) for job in conn.zrange("rq:queue:q", 0, -1)]
        assert max(numbers) <= int(conn.get("rq:seq"))
    check_conservation(conn, [key.decode().removeprefix("rq:job:") for key in conn.keys("rq:job:*")])


def test_the_clock_does_not_go_back_for_what_comes_back(broker: Broker) -> None:
    """A newcomer begins where the others are, not where an old job stands that came back."""
    fill(broker, "a", 300)
    hand = Hand(broker, "q")
    (old,) = hand.claim(1)
    for job in hand.claim(100):
        hand.tell(job)
    fill(broker, "b", 1)
    hand.tell(old, "release")
    fill(broker, "c", 150)
    order = drain(hand)
    assert order[0] == old.id
    order = [job_id for job_id in order[1:] if job_id != "b-000000"]
    assert {key: len(jobs) for key, jobs in by_key(order[:200]).items()} == {"a": 100, "c": 100}


@pytest.mark.parametrize("key", ["", "two words", "x" * 201, "line\n", 7])
def test_an_invalid_fair_key_is_refused(conn: redis.Redis, key: object) -> None:
    with pytest.raises(OptionError, match="fair_key"):
        Queue("q", conn).enqueue("tasks.sms.sendSMS", fair_key=key)


@decorators.job("q", fair_key=lambda tenant, *args: f"tenant-{tenant}")
def of_tenant(tenant: int) -> None: ...


def test_a_task_may_say_whose_its_jobs_are(conn: redis.Redis) -> None:
    queue = Queue("q", conn)
    jobs = [queue.enqueue(of_tenant, 7), queue.enqueue(of_tenant, 7, fair_key="other")]
    jobs += queue.enqueue_many([queue.prepare_data(of_tenant, (8,))])
    assert [fields_of(conn, job.id)["fair_key"] for job in jobs] == ["tenant-7", "other", "tenant-8"]
    assert set(turns(conn)) == {"1", "1:tenant-7", "1:other", "1:tenant-8"}


def test_the_order_of_a_key_is_that_of_arrival_whatever_fair_turns_its_queues_have(conn: redis.Redis, broker: Broker) -> None:
    for n in range(9):  # turns lag behind arrivals: of three tenants each has one of three
        broker.enqueue("fair", [new(f"other{n}", fair_key=f"tenant{n % 3}")], f"other{n}")
    arrivals = [
        ("a", "fair", "x"),
        ("b", "plain", ""),
        ("c", "fair", "tenant0"),
        ("d", "fair", ""),
        ("e", "plain", ""),
        ("f", "fair", "y"),
    ]
    for job_id, queue, fair_key in arrivals:
        broker.enqueue(queue, [tied(job_id, **({"fair_key": fair_key} if fair_key else {}))], job_id)
    assert (holders(conn), waiting(conn)) == (["a"], [*"bcdef"])
    hand, order = Hand(broker, "fair", "plain"), ""
    while jobs := hand.turn(slots=[0]).jobs:
        if jobs[0].id == "c" and order.count("c") == 0:
            hand.tell(jobs[0], "retry", reason="r", delay=0.0)  # it keeps its place
        else:
            hand.tell(jobs[0])
        order += jobs[0].id if len(jobs[0].id) == 1 else ""
        assert faults(conn) == []
    assert order == "abccdef"


def test_a_job_of_a_key_that_came_before_the_fair_turns_keeps_its_place_over_a_retry(conn: redis.Redis, broker: Broker) -> None:
    for job_id in "ab":
        broker.enqueue("q", [tied(job_id)], job_id)
    hand = Hand(broker, "q")
    a = hand.take()
    put(broker, "q", "x", fair_key="x")
    broker.enqueue("q", [tied("c", fair_key="y")], "c")
    hand.turn(outcome(a, "retry", reason="r", delay=0.001, fields={"keep_slot": "1"}))
    promote_all(broker, conn)
    assert (holders(conn), waiting(conn)) == (["a"], ["b", "c"])
    assert faults(conn) == []
