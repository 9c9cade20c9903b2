"""What a sink gets of a job beyond the stream: masked as the settings say, and gone without harm when the job is."""

from __future__ import annotations

import json
import pickle
import zlib

import pytest
import redis

from fusion import Job
from fusion.events.event import JobEvent
from fusion.kernel.compression import compressed
from fusion.store.stream import details as event_details
from fusion.store.write.broker import Broker
from fusion.store.write.event_broker import EventBroker
from tests.events.hands import reader
from tests.kit.hands import Hand, new, put

SECRET = "S3CR3T-4711-canary"
DATA = json.dumps(["tasks.sms.sendSMS", None, ["hi", 4711], {"api_key": SECRET, "otp": "123456"}]).encode()


def _events(events: EventBroker, payload: str = "masked") -> dict[str, JobEvent]:
    """The newest of each kind."""
    return {delivery.event.event: delivery.event for delivery in reader(events, payload=payload).read(500, 0)}


@pytest.fixture
def hand(conn: redis.Redis, broker: Broker) -> Hand:
    """With a job that has a secret in its arguments and will have one in its result."""
    broker.enqueue("sms", [new("j", 2, data=DATA, log_tag="SMS_OTP", description=SECRET)], "n")
    hand = Hand(broker, "sms", name="web1.4711")
    conn.hset("rq:worker:web1.4711", "hostname", "web1.example.com")
    return hand


def test_a_finished_job(hand: Hand, events: EventBroker) -> None:
    hand.tell(hand.take(), elapsed=0.25, fields={"result": json.dumps({"token": SECRET, "ok": True})})
    found = _events(events)
    done = found["completed"]
    assert (done.job_id, done.queue, done.log_tag, done.task, done.task_type) == ("j", "sms", "SMS_OTP", "SMS", "OTP")
    assert (done.func_name, done.worker, done.host, done.priority) == ("tasks.sms.sendSMS", "web1.4711", "web1.example.com", 2)
    assert (done.elapsed, done.message, done.attempts, done.delay) == (0.25, "completed in 0.250 s", None, None)
    assert SECRET not in repr(found)
    assert "123456" not in repr(found)
    assert json.loads(done.payload) == json.loads(found["queued"].payload) != {}
    assert set(json.loads(done.result)) == {"token", "ok"}
    assert found["queued"].result == ""
    assert (found["queued"].message, found["processing"].message) == ("queued to sms", "processing by web1.4711")


@pytest.mark.parametrize("payload", ["masked", "full", "off"])
@pytest.mark.parametrize("size", [3, 700])
def test_events_are_alike_in_both_layouts(
    broker: Broker, conn: redis.Redis, events: EventBroker, payload: str, size: int
) -> None:
    data = json.dumps(["tasks.sms.sendSMS", None, ["x " * size], {"api_key": SECRET}], separators=(",", ":")).encode()
    result = json.dumps({"token": SECRET, "said": "y " * size}).encode()
    broker.enqueue("q", [new("compact", data=data), new("full", data=data, timeout=None)], "n")
    raw = conn.hmget("rq:job:compact", "func", "data")
    assert (raw[0], raw[1][:1]) == (b"tasks.sms.sendSMS", b"x" if size > 500 else b"[")
    assert conn.hget("rq:job:full", "data") == data
    for claimed, stored in zip((hand := Hand(broker, "q")).claim(2), (compressed(result), result), strict=True):
        hand.tell(claimed, fields={"result": stored})
    found = {d.event.job_id: d.event for d in reader(events, payload=payload).read(500, 0) if d.event.event == "completed"}
    one, two = found["compact"], found["full"]
    assert (one.func_name, one.payload, one.result, one.priority) == (two.func_name, two.payload, two.result, two.priority)
    assert (one.func_name, one.priority) == ("tasks.sms.sendSMS", 1)
    assert (SECRET in repr(one)) is (payload == "full")


