"""On a Redis and a prefix that stock RQ and rq-scheduler use too, nothing of theirs is changed, moved or buried (P13, ADR 0015)."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import redis

from fusion import Dependency, Queue
from fusion.exceptions import DuplicateJob, FusionError, InvalidJobOperation
from fusion.job import Job
from fusion.store.read.inspector import Inspector
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from fusion.store.write.operation_broker import Move
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import LEASE, Hand, drain, expire_lease, ids, may_reap, put, status_of
from tests.kit.promises import claim

rq = pytest.importorskip("rq")
rq_scheduler = pytest.importorskip("rq_scheduler")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    # rq-scheduler calls crontab in a way of which crontab says that it will mean UTC one day.
    pytest.mark.filterwarnings("ignore:Version 0.22.0. of crontab:FutureWarning"),
]

TASK = "tests.jobs.basic.noop"
SCHEDULED = "rq:scheduler:scheduled_jobs"
#: Jobs of stock RQ's in every state in which one can be: name -> what it leads to.
STATES = ("queued", "started", "finished", "kept", "failed", "canceled", "deferred", "periodic", "cron", "later")


class Neighbour:
    """A deployment of stock RQ and rq-scheduler: a job in each state, a worker that lives and one whose hash is gone."""

    def __init__(self, conn: redis.Redis, queue: str = "default") -> None:
        self.conn, self.queue = conn, rq.Queue(queue, connection=conn)
        now = int(time.time())
        for name in ("queued", "started", "finished", "kept", "failed", "canceled", "deferred"):
            self.queue.enqueue(TASK, job_id=f"rq-{name}")
        for name in ("started", "finished", "kept", "failed", "canceled", "deferred"):
            conn.lrem(self.queue.key, 0, f"rq-{name}")
            conn.hset(f"rq:job:rq-{name}", "status", "finished" if name == "kept" else name)
        conn.zadd(
            f"rq:wip:{queue}", {"rq-started:0123456789abcdef": now + 600, "rq-late:fedcba": now - 5, "rq-endless:ab": "+inf"}
        )
        conn.zadd(f"rq:finished:{queue}", {"rq-finished": now - 100, "rq-gone": now - 200, "rq-kept": "+inf"})
        conn.zadd(f"rq:canceled:{queue}", {"rq-canceled": now - 50})
        conn.zadd(f"rq:deferred:{queue}", {"rq-deferred": now + 50})
        conn.zadd(f"rq:failed:{queue}", {"rq-failed": now + 50})
        conn.sadd("rq:job:rq-queued:dependents", "rq-deferred")
        clock = rq_scheduler.Scheduler(queue, connection=conn)
        past = datetime.now(timezone.utc).replace(tzinfo=None) - timedelta(seconds=3)
        clock.schedule(past, TASK, interval=60, id="rq-periodic")
        clock.cron("* * * * *", TASK, id="rq-cron")
        clock.enqueue_in(timedelta(hours=1), TASK, job_id="rq-later")
        conn.zadd(SCHEDULED, {"rq-cron": now - 10, "rq-orphan": now - 20})
        worker = rq.Worker([self.queue], name="stock", connection=conn)
        worker.register_birth()
        conn.sadd("rq:workers", "rq:worker:asleep")
        conn.hset("rq:job:of-nobody", mapping={"status": "finished", "data": "x"})
        self.before = self.entries()
        assert {f"rq-{name}" for name in STATES} <= {key.decode().removeprefix("rq:job:") for key in self.before}

    def entries(self) -> dict[bytes, Any]:
        """All that is theirs: hashes, lists, and of shared sets the members with `rq-` in them."""
        found: dict[bytes, Any] = {}
        for key in self.conn.scan_iter():
            kind = self.conn.type(key)
            if kind == b"hash" and (b"job:rq-" in key or b"of-nobody" in key or b"worker:stock" in key):
                found[key] = (self.conn.hgetall(key), self.conn.ttl(key) < 0)
            elif kind == b"list" and key == self.queue.key.encode():
                found[key] = self.conn.lrange(key, 0, -1)
            elif kind == b"zset" and (
                theirs := [(m, s) for m, s in self.conn.zrange(key, 0, -1, withscores=True) if b"rq-" in m]
            ):
                found[key] = theirs
            elif kind == b"set":
                found[key] = {m for m in self.conn.smembers(key) if b"rq-" in m or m in (b"rq:worker:stock", b"rq:worker:asleep")}
                if not found[key]:
                    del found[key]
        return found

    def check(self) -> None:
        after = self.entries()
        for key in self.before.keys() | after.keys():
            assert after.get(key) == self.before.get(key), key


@pytest.fixture
def neighbour(conn: redis.Redis) -> Neighbour:
    return Neighbour(conn)


ALL = [f"rq-{name}" for name in STATES] + ["of-nobody"]


def _claims(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "default", "default2", name="host.9")
    for _ in range(3):
        answer = hand.turn(slots=[0, 0])
        assert (answer.jobs, answer.bad) == ([], [])


def _reaps(broker: Broker, conn: redis.Redis) -> None:
    Hand(broker, "q")
    for _ in range(3):
        may_reap(conn)
        conn.hset("rq:reap", "more", 1)
        assert broker.reap(LEASE, 0, ["default"])[0] == 0


def _prunes(broker: Broker, conn: redis.Redis) -> None:
    for _ in range(2):
        may_reap(conn)
        assert broker.prune(LEASE) == []
    assert broker.prune(LEASE, "stock") == []


def _takes_its_name(broker: Broker, conn: redis.Redis) -> None:
    assert not broker.register("stock", "incarnation", LEASE, 420, {"queues": "q"})


def _enqueues_its_ids(broker: Broker, conn: redis.Redis) -> None:
    for job_id in ALL:
        with pytest.raises(DuplicateJob):
            put(broker, "default", job_id)
        with pytest.raises(DuplicateJob):
            put(broker, "elsewhere", job_id, delay=5)
    with pytest.raises(DuplicateJob, match="another program's job, RQ's perhaps; use another"):
        put(broker, "q", "rq-finished")


def _over_the_caps(broker: Broker, conn: redis.Redis) -> None:
    tight = Broker(conn, FleetConstants(finished_max=0, canceled_max=0, failed_max=0))
    for _ in range(3):
        tight.clean()


def _expires(broker: Broker, conn: redis.Redis) -> None:
    """The index of what may expire names their jobs."""
    conn.zadd("rq:expiring", dict.fromkeys(ALL, 1))
    assert broker.expire()[0] == 0
    assert not conn.exists("rq:expiring")


def _has_children_of_theirs(broker: Broker, conn: redis.Redis) -> None:
    for job_id in ALL:
        with suppress(FusionError):
            Queue("q", conn).enqueue(TASK, depends_on=Dependency(job_id, on_failure="run"))
    for _ in range(3):
        broker.release()


def _renews_its_leases(broker: Broker, conn: redis.Redis) -> None:
    hand = Hand(broker, "default", name="host.9")
    held = [("rq-started", "0123456789abcdef"), ("rq-late", "fedcba")]
    assert broker.extend(hand.name, hand.incarnation, held, LEASE, 420, "busy") == (True, ["lost", "lost"])


SCRIPTS: dict[str, Callable[[Broker, redis.Redis], object]] = {
    "promote": lambda broker, conn: [broker.promote() for _ in range(3)],
    "claims": _claims,
    "reap": _reaps,
    "prune": _prunes,
    "register": _takes_its_name,
    "enqueue": _enqueues_its_ids,
    "clean": lambda broker, conn: [broker.clean(limit) for limit in (1, 2, 200)],
    "clean over the caps": _over_the_caps,
    "delete": lambda broker, conn: broker.delete(ALL),
    "cancel": lambda broker, conn: [broker.cancel(job_id) for job_id in ALL],
    "requeue": lambda broker, conn: broker.requeue(ALL, "n"),
    "requeue later": lambda broker, conn: broker.requeue(ALL, "n", delay=9),
    "quarantine": lambda broker, conn: broker.quarantine(ALL, "because"),
    "reschedule": lambda broker, conn: [broker.reschedule(job_id, 1.0) for job_id in ALL],
    "save_meta": lambda broker, conn: [broker.save_meta(job_id, "{}") for job_id in ALL if job_id != "of-nobody"],
    "note_copy": lambda broker, conn: [broker.note_copy(job_id, "copy") for job_id in ALL if job_id != "of-nobody"],
    "empty": lambda broker, conn: broker.empty("default"),
    "empty to the trash": lambda broker, conn: broker.empty_to_trash("default"),
    "delete to the trash": lambda broker, conn: broker.delete_to_trash(ALL),
    "restore": lambda broker, conn: broker.restore(ALL, "n"),
    "stop": lambda broker, conn: [broker.stop(job_id) for job_id in ALL],
    "reprioritise": lambda broker, conn: broker.reprioritise([Move(job_id) for job_id in ALL], 2),
    "expire": _expires,
    "release": _has_children_of_theirs,
    "extend": _renews_its_leases,
    "deregister": lambda broker, conn: broker.deregister("stock", "incarnation"),
    "survey": lambda broker, conn: broker.survey({"*": ".*"}, 0),
    "sample": lambda broker, conn: broker.sample(0),
    "resume": lambda broker, conn: (broker.suspend(), broker.resume(), broker.unpause("default")),
}


@claim("P13")
@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_changes_what_is_theirs(broker: Broker, conn: redis.Redis, neighbour: Neighbour, name: str) -> None:
    SCRIPTS[name](broker, conn)
    neighbour.check()


def test_changes_to_jobs_of_rq_are_refused_with_a_reason(conn: redis.Redis, neighbour: Neighbour) -> None:
    job = Job.fetch("rq-queued", conn)
    for ask in (job.cancel, job.delete, job.requeue, job.save_meta, lambda: job.reschedule(5)):
        with pytest.raises(InvalidJobOperation, match=r"another program's job, RQ's perhaps; Fusion leaves it alone"):
            ask()
    neighbour.check()


def test_ours_beside_theirs_live_as_ever(broker: Broker, conn: redis.Redis, neighbour: Neighbour) -> None:
    """In a queue of the same name, through all that is done with one."""
    hand = Hand(broker, "default")
    put(broker, "default", "low", priority=0)
    put(broker, "default", "done", "failed", "lost")
    put(broker, "default", "high", priority=2)
    put(broker, "default", "canceled", "deleted", "soon", priority=0)
    put(broker, "default", "timed", delay=0.001)
    broker.cancel("canceled")
    assert broker.delete(["deleted"]) == ["deleted"]
    time.sleep(0.01)
    assert broker.promote()[0] == 1
    jobs = {claimed.id: claimed for claimed in hand.claim(7)}
    assert list(jobs) == ["high", "done", "failed", "lost", "timed", "low", "soon"]
    hand.tell(jobs["done"])
    hand.tell(jobs["failed"], "failed", reason="r")
    hand.tell(jobs["low"], "retry", reason="r", delay=50.0)
    conn.zadd(SCHEDULED, {"low": 1000})
    hand.tell(jobs["soon"], "release", reason="r")
    expire_lease(conn, "default", "lost")
    may_reap(conn)
    assert broker.reap(LEASE, 0) == (1, False)
    assert broker.promote()[0] == 1
    assert drain(hand) == ["lost", "low", "soon"]
    assert broker.requeue(["failed"], "n") == ["ok"]
    assert ids(hand.claim()) == ["failed"]
    ours = ["low", "done", "failed", "lost", "high", "canceled", "soon", "timed"]
    assert check_conservation(conn, ours)["done"] == "finished"
    neighbour.check()


def test_our_ended_jobs_are_forgotten_behind_any_number_of_theirs(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "ours")
    hand = Hand(broker, "q")
    hand.tell(hand.take())
    now = int(time.time())
    conn.zadd("rq:finished:q", {f"rq-{n}": now - 1000 + n for n in range(60)})
    conn.zadd("rq:finished:q", {"ours": now - 5.5})
    for _ in range(2000):
        broker.clean(20)
        if status_of(conn, "ours") is None:
            break
    assert conn.zcard("rq:finished:q") == 60
    assert not conn.exists("rq:job:ours")


def test_our_due_jobs_are_queued_behind_any_number_of_theirs(broker: Broker, conn: redis.Redis) -> None:
    conn.zadd(SCHEDULED, {f"rq-{n}": 1000 + n for n in range(60)})
    put(broker, "q", "ours", delay=50)
    conn.zadd(SCHEDULED, {"ours": 5000})
    for _ in range(2000):
        if broker.promote(20)[0]:
            break
    assert status_of(conn, "ours") == "queued"
    assert conn.zcard(SCHEDULED) == 60


def test_overdue_entries_of_theirs_neither_hurry_nor_delay_anybody(
    broker: Broker, conn: redis.Redis, neighbour: Neighbour
) -> None:
    hand = Hand(broker, "q")
    put(broker, "q", "later", delay=500)
    _, next_in, *_ = broker.promote()
    assert next_in is not None
    assert next_in > 0, "a loop that asked at once again would never rest"
    turn = hand.turn(slots=[0])
    assert turn.next_in is not None
    assert turn.next_in > 0
    conn.delete("rq:wake:_scheduler")
    put(broker, "q", "sooner", delay=5)
    assert conn.llen("rq:wake:_scheduler") == 1, "the scheduler sleeps until something of a minute's time"
    conn.delete("rq:wake:_scheduler")
    put(broker, "q", "last", delay=900)
    assert conn.llen("rq:wake:_scheduler") == 0
    conn.zadd(SCHEDULED, {"sooner": 5})
    assert hand.turn(slots=[0]).next_in == 0


def test_a_dead_worker_of_ours_is_buried_beside_live_ones_of_theirs(
    broker: Broker, conn: redis.Redis, neighbour: Neighbour
) -> None:
    put(broker, "q", "held")
    hand = Hand(broker, "q", name="dead.1", lease=0.001)
    hand.take()
    Hand(broker, "q", name="idle.1", lease=0.001)
    conn.delete("rq:worker:idle.1")  # it expired
    time.sleep(0.01)
    may_reap(conn)
    assert sorted(broker.prune(LEASE)) == [("dead.1", 1), ("idle.1", 0)]
    assert conn.smembers("rq:workers") == {b"rq:worker:stock", b"rq:worker:asleep"}
    assert not conn.exists("rq:fleet")
    neighbour.check()


def test_their_workers_are_not_shown_as_dead_ones_of_ours(broker: Broker, conn: redis.Redis, neighbour: Neighbour) -> None:
    Hand(broker, "q")
    assert [worker.name for worker in Inspector(conn).workers()] == ["host.1"]
    (info,) = Inspector(conn).queues(["default"])
    assert (info.started, info.rq, info.count, info.error) == (0, 1, 0, "")
