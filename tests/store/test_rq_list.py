"""A queue that stock RQ's producers push to as well: the LIST stays RQ's, our jobs wait beside it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from fusion import Queue
from fusion.exceptions import ConfigurationError
from fusion.job import Job
from fusion.store.read.inspector import Inspector
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, drain, fields_of, ids, put

rq = pytest.importorskip("rq")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

TASK = "tests.jobs.basic.noop"
SCHEDULED = "rq:scheduler:scheduled_jobs"


def test_a_drained_queue_that_became_their_list_stays_open_to_us(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "first")
    hand, stock = Hand(broker, "q"), rq.Queue("q", connection=conn)
    assert drain(hand) == ["first"]
    stock.enqueue(TASK, job_id="rq-1")
    assert hand.turn(slots=[0]).bad == []
    put(broker, "q", "low", priority=0)
    put(broker, "q", "high", priority=2)
    put(broker, "q", "front", front=True)
    assert conn.lrange("rq:queue:q", 0, -1) == [b"rq-1"]
    inspector = Inspector(conn)
    assert (Queue("q", conn).count, inspector.waiting("q")) == (3, ["high", "front", "low"])
    assert (inspector.position("q", "low"), Job.fetch("front", conn).get_position()) == (2, 1)
    assert drain(hand) == ["high", "front", "low"]
    stock.empty()
    assert conn.type("rq:queue:q") == b"none"
    put(broker, "q", "after")
    assert conn.type("rq:queue:q") == b"none", "for good: their producers may push at any moment"
    stock.enqueue(TASK, job_id="rq-2")
    assert drain(hand) == ["after"]
    assert conn.lrange("rq:queue:q", 0, -1) == [b"rq-2"]


@pytest.mark.parametrize(
    "before", ["enqueue", "front", "later", "requeue", "release", "lost", "retry", "many", "empty", "claim", "cancel"]
)
def test_any_script_may_be_the_first_to_find_a_list_of_rq(broker: Broker, conn: redis.Redis, before: str) -> None:
    """Drained, then pushed to by RQ: each script in turn is the first to see that."""
    put(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    a, _ = hand.claim(2)
    if before == "requeue":
        hand.tell(a, "failed", reason="r")
    elif before in ("later", "retry"):
        hand.tell(a, "retry", reason="r", delay=50.0)
        conn.zadd(SCHEDULED, {"a": 1000})
    rq.Queue("q", connection=conn).enqueue(TASK, job_id="rq-1")
    steps: dict[str, Callable[[], object]] = {
        "enqueue": lambda: put(broker, "q", "new"),
        "front": lambda: put(broker, "q", "new", front=True),
        "many": lambda: put(broker, "q", "new", "new2"),
        "later": broker.promote,
        "retry": lambda: hand.turn(slots=[0]) and broker.promote(),
        "requeue": lambda: broker.requeue(["a"], "n"),
        "release": lambda: hand.tell(a, "release", reason="r"),
        "lost": lambda: hand.tell(a, "lost", reason="r"),
        "empty": lambda: broker.empty("q"),
        "claim": lambda: hand.turn(slots=[0]),
        "cancel": lambda: broker.cancel("a"),
    }
    steps[before]()
    assert conn.lrange("rq:queue:q", 0, -1) == [b"rq-1"]
    put(broker, "q", "last")
    waiting = [*drain(hand)]
    assert waiting[-1] == "last"
    assert waiting[:-1] == {"front": ["new"], "enqueue": ["new"], "many": ["new", "new2"]}.get(
        before, ["a"] if before in ("later", "retry", "requeue", "release", "lost") else []
    )
    assert conn.lrange("rq:queue:q", 0, -1) == [b"rq-1"]
    assert conn.smembers("rq:fifos") == {b"q"}


def test_jobs_that_an_older_process_wrote_to_a_list_queue_are_served(broker: Broker, conn: redis.Redis) -> None:
    conn.sadd("rq:fifos", "q")
    put(broker, "q", "new")
    for n in range(30):  # 0.1 knows of no such queues
        conn.hset(f"rq:job:old-{n:02d}", mapping={**fields_of(conn, "new"), "seq": 100 + n, "status": "queued"})
        conn.zadd("rq:queue:q", {f"old-{n:02d}": 2.5 - n / 1000})
    assert drain(Hand(broker, "q"), 1) == [*(f"old-{n:02d}" for n in range(30)), "new"]


def test_adopted_jobs_of_a_list_run_beside_ours(conn: redis.Redis) -> None:
    stock, plain = rq.Queue("q", connection=conn), Broker(conn)
    for n in range(50):
        stock.enqueue(TASK, job_id=f"rq-{n:02d}")
    put(plain, "q", "low", priority=0)
    put(plain, "q", "high", priority=2)
    assert ids(Hand(plain, "q", name="other.1").claim(1)) == ["high"]
    assert conn.llen("rq:queue:q") == 50
    hand = Hand(Broker(conn, FleetConstants(adopt_rq=("q",))), "q")
    (first,) = hand.claim(1)
    assert (first.id, first.fields[b"serializer"]) == ("rq-00", b"pickle")
    assert drain(hand, 7) == [*(f"rq-{n:02d}" for n in range(1, 50)), "low"]
    assert conn.llen("rq:queue:q") == 0
    assert hand.tell(first) == "ok"
    assert check_conservation(conn, ["rq-00"]) == {"rq-00": "finished"}


def test_adopting_leaves_the_key_to_their_producers_from_the_start(conn: redis.Redis) -> None:
    broker = Broker(conn, FleetConstants(adopt_rq=("q",)))
    put(broker, "q", "before")
    broker.adopt(["q"])
    put(broker, "q", "after")
    hand = Hand(broker, "q")
    assert ids(hand.claim(1)) == ["before"]
    rq.Queue("q", connection=conn).enqueue(TASK, job_id="rq-1")
    assert drain(hand) == ["after", "rq-1"]


def test_a_job_of_theirs_in_a_zset_of_ours_is_reported_and_not_run(broker: Broker, conn: redis.Redis) -> None:
    rq.Queue("theirs", connection=conn).enqueue(TASK, job_id="rq-1")
    before = conn.hgetall("rq:job:rq-1")
    conn.zadd("rq:queue:q", {"rq-1": 1})
    broker.clean()
    assert drain(Hand(broker, "q")) == []
    assert conn.hgetall("rq:job:rq-1") == before
    (record,) = conn.zrange("rq:queue:failed", 0, -1)
    assert fields_of(conn, record.decode())["reason"] == "corrupt: the queue names a job of stock RQ"


def test_an_old_producers_pickle_is_known_for_one(broker: Broker, conn: redis.Redis) -> None:
    conn.hset("rq:job:old", mapping={"data": b"\x80\x04...", "created_at": "2026-01-31T09:30:00"})
    conn.zadd("rq:queue:q", {"old": 1})
    assert Hand(broker, "q").take().fields[b"serializer"] == b"pickle"
    conn.hset("rq:job:inbox", mapping={"data": b"x\x9c...", "created_at": "2026-01-31T09:30:00"})
    conn.rpush("rq:queue:scheduler", "inbox")
    assert Hand(broker, "scheduler", name="h.2").take().fields[b"serializer"] == b"pickle"


def test_a_producer_gets_a_sentence_for_a_key_of_another_type(conn: redis.Redis) -> None:
    conn.set("rq:queue:q", "x")
    for ask in (lambda: Queue("q", conn).enqueue(TASK), lambda: Queue("q", conn).count):
        with pytest.raises(
            ConfigurationError, match=r"another program's data, an RQ queue perhaps; drain it there, or give this fleet"
        ):
            ask()
