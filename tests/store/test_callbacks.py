"""A job's end and its deliveries are one step; deliveries are jobs of a queue that no worker serves."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis

from fusion import Queue
from fusion.exceptions import BadSignature, InvalidName
from fusion.store.layout.names import CALLBACKS, is_delivery_id
from fusion.store.read.inspector import Inspector
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import (
    LEASE,
    Hand,
    events_of,
    everything,
    expire_lease,
    fields_of,
    may_reap,
    outcome,
    promote_all,
    put,
    status_of,
)
from tests.kit.promises import claim

OK, BAD, ANY = "https://ok.example/", "https://bad.example/", "https://any.example/"
URLS = {"success_task_handler": OK, "failed_task_handler": BAD, "callback_url": ANY}


def deliveries(conn: redis.Redis) -> dict[str, dict[str, Any]]:
    """What waits, by id: what it says, in the order in which it was accepted."""
    ids = [raw.decode() for raw in conn.zrange(f"rq:queue:{CALLBACKS}", 0, -1, desc=True)]
    return {job_id: json.loads(fields_of(conn, job_id)["data"])[3] for job_id in ids}


def told(conn: redis.Redis) -> list[tuple[str, str]]:
    return [(said["url"], said["status"]) for said in deliveries(conn).values()]


@pytest.fixture
def start(conn: redis.Redis, hand: Hand) -> Callable[..., Any]:
    """A job with all three URLs, claimed."""

    def claimed(**options: Any) -> Any:
        Queue("q", conn).enqueue("tasks.sms.sendSMS", {"text": "S3CR3T"}, **{"job_id": "j", **URLS, **options})
        return hand.take()

    return claimed


# -- which URLs are called


def test_success_is_posted_to_its_handler_and_the_callback_url(conn: redis.Redis, hand: Hand, start: Callable[..., Any]) -> None:
    hand.tell(start(), fields={"result": '"S3CR3T"'})
    assert told(conn) == [(OK, "finished"), (ANY, "finished")]


def test_failure_is_posted_to_its_handler_and_the_callback_url(conn: redis.Redis, hand: Hand, start: Callable[..., Any]) -> None:
    hand.tell(start(), "failed", reason="builtins.ValueError: S3CR3T", fields={"error_class": "builtins.ValueError"})
    assert told(conn) == [(BAD, "failed"), (ANY, "failed")]
    assert [said["error"] for said in deliveries(conn).values()] == ["builtins.ValueError"] * 2


def test_a_job_with_a_bad_signature_posts_nothing(conn: redis.Redis, hand: Hand, start: Callable[..., Any]) -> None:
    """Whoever wrote it wrote its URLs, too."""
    hand.tell(start(), "failed", reason="unsigned", fields={"error_class": f"{BadSignature.__module__}.BadSignature"})
    assert status_of(conn, "j") == "failed"
    assert told(conn) == []


def test_an_expired_job_is_posted_as_a_failure(conn: redis.Redis, hand: Hand) -> None:
    Queue("q", conn).enqueue("tasks.sms.sendSMS", job_id="j", ttl=0.001, **URLS)
    conn.hset("rq:job:j", "expires_at", 1)
    assert hand.claim() == []
    assert told(conn) == [(BAD, "expired"), (ANY, "expired")]


def test_a_canceled_job_is_posted_only_to_the_callback_url(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    Queue("q", conn).enqueue("tasks.sms.sendSMS", job_id="j", **URLS)
    broker.cancel("j")
    assert told(conn) == [(ANY, "canceled")]


def test_a_job_canceled_while_running_is_posted_when_it_ends(
    conn: redis.Redis, broker: Broker, hand: Hand, start: Callable[..., Any]
) -> None:
    claimed = start()
    broker.cancel("j")
    assert told(conn) == []
    hand.tell(claimed, "retry", reason="r", delay=1)
    assert told(conn) == [(ANY, "canceled")]


@pytest.mark.parametrize("kind", ["retry", "held", "release", "lost", "later"])
def test_an_outcome_that_is_no_end_posts_nothing(conn: redis.Redis, hand: Hand, start: Callable[..., Any], kind: str) -> None:
    hand.tell(start(), kind, reason="r", delay=60)
    assert told(conn) == []


def test_poison_pills_and_forbidden_losses_are_posted(conn: redis.Redis, broker: Broker, start: Callable[..., Any]) -> None:
    start(on_lost="fail")
    may_reap(conn)
    expire_lease(conn, "q", "j")
    broker.reap(LEASE, 0)
    assert status_of(conn, "j") == "failed"
    assert told(conn) == [(BAD, "failed"), (ANY, "failed")]
    (said, _) = deliveries(conn).values()
    assert said["error"] == "fusion.exceptions.JobLost"


def test_prune_posts_failures_of_a_dead_worker(conn: redis.Redis, broker: Broker, hand: Hand, start: Callable[..., Any]) -> None:
    start(on_lost="fail")
    broker.prune(LEASE, hand.name)
    assert told(conn) == [(BAD, "failed"), (ANY, "failed")]


def test_one_url_for_both_is_posted_once(conn: redis.Redis, hand: Hand, start: Callable[..., Any]) -> None:
    hand.tell(start(success_task_handler=ANY))
    assert told(conn) == [(ANY, "finished")]


def test_each_end_of_a_job_is_posted(conn: redis.Redis, broker: Broker, hand: Hand, start: Callable[..., Any]) -> None:
    hand.tell(start(), "failed", reason="r")
    broker.requeue(["j"], "n")
    hand.tell(hand.take())
    assert told(conn) == [(BAD, "failed"), (ANY, "failed"), (OK, "finished"), (ANY, "finished")]


def test_a_job_without_urls_leaves_nothing_behind(conn: redis.Redis, broker: Broker, hand: Hand) -> None:
    put(broker, "q", "j")
    hand.tell(hand.take())
    assert list(conn.scan_iter("*callbacks*")) == [b"rq:callbacks:secret"], "which the worker made"


def test_the_url_may_come_from_the_payload(conn: redis.Redis, hand: Hand) -> None:
    Queue("q", conn).enqueue("tasks.sms.sendSMS", {"to": "+1", "callback": "1", "callback_url": ANY}, job_id="j")
    hand.tell(hand.take())
    assert told(conn) == [(ANY, "finished")]


def test_a_job_of_an_old_producer_is_posted(conn: redis.Redis, hand: Hand) -> None:
    data = b'["tasks.sms.sendSMS", null, [], {}]'
    for name in ("bare", "swept"):
        conn.hset(f"rq:job:{name}", mapping={"data": data, "status": "queued", "failed_task_handler": BAD})
    conn.zadd("rq:queue:q", {"bare": 2})
    hand.tell(hand.take(), "failed", reason="r")
    conn.sadd("rq:queues", "rq:queue:q")
    conn.zadd("rq:queue:q", {"swept": 2})
    Broker(conn).clean()
    hand.tell(hand.take(), "failed", reason="r")
    assert [(said["job_id"], said["url"]) for said in deliveries(conn).values()] == [("bare", BAD), ("swept", BAD)]


def test_a_job_pushed_to_the_inbox_is_posted(conn: redis.Redis, broker: Broker) -> None:
    conn.hset("rq:job:j", mapping={"data": b'["tasks.sms.sendSMS", null, [], {}]', "callback_url": ANY})
    conn.rpush("rq:queue:scheduler", "j")
    hand = Hand(broker, "scheduler", name="host.2")
    hand.tell(hand.take())
    assert told(conn) == [(ANY, "finished")]


# -- what a delivery is


def test_a_delivery_is_a_waiting_job_of_its_own(conn: redis.Redis, hand: Hand, start: Callable[..., Any]) -> None:
    hand.tell(start(log_tag="SMS_OTP"), "failed", reason="r", fields={"error_class": "E"})
    (job_id, said), (other, _) = deliveries(conn).items()
    assert is_delivery_id(job_id)
    assert job_id != other
    found = fields_of(conn, job_id)
    expected = {"status": "queued", "origin": CALLBACKS, "original_queue": CALLBACKS, "priority": "1", "result_ttl": "86400"}
    assert {name: found[name] for name in expected} == expected
    job = fields_of(conn, "j")
    assert said == {
        "url": BAD,
        "job_id": "j",
        "queue": "q",
        "status": "failed",
        "task": "tasks.sms.sendSMS",
        "log_tag": "SMS_OTP",
        "attempts": 1,
        "ended_at": job["ended_at"],
        "error": "E",
    }
    check_conservation(conn, ["j", job_id, other])


def test_arguments_results_and_messages_stay_out_of_it(conn: redis.Redis, hand: Hand, start: Callable[..., Any]) -> None:
    hand.tell(start(), "failed", reason="builtins.ValueError: S3CR3T", fields={"exc_info": "S3CR3T", "result": "S3CR3T"})
    for job_id in deliveries(conn):
        assert "S3CR3T" not in str(fields_of(conn, job_id))


def test_deliveries_ring_the_couriers_bell(conn: redis.Redis, hand: Hand, start: Callable[..., Any]) -> None:
    hand.tell(start())
    assert conn.lrange(f"rq:wake:{CALLBACKS}", 0, -1) == [b"1"]


def test_deliveries_are_no_events(conn: redis.Redis, broker: Broker, hand: Hand, start: Callable[..., Any]) -> None:
    hand.tell(start())
    courier = Hand(broker, CALLBACKS, name="host.1.courier")
    first, second = courier.claim(2)
    courier.tell(first)
    courier.tell(second, "retry", reason="r", delay=0)
    promote_all(broker, conn)
    courier.tell(courier.take(), "failed", reason="r")
    assert [event["event"] for event in events_of(conn)] == ["queued", "processing", "completed"]
    assert [event["n"] for event in events_of(conn)] == ["1", "2", "3"]


def test_the_end_of_a_delivery_posts_nothing(conn: redis.Redis, broker: Broker, hand: Hand, start: Callable[..., Any]) -> None:
    hand.tell(start())
    courier = Hand(broker, CALLBACKS, name="host.1.courier")
    for claimed in courier.claim(2):
        courier.tell(claimed, "failed", reason="r")
    assert told(conn) == []


def test_no_job_can_take_the_id_of_a_delivery(conn: redis.Redis) -> None:
    with pytest.raises(InvalidName, match="callbacks"):
        Queue("q", conn).enqueue("tasks.sms.sendSMS", job_id="cb-1700000000000000-1")
    assert Queue("q", conn).enqueue("tasks.sms.sendSMS", job_id="cb4711").id == "cb4711"


# -- at least once, and nothing at the job's expense


def test_a_turn_sent_twice_makes_one_delivery(conn: redis.Redis, hand: Hand, start: Callable[..., Any]) -> None:
    done = outcome(start())
    hand.turn(done)
    before = everything(conn)
    hand.turn(done, token=hand.token)
    hand.turn(done)
    assert told(conn) == [(OK, "finished"), (ANY, "finished")]
    assert everything(conn).keys() == before.keys()


@claim("P11")
def test_a_broken_queue_of_callbacks_fails_no_job_and_is_counted(
    conn: redis.Redis, broker: Broker, hand: Hand, start: Callable[..., Any]
) -> None:
    conn.set(f"rq:queue:{CALLBACKS}", "broken")
    assert hand.tell(start()) == "ok"
    assert hand.tell(start(job_id="k"), "failed", reason="r") == "ok"
    Queue("q", conn).enqueue("tasks.sms.sendSMS", job_id="l", **URLS)
    assert broker.cancel("l") == "canceled"
    assert [status_of(conn, job_id) for job_id in "jkl"] == ["finished", "failed", "canceled"]
    assert conn.get("rq:callbacks:dropped") == b"5"
    assert not list(conn.scan_iter("rq:job:cb-*")), "nothing that no index leads to"


def capped(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch, cap: int) -> Broker:
    broker = Broker(conn)
    monkeypatch.setattr(broker, "_constants", replace(broker._constants, callbacks_max=cap))
    return broker


def test_when_too_many_wait_new_ones_are_refused_and_counted(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = capped(conn, monkeypatch, 3)
    hand = Hand(broker, "q", name="host.2")

    def end(job_id: str) -> str:
        Queue("q", conn).enqueue("tasks.sms.sendSMS", job_id=job_id, callback_url="https://x/")
        return hand.tell(hand.take())

    assert [end(job_id) for job_id in "abcde"] == ["ok"] * 5
    assert len(list(conn.scan_iter("rq:job:cb-*"))) == 3
    assert (broker.callbacks_refused(), conn.zcard("rq:callbacks:open")) == (2, 3)
    courier = Hand(broker, CALLBACKS, name="courier.1")
    first, second = courier.claim(2)
    courier.tell(first)
    courier.tell(second, "later", delay=60.0, reason="busy")
    assert conn.zcard("rq:callbacks:open") == 2, "what was put off waits"
    assert end("f") == "ok"
    assert broker.callbacks_refused() == 2
    assert broker.delete([second.id]) == ["deleted"]
    courier.tell(courier.take(), "failed", reason="r")
    assert conn.zcard("rq:callbacks:open") == 1
    assert Inspector(conn).count("q") == 0


def test_what_lost_its_entry_among_the_waiting_ones_goes_by_its_age(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = capped(conn, monkeypatch, 2)
    hand = Hand(broker, "q", name="host.2")
    conn.zadd("rq:callbacks:open", {"cb-1": 1, "cb-2": 2})
    Queue("q", conn).enqueue("tasks.sms.sendSMS", job_id="a", callback_url="https://x/")
    hand.tell(hand.take())
    assert len(list(conn.scan_iter("rq:job:cb-*"))) == 1
    assert (broker.callbacks_refused(), conn.zcard("rq:callbacks:open")) == (0, 1)


def test_a_full_server_accepts_ends_and_their_callbacks(conn: redis.Redis, hand: Hand, start: Callable[..., Any]) -> None:
    claimed = start()
    conn.config_set("maxmemory", 1)
    try:
        assert hand.tell(claimed) == "ok"
    finally:
        conn.config_set("maxmemory", 0)
    assert told(conn) == [(OK, "finished"), (ANY, "finished")]


def test_a_delivery_is_lost_as_often_as_its_couriers_are(
    conn: redis.Redis, broker: Broker, hand: Hand, start: Callable[..., Any]
) -> None:
    hand.tell(start(success_task_handler=None))
    for i in range(12):
        courier = Hand(broker, CALLBACKS, name=f"host.{i}.courier")
        held = courier.take()
        broker.prune(LEASE, courier.name)
        promote_all(broker, conn)
    assert status_of(conn, held.id) == "queued"
    assert "attempts" not in fields_of(conn, held.id)


def test_a_delivery_put_off_keeps_its_attempts_however_often(
    conn: redis.Redis, broker: Broker, hand: Hand, start: Callable[..., Any]
) -> None:
    hand.tell(start(success_task_handler=None))
    courier = Hand(Broker(conn, FleetConstants(hold_timeout=0)), CALLBACKS, name="host.1.courier")
    for _ in range(3):
        held = courier.take()
        assert courier.tell(held, "later", reason="busy", delay=60) == "ok"
        assert status_of(conn, held.id) == "scheduled"
        promote_all(broker, conn)
    found = fields_of(conn, held.id)
    assert found["status"] == "queued"
    assert not {"attempts", "held_since", "history"} & set(found)
    check_conservation(conn, ["j", held.id])


def test_a_delivery_to_be_canceled_is_not_put_off(
    conn: redis.Redis, broker: Broker, hand: Hand, start: Callable[..., Any]
) -> None:
    hand.tell(start(success_task_handler=None))
    courier = Hand(broker, CALLBACKS, name="host.1.courier")
    held = courier.take()
    broker.cancel(held.id)
    courier.tell(held, "later", delay=60)
    assert status_of(conn, held.id) == "canceled"
