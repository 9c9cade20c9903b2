"""A stock rq process that counts and cleans its registries beside us moves none of our jobs (ADR 0015)."""

from __future__ import annotations

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import LEASE, Hand, everything, expire_lease, put

pytestmark = pytest.mark.filterwarnings("ignore:Composite key:DeprecationWarning")
rq = pytest.importorskip("rq")
registries = pytest.importorskip("rq.registry")


@pytest.fixture
def busy(conn: redis.Redis) -> dict[str, str]:
    """A job in every state, one of them under a lease that has run out."""
    broker = Broker(conn)
    hand = Hand(broker, "q")
    put(broker, "q", "finished", "failed", "retried", "running", "expired", "for-ever", result_ttl=-1)
    jobs = {claimed.id: claimed for claimed in hand.claim(6)}
    hand.tell(jobs["finished"])
    hand.tell(jobs["for-ever"])
    hand.tell(jobs["failed"], "failed", reason="r")
    hand.tell(jobs["retried"], "retry", delay=100.0)
    put(broker, "q", "canceled", "waiting")
    broker.cancel("canceled")
    expire_lease(conn, "q", "expired")
    return {
        "finished": "finished", "for-ever": "finished", "failed": "failed", "retried": "scheduled", "running": "started",
        "expired": "started", "canceled": "canceled", "waiting": "queued",
    }  # fmt: skip


def test_counting_and_cleaning(conn: redis.Redis, busy: dict[str, str]) -> None:
    before = everything(conn, clocks=True)
    queue = rq.Queue("q", connection=conn)
    kinds = ["StartedJobRegistry", "FinishedJobRegistry", "DeferredJobRegistry", "CanceledJobRegistry", "FailedJobRegistry"]
    counts = {}
    for name in [*kinds, "ScheduledJobRegistry"]:
        registry = getattr(registries, name)("q", connection=conn)
        counts[name] = registry.count
        registry.get_job_ids()
        registry.cleanup()
    assert counts["StartedJobRegistry"] == 2
    assert counts["FinishedJobRegistry"] == 2
    assert counts["CanceledJobRegistry"] == 1
    registries.clean_registries(queue)
    with pytest.raises(redis.exceptions.ResponseError, match="WRONGTYPE"):
        _ = queue.count
    assert everything(conn, clocks=True) == before
    assert check_conservation(conn, busy) == busy


def test_jobs_seen_by_rq_are_still_recovered(conn: redis.Redis, busy: dict[str, str]) -> None:
    registries.clean_registries(rq.Queue("q", connection=conn))
    broker = Broker(conn)
    conn.hset("rq:reap", mapping={"last": conn.time()[0] * 1000, "hold": 0})
    assert broker.reap(LEASE, 0) == (1, False)
    assert check_conservation(conn, busy) == {**busy, "expired": "queued"}


def test_a_list_queue_is_readable_for_it(conn: redis.Redis) -> None:
    put(Broker(conn), "scheduler", "a", "b")
    assert rq.Queue("scheduler", connection=conn).count == 2
    assert rq.Queue("scheduler", connection=conn).job_ids == ["a", "b"]
