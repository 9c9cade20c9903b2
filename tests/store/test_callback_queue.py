"""The queue of callbacks' deliveries: no worker serves it, and nobody touches it who does not name it. Endpoints that are gone."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from fusion import FailedFilter, FailedQueue, Queue
from fusion.exceptions import InvalidName
from fusion.runtime.served_queues import ServedQueues
from fusion.store.access import inspector_of
from fusion.store.layout.keys import Keys
from fusion.store.layout.names import CALLBACKS
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tasks.maintenance import run_maintenance_on_failed_queue
from tests.kit.hands import Hand, fields_of, now_ms, status_of

OK, BAD = "https://ok.example/", "https://bad.example/"
GONE = Keys().callbacks_gone


def _end(conn: redis.Redis, hand: Hand, kind: str = "finished", **more: Any) -> None:
    """The job `j` ends so, and one URL is to be called."""
    Queue("q", conn).enqueue("tasks.sms.sendSMS", job_id="j", callback_url=OK)
    assert hand.tell(hand.take(), kind, reason="r", **more) == "ok"


def test_workers_never_see_the_queue(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    _end(conn, hand)
    assert CALLBACKS not in inspector_of(conn).queue_names()
    for pattern in ("*", "_*", "_callback?"):
        served_queues = ServedQueues([pattern])
        assert not served_queues.refresh(broker.survey, 0)
        broker.ring(CALLBACKS)
        assert not conn.exists(f"rq:work:{pattern}")
        assert hand.claim(1, served_queues.turn) == []
    with pytest.raises(InvalidName):
        ServedQueues([CALLBACKS])
    with pytest.raises(InvalidName):
        Queue(CALLBACKS)


@pytest.fixture
def failed(conn: redis.Redis, broker: Broker, hand: Hand) -> str:
    """The id of a failed delivery; the job `j` has failed, too."""
    error = {"error_class": "builtins.ConnectionError"}
    _end(conn, hand, "failed", fields=error)
    courier = Hand(broker, CALLBACKS, name="host.1.courier")
    held = courier.take()
    courier.tell(held, "failed", reason="r", fields=error)
    return held.id


@pytest.mark.parametrize("queue", [None, "*", "_*"])
def test_requeueing_all_leaves_deliveries_where_they_are(conn: redis.Redis, failed: str, queue: str | None) -> None:
    FailedQueue(conn).requeue_all(FailedFilter(queue=queue))
    assert status_of(conn, failed) == "failed"
    assert status_of(conn, "j") == ("failed" if queue == "_*" else "queued")


def test_deliveries_are_requeued_quarantined_and_listed_when_they_are_named(conn: redis.Redis, failed: str) -> None:
    queue = FailedQueue(conn)
    assert [failure.id for failure in queue.failures()] == ["j"]
    assert [group.count for group in queue.groups()] == [1]
    assert queue.quarantine(FailedFilter(), "why").moved == 1
    named = FailedFilter(queue=CALLBACKS)
    assert [failure.id for failure in queue.failures(named)] == [failed]
    assert queue.requeue_all(named).moved == 1
    assert status_of(conn, failed) == "queued"


def test_the_maintenance_of_the_failed_queue_leaves_deliveries_alone(conn: redis.Redis, failed: str) -> None:
    found = run_maintenance_on_failed_queue()
    assert (found["requeued"], found["left"]) == (1, 0)
    assert status_of(conn, failed) == "failed"


def test_a_requeued_delivery_is_at_its_first_try_again(conn: redis.Redis, broker: Broker, failed: str) -> None:
    conn.hset(f"rq:job:{failed}", "retryCount", 16)
    broker.requeue([failed], "n")
    assert fields_of(conn, failed)["retryCount"] == "7"


def test_failed_deliveries_give_way_to_failed_jobs(conn: redis.Redis, broker: Broker, failed: str) -> None:
    for job_id in ("j", failed):
        conn.hset(f"rq:job:{job_id}", "ended_at", "2000")
    Broker(conn, FleetConstants(failed_max=1)).clean()
    assert conn.zrange("rq:queue:failed", 0, -1) == [b"j"]


# -- endpoints that are gone


def test_an_endpoint_is_gone_until_it_is_readmitted(broker: Broker) -> None:
    assert broker.gone([]) == []
    assert broker.endpoint_gone(OK)
    assert not broker.endpoint_gone(OK)
    assert broker.gone([BAD, OK]) == [False, True]
    assert broker.readmit_endpoint(OK)
    assert not broker.readmit_endpoint(OK)
    assert broker.gone([OK]) == [False]


def test_the_list_of_gone_endpoints_is_bounded_and_shows_no_url(
    conn: redis.Redis, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fusion.kernel.defaults.GONE_MAX", 3)
    for i in range(5):
        conn.zadd(GONE, {f"older{i}": i})
    broker.endpoint_gone("https://x.example/S3CR3T")
    found = conn.zrange(GONE, 0, -1, withscores=True)
    assert [member for member, _ in found[:2]] == [b"older3", b"older4"]
    assert len(found) == 3
    assert b"S3CR3T" not in found[2][0]
    assert abs(found[2][1] * 1000 - now_ms(conn)) < 60_000


def test_whether_deliveries_wait(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    assert not conn.exists("rq:queue:" + CALLBACKS)
    _end(conn, hand)
    assert conn.exists("rq:queue:" + CALLBACKS)
    Hand(broker, CALLBACKS, name="host.1.courier").claim(2)
    assert not conn.exists("rq:queue:" + CALLBACKS)