def test_a_decompression_bomb_is_reported_as_unreadable(broker: Broker, conn: redis.Redis, events: EventBroker) -> None:
    put(broker, "q", "a")
    conn.hset("rq:job:a", "data", zlib.compress(b"[" * 50_000_000))
    for payload in ("masked", "full"):
        (found,) = (d.event for d in reader(events, sink=payload, payload=payload).read(9, 0))
        assert found.payload == "[unreadable]"


def test_the_result_of_a_job_without_a_ttl_is_in_its_event(
    broker: Broker, conn: redis.Redis, events: EventBroker, hand: Hand
) -> None:
    put(broker, "sms", "unkept", data=DATA, result_ttl=0)
    put(broker, "sms", "large", data=DATA, result_ttl=0)
    for text in (json.dumps({"token": SECRET, "sent": True}), json.dumps("x" * 9_000_000)):
        claimed = hand.take()
        while claimed.id == "j":
            hand.tell(claimed)
            claimed = hand.take()
        hand.tell(claimed, fields={"result": text})
    found = {d.event.job_id: d.event for d in reader(events).read(500, 0) if d.event.event == "completed"}
    assert set(json.loads(found["unkept"].result)) == {"token", "sent"}
    assert SECRET not in repr(found)
    assert found["large"].result == "[9000002 bytes]"
    assert conn.hexists("rq:job:unkept", "result") is False
    assert Job.fetch("unkept", conn).result is None


def test_the_event_of_a_failed_job_has_class_and_place_but_no_text(hand: Hand, events: EventBroker, conn: redis.Redis) -> None:
    line = f"ValueError: bad token {SECRET}"
    where = {"error_class": "builtins.ValueError", "error_frame": "tasks.sms:sendSMS:12", "exc_info": f"Traceback {SECRET}"}
    hand.tell(hand.take(), "failed", reason=line, elapsed=1.5, fields=where)
    failed = _events(events)["failed"]
    assert failed.reason == failed.result == "builtins.ValueError at tasks.sms:sendSMS:12"
    assert (failed.message, failed.attempts, failed.elapsed) == (f"failed: {failed.reason}", 1, 1.5)
    assert SECRET not in repr(conn.xrange("rq:events"))
    assert conn.hget("rq:job:j", "reason") == line.encode(), "the job itself keeps it"


@pytest.mark.parametrize("kind", ["retry", "held"])
def test_neither_do_retries_and_held_back_jobs(hand: Hand, events: EventBroker, conn: redis.Redis, kind: str) -> None:
    hand.tell(hand.take(), kind, reason=f"app.errors.Odd: {SECRET}", delay=120.0)
    found = _events(events)[kind]
    assert found.reason == "app.errors.Odd"
    assert SECRET not in repr(conn.xrange("rq:events"))
    if kind == "retry":
        assert (found.delay, found.message) == (120.0, "retry in 120 s: app.errors.Odd")


def test_an_error_line_without_a_class(hand: Hand, conn: redis.Redis) -> None:
    hand.tell(hand.take(), "failed", reason=f"{SECRET} was not found")
    assert SECRET not in repr(conn.xrange("rq:events"))


def test_in_full_when_asked_for(hand: Hand, events: EventBroker) -> None:
    hand.tell(hand.take(), fields={"result": json.dumps(SECRET)})
    done = _events(events, "full")["completed"]
    assert json.loads(done.payload) == {"args": ["hi", 4711], "kwargs": {"api_key": SECRET, "otp": "123456"}}
    assert json.loads(done.result) == SECRET


def test_payload_off_redacts_arguments_and_results(hand: Hand, events: EventBroker) -> None:
    hand.tell(hand.take(), fields={"result": json.dumps(SECRET)})
    done = _events(events, "off")["completed"]
    assert (done.payload, done.result, done.func_name) == ("[redacted]", "[redacted]", "tasks.sms.sendSMS")


