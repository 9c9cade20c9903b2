"""What running jobs say of themselves: under the fence of their execution, and with what it means for losses."""

from __future__ import annotations

import redis

from fusion.store.layout.records import Report
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, events_of, fields_of, put


def test_only_the_execution_that_holds_the_job_says_something(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    a, _ = hand.claim(2)
    reports = [
        Report("a", a.execution_id, b'{"done":1}', b"5", "1 of 2"),
        Report("b", a.execution_id, b'{"done":1}', b"5", "1 of 2"),
        Report("gone", "x:1:1", b'{"done":1}', b"5", "1 of 2"),
    ]
    assert broker.report("host.1", reports) == ["ok", "stale", "stale"]
    assert (fields_of(conn, "a")["progress"], fields_of(conn, "a")["cursor"]) == ('{"done":1}', "5")
    assert not {"progress", "cursor"} & fields_of(conn, "b").keys()
    assert not conn.exists("rq:job:gone")
    told = [event for event in events_of(conn) if event["event"] == "progress"]
    assert [(event["job_id"], event["message"], event["worker"]) for event in told] == [("a", "1 of 2", "host.1")]
    numbers = [int(event["n"]) for event in events_of(conn)]
    assert numbers == list(range(1, len(numbers) + 1)), "without a gap"
    hand.tell(a)
    assert broker.report("host.1", reports[:1]) == ["stale"], "it has ended"


def test_a_report_changes_only_the_given_fields(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    a = hand.take()
    broker.report("w", [Report("a", a.execution_id, b"1", b"2")])
    broker.report("w", [Report("a", a.execution_id, b"3")])
    assert (fields_of(conn, "a")["progress"], fields_of(conn, "a")["cursor"]) == ("3", "2")
    broker.report("w", [Report("a", a.execution_id, cursor=b"4")])
    assert (fields_of(conn, "a")["progress"], fields_of(conn, "a")["cursor"]) == ("3", "4")
    assert not [event for event in events_of(conn) if event["event"] == "progress"], "nobody asked for an event"


def test_a_broken_key_stops_no_other(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    a, b = hand.claim(2)
    conn.delete("rq:job:a")
    conn.set("rq:job:a", "junk")
    first, second = broker.report("w", [Report("a", a.execution_id, b"1", b"2"), Report("b", b.execution_id, b"1", b"2")])
    assert first.startswith("error: ") and "WRONGTYPE" in first
    assert second == "ok" and fields_of(conn, "b")["cursor"] == "2"


def test_a_cursor_that_moved_ends_the_count_of_losses(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    a = hand.take()
    conn.hset("rq:job:a", mapping={"lost": 3, "cursor": "5"})
    broker.report("w", [Report("a", a.execution_id, b"1", b"5")])
    assert fields_of(conn, "a")["lost"] == "3", "it did not move"
    broker.report("w", [Report("a", a.execution_id, b"1", b"6")])
    assert fields_of(conn, "a")["lost"] == "0"


def test_a_claim_brings_the_cursor(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    a = hand.take()
    assert b"cursor" not in a.fields
    broker.report("w", [Report("a", a.execution_id, cursor=b'"here"')])
    hand.tell(a, "release", reason="r")
    assert hand.take().fields[b"cursor"] == b'"here"'


def test_a_cursor_that_comes_with_a_loss_leaves_one_loss(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    a = hand.take()
    conn.hset("rq:job:a", "lost", 3)
    hand.tell(a, "lost", reason="r", fields={"cursor": "7"})
    assert (fields_of(conn, "a")["lost"], fields_of(conn, "a")["cursor"]) == ("1", "7")
    conn.hset("rq:job:a", "lost", 3)
    a = hand.take()
    hand.tell(a, "release", reason="r", fields={"cursor": "8"})
    assert (fields_of(conn, "a")["lost"], fields_of(conn, "a")["cursor"]) == ("0", "8")
    assert "attempts" not in fields_of(conn, "a")
