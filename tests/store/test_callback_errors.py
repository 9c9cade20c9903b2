"""A Python callback that raised: told by the event of the run, without its text, and counted once."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import redis

from fusion.events.document import to_document
from fusion.events.event import JobEvent
from fusion.sinks.es_documents import encode
from fusion.sinks.es_options import ElasticsearchOptions
from fusion.store.read.inspector import Inspector
from fusion.store.write.broker import Broker
from fusion.store.write.event_broker import EventBroker
from tests.events.hands import reader
from tests.kit.hands import Hand, events_of, outcome, put

SECRET = "S3CR3T-4711-canary"
RAISED = {"callback_error": f"on_failure: shop.send.<locals>.Größe: {SECRET}"}
CLASS = "shop.send.<locals>.Größe"
EVENT = {"finished": "completed", "failed": "failed", "retry": "retry"}


def count(conn: redis.Redis) -> int:
    found = Inspector(conn).callback_errors()
    return found.count if found else 0


@pytest.mark.parametrize("kind", EVENT)
def test_the_event_has_the_class_and_the_fleet_a_count(broker: Broker, conn: redis.Redis, hand: Hand, kind: str) -> None:
    assert Inspector(conn).totals().callback_errors is None
    put(broker, "q", "a", "b", "sound")
    for job_id in ("a", "b"):
        hand.tell(hand.take(), kind, reason="E: r", delay=5.0, fields=RAISED)
        (told,) = [fields for fields in events_of(conn, job_id) if fields["event"] == EVENT[kind]]
        assert told["callback_error"] == CLASS
        assert SECRET not in str(told)
    hand.tell(hand.take(), kind, reason="E: r", delay=5.0)
    assert "callback_error" not in events_of(conn, "sound")[-1]
    found = Inspector(conn).totals().callback_errors
    assert found is not None
    assert (found.count, found.job_id) == (2, "b")
    assert found.at is not None


def test_a_resend_a_stale_worker_and_the_same_again_count_nothing_more(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    told = outcome(hand.take(), "finished", fields=RAISED)
    hand.turn(told)
    hand.turn(told, token=hand.token)
    assert hand.turn(told).answers == ["ok"]
    put(broker, "q", "b")
    stale = replace(hand.take(), execution_id="another")
    assert hand.tell(stale, fields=RAISED) == "stale"
    assert count(conn) == 1


def test_an_outcome_that_was_refused_is_counted_when_it_stands(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    conn.set("rq:queue:failed", "theirs")
    assert hand.tell(claimed, "failed", reason="E: r", fields=RAISED).startswith("error: ")
    assert count(conn) == 0
    conn.delete("rq:queue:failed")
    assert hand.tell(claimed, "failed", reason="E: r", fields=RAISED) == "ok"
    assert count(conn) == 1


def test_a_counter_of_a_wrong_type_holds_up_no_outcome(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    conn.set("rq:callback_errors", "theirs")
    assert hand.tell(hand.take(), fields=RAISED) == "ok"
    assert conn.hget("rq:job:a", "status") == b"finished"


def test_a_run_that_ends_canceled_is_counted_too(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take()
    broker.cancel("a")
    assert hand.tell(claimed, "retry", reason="E: r", fields=RAISED) == "ok"
    assert conn.hget("rq:job:a", "status") == b"canceled"
    assert count(conn) == 1


@pytest.mark.parametrize(
    "text", ["", "no colon", "on_failure: ", "on_failure:: x", "x" * 100_000, "on_success: " + "x" * 100_000]
)
def test_whatever_a_task_forges_is_no_text(broker: Broker, conn: redis.Redis, hand: Hand, text: str) -> None:
    put(broker, "q", "a")
    assert hand.tell(hand.take(), fields={"callback_error": text}) == "ok"
    told = events_of(conn, "a")[-1]
    assert told["event"] == "completed"
    assert len(told["callback_error"]) <= 200


@pytest.mark.parametrize("kind", EVENT)
def test_sinks_get_it(broker: Broker, hand: Hand, events: EventBroker, kind: str) -> None:
    put(broker, "q", "a")
    hand.tell(hand.take(), kind, reason="E: r", delay=5.0, fields=RAISED)
    (found,) = [one.event for one in reader(events).read(500, 0) if one.event.event == EVENT[kind]]
    assert isinstance(found, JobEvent)
    assert to_document(found)["callback_error"] == found.callback_error == CLASS
    assert found.message.endswith(f"; its callback raised {CLASS}")
    classic = json.loads(encode(found, ElasticsearchOptions(urls=("http://x",))))
    assert classic["message"] == found.message
    ecs = json.loads(encode(found, ElasticsearchOptions(urls=("http://x",), data_stream=True)))
    assert ecs["fusion"]["callback_error"] == CLASS
    assert SECRET not in str((found, classic, ecs))