def test_a_job_that_is_gone(hand: Hand, events: EventBroker, conn: redis.Redis) -> None:
    hand.tell(hand.take())
    conn.delete("rq:job:j", "rq:worker:web1.4711")
    done = _events(events)["completed"]
    assert (done.payload, done.result, done.func_name, done.priority) == ("", "", "", None)
    assert (done.host, done.task, done.event) == ("web1", "SMS", "completed"), "a worker is called host.pid"


def test_a_key_that_is_no_job(hand: Hand, events: EventBroker, conn: redis.Redis) -> None:
    conn.delete("rq:job:j")
    conn.set("rq:job:j", "junk")
    assert _events(events)["queued"].payload == ""


@pytest.mark.parametrize("payload", ["masked", "full", "off"])
def test_a_pickle_is_never_loaded(conn: redis.Redis, broker: Broker, events: EventBroker, payload: str) -> None:
    raw = pickle.dumps(("tasks.sms.sendSMS", None, (SECRET,), {}))
    broker.enqueue("q", [new("p", data=raw, serializer="pickle")], "n")
    found = _events(events, payload)["queued"]
    assert found.payload in ("[pickled]", "[redacted]")
    assert SECRET not in repr(found)


@pytest.mark.parametrize("data", [b"", b"not json", b"\xff\xfe", b"[1]", b'["f", null, [], {}', b'"x"'])
@pytest.mark.parametrize("payload", ["masked", "full"])
def test_data_that_is_no_call(conn: redis.Redis, broker: Broker, events: EventBroker, data: bytes, payload: str) -> None:
    broker.enqueue("q", [new("odd", data=data)], "n")
    assert _events(events, payload)["queued"].job_id == "odd"


def test_large_jobs_are_read_some_at_a_time(
    conn: redis.Redis, broker: Broker, events: EventBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_details, "_HELD", 10_000)
    monkeypatch.setattr(event_details, "_LARGEST", 20_000)
    sizes = {"a": 100, "b": 9_000, "c": 5_000, "d": 15_000, "e": 30_000, "f": 10}
    for name, size in sizes.items():
        data = json.dumps(["tasks.sms.sendSMS", None, ["x" * size], {}])
        broker.enqueue("q", [new(name, data=data)], name)
    found = {delivery.event.job_id: delivery.event for delivery in reader(events, payload="full").read(500, 0)}
    assert {name for name, event in found.items() if len(event.payload) > sizes[name]} == {"a", "b", "c", "d", "f"}
    assert found["e"].payload == f"[{conn.hstrlen('rq:job:e', 'data')} bytes]"


def test_in_full_has_an_end(conn: redis.Redis, broker: Broker, events: EventBroker) -> None:
    broker.enqueue("q", [new("big", data=json.dumps(["t.f", None, ["x" * 300_000], {}]))], "n")
    assert len(_events(events, "full")["queued"].payload) < 70_000


def test_events_of_one_job_cost_one_look(conn: redis.Redis, broker: Broker, events: EventBroker) -> None:
    put(broker, "q", *(f"j{i}" for i in range(20)))
    hand = Hand(broker, "q")
    for claimed in hand.claim(20):
        hand.tell(claimed)
    found = reader(events)
    conn.config_resetstat()
    assert len(found.read(500, 0)) == 60
    stats = conn.info("commandstats")
    assert stats["cmdstat_hstrlen"]["calls"] == 40
    assert stats["cmdstat_hmget"]["calls"] <= 20 * 2 + 2, "two per job, and the reading itself"


def test_log_lines_of_programs_are_distinguished(conn: redis.Redis, events: EventBroker) -> None:
    fields = {"event": "completed", "job_id": "j", "queue": "q", "log_tag": "", "epoch": "1", "n": "1", "source": "log"}
    conn.xadd("rq:events", {**fields, "at_ms": "1000", "message": "sent", "worker": "w.1"})
    found = _events(events)["completed"]
    assert (found.source, found.message, found.at.timestamp()) == ("log", "sent", 1.0)
