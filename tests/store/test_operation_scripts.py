"""What the scripts of operations do to jobs: compared and counted in one call."""

from __future__ import annotations

import redis

from fusion.store.write.broker import Broker
from fusion.store.write.operation_broker import MOST_ENDED, Move
from tests.kit.hands import Hand, fields_of, new, outcome, put, status_of
from tests.store.limits_hands import give
from tests.store.operation_hands import WAITING, begin, do, failed, figures, record


def test_each_job_is_done_and_counted_once(conn: redis.Redis) -> None:
    failed(conn, "a", "b", "c")
    put(Broker(conn), "q", "w")
    begin(conn, "o", "requeue")
    assert do(conn, "o", "requeue", "a", "b", "w", "nobody") == ["ok", "ok", "queued", "missing"]
    assert figures(conn, "o") == (2, 0, 0)
    assert do(conn, "o", "requeue", "a", "b", "c", nonce="other") == ["counted", "counted", "ok"], "another carrier's page"
    assert figures(conn, "o") == (3, 0, 0)
    assert {fields_of(conn, job)["requeued"] for job in "abc"} == {"1"}


def test_jobs_that_fail_after_the_cut_off_are_left_alone(conn: redis.Redis) -> None:
    failed(conn, "a")
    begin(conn, "o", "requeue")
    do(conn, "o", "requeue", "a")
    hand = Hand(Broker(conn), "q")
    assert hand.tell(hand.take(), "failed", reason="again") == "ok"
    failed(conn, "late")
    conn.hdel("rq:job:a", "operation")
    assert do(conn, "o", "requeue", "a", "late") == ["late", "late"]
    assert figures(conn, "o") == (1, 0, 0)
    assert {status_of(conn, job) for job in ("a", "late")} == {"failed"}
    begin(conn, "next", "requeue")
    assert do(conn, "next", "requeue", "a", "late") == ["ok", "ok"], "another operation takes them"


def test_refused_and_skipped_jobs_are_counted_once(conn: redis.Redis) -> None:
    failed(conn, "empty", "aside", "broken")
    conn.hdel("rq:job:empty", "data")
    Broker(conn).quarantine(["aside"], "why")
    conn.hset("rq:job:foreign", mapping={"status": "failed", "origin": "q", "success_callback_name": "", "ended_at": "2020"})
    conn.delete("rq:job:broken")
    conn.set("rq:job:broken", "no hash")
    begin(conn, "o", "requeue")
    for _ in range(2):
        do(conn, "o", "requeue", "empty", "aside", "foreign", "broken")
        assert figures(conn, "o") == (0, 2, 2)
    row = record(conn, "o")
    assert {name: row[f"example:{name}"] for name in ("corrupt", "quarantined", "foreign", "error")} == {
        "corrupt": "empty",
        "quarantined": "aside",
        "foreign": "foreign",
        "error": "broken",
    }
    assert "operation" not in fields_of(conn, "foreign"), "another program's record is not touched"
    assert conn.smembers("rq:operation:o:seen") == {b"foreign", b"broken"}


def test_stop_cancel_delete_and_quarantine_count_too(conn: redis.Redis) -> None:
    put(Broker(conn), "q", "a", "b", "c", "d")
    hand = Hand(Broker(conn), "q")
    running = hand.take()
    begin(conn, "s", "stop", f"{WAITING} started")
    assert do(conn, "s", "stop", running.id, "b") == ["pending", "stopped"]
    assert do(conn, "s", "stop", running.id, "b") == ["counted", "counted"]
    begin(conn, "c", "cancel", WAITING)
    assert do(conn, "c", "cancel", "c", running.id) == ["canceled", "started"]
    begin(conn, "d", "delete", f"{WAITING} stopped")
    assert do(conn, "d", "delete", "b", "d", "c") == ["kept", "kept", "canceled"]
    assert hand.tell(running, "failed", reason="r") == "ok"
    begin(conn, "q", "quarantine", "failed")
    assert do(conn, "q", "quarantine", running.id, reason="why") == ["ok"]
    assert [figures(conn, operation) for operation in "scdq"] == [(2, 0, 0), (1, 0, 0), (2, 0, 0), (1, 0, 0)]


def test_a_canceled_operation_does_nothing_more(conn: redis.Redis) -> None:
    failed(conn, "a", "b")
    begin(conn, "o", "requeue")
    do(conn, "o", "requeue", "a")
    broker = Broker(conn)
    assert broker.cancel_operation("o", "me") == "canceled"
    assert do(conn, "o", "requeue", "b") == ["over"]
    assert (broker.cancel_operation("o", "me"), broker.cancel_operation("x", "me")) == ("canceled", "missing")
    assert broker.advance_operation("o", 0, "s", "", 0, "r") == "stale"
    assert (figures(conn, "o"), status_of(conn, "b")) == ((1, 0, 0), "failed")


def test_the_cursor_is_compared_and_set(conn: redis.Redis) -> None:
    begin(conn, "o", "requeue")
    broker = Broker(conn)
    assert broker.advance_operation("o", 0, "a", "failed", 5, "run", skipped=2) == "ok"
    assert broker.advance_operation("o", 0, "b", "failed", 9, "run", skipped=2) == "stale", "another carrier of the same part"
    assert broker.advance_operation("o", 0, "a", "failed", 5, "run", skipped=2) == "ok", "a resend"
    assert (record(conn, "o")["cursor"], figures(conn, "o")) == ("5", (0, 2, 0))
    assert broker.advance_operation("o", 1, "c", "", 0, "run", over=True) == "done"
    assert broker.advance_operation("o", 1, "c", "", 0, "run", over=True) == "done"
    assert broker.cancel_operation("o") == "done"


def test_one_carrier_at_a_time(conn: redis.Redis) -> None:
    begin(conn, "o", "requeue")
    broker = Broker(conn)
    assert broker.lease_operation("o", "a", 60)[0] == "running"
    assert broker.lease_operation("o", "b", 60) == ("busy", {"carrier": "a"})
    assert broker.lease_operation("o", "a", 0)[0] == "running"
    assert broker.lease_operation("o", "b", 0.001)[1]["action"] == "requeue"
    broker.cancel_operation("o")
    assert (broker.lease_operation("o", "b", 60)[0], broker.lease_operation("x", "b", 60)[0]) == ("canceled", "missing")


def test_old_operations_make_room(conn: redis.Redis) -> None:
    conn.zadd("rq:operations", {f"old{i}": 10**12 * 9 + i for i in range(MOST_ENDED + 3)})
    conn.hset("rq:operation:old0", "status", "done")
    begin(conn, "o", "requeue")
    assert conn.zcard("rq:operations") == MOST_ENDED + 1
    assert not conn.exists("rq:operation:old0")
    for i in range(99):
        begin(conn, f"o{i}", "requeue")
    assert Broker(conn).open_operation("more", {"action": "requeue"}) == (False, "100")


# -- reprioritise


def _order(conn: redis.Redis, queue: str = "q") -> list[str]:
    return [job.decode() for job in conn.zrange(f"rq:queue:{queue}", 0, -1, desc=True)]


def test_another_priority_wherever_a_job_waits(conn: redis.Redis) -> None:
    broker = Broker(conn)
    put(broker, "q", "a", "b", "c")
    put(broker, "q", "high", priority=2)
    broker.enqueue("q", [new("later", delay=60.0), new("apart", ties="h")], "n")
    jobs = ["c", "b", "later", "apart", "nobody"]
    assert broker.reprioritise([Move(job) for job in jobs], 2) == ["ok", "ok", "ok", "ok", "missing"]
    assert _order(conn) == ["b", "c", "high", "a"], "as they came"
    assert {fields_of(conn, job)["priority"] for job in ("b", "c", "later", "apart")} == {"2"}
    assert conn.hgetall("rq:totals:q") == {b"enqueued:1": b"1", b"enqueued:2": b"5"}
    conn.zadd("rq:scheduler:scheduled_jobs", {"later": 1})
    broker.promote()
    assert _order(conn) == ["b", "c", "high", "later", "a"]
    assert broker.reprioritise([Move("b"), Move("high")], 0) == ["ok", "ok"]
    assert _order(conn) == ["c", "later", "a", "b", "high"]
    hand = Hand(broker, "q")
    while jobs_left := hand.claim(5):
        hand.turn(*(outcome(claimed) for claimed in jobs_left))
    totals = {name.decode(): int(value) for name, value in conn.hgetall("rq:totals:q").items()}
    assert {name: totals[f"enqueued:{name}"] - totals.get(f"completed:{name}", 0) for name in "012"} == {"0": 0, "1": 0, "2": 1}


def test_jobs_that_do_not_wait_are_refused(conn: redis.Redis) -> None:
    broker = Broker(conn)
    failed(conn, "f")
    put(broker, "q", "r")
    Hand(broker, "q").take()
    put(broker, "scheduler", "l")
    conn.hset("rq:job:foreign", mapping={"status": "queued", "origin": "q"})
    moves = [Move(job) for job in ("f", "r", "l", "foreign")]
    assert broker.reprioritise(moves, 2) == ["failed", "started", "list", "foreign"]


def test_a_signature_is_compared_and_set(conn: redis.Redis) -> None:
    broker = Broker(conn)
    broker.enqueue("q", [new("a", signature="old"), new("b")], "n")
    assert broker.reprioritise([Move("a", "older", "new"), Move("b", "", "!keyless")], 2) == ["altered", "keyless"]
    assert broker.reprioritise([Move("a", "old", "new")], 2) == ["ok"]
    assert (fields_of(conn, "a")["signature"], fields_of(conn, "a")["priority"]) == ("new", "2")
    assert "priority" not in fields_of(conn, "b") or fields_of(conn, "b")["priority"] == "1"


def test_jobs_of_a_concurrency_key_change_places(conn: redis.Redis) -> None:
    broker = Broker(conn)
    give(broker, "q", "a", "b", "c")
    assert [status_of(conn, job) for job in "abc"] == ["queued", "blocked", "blocked"]
    assert broker.reprioritise([Move("c")], 2) == ["ok"]
    assert [status_of(conn, job) for job in "abc"] == ["blocked", "blocked", "queued"], "the better one has the slot"
    assert broker.reprioritise([Move("c")], 0) == ["ok"]
    assert [status_of(conn, job) for job in "abc"] == ["queued", "blocked", "blocked"]


def test_fair_turns_keep_their_order(conn: redis.Redis) -> None:
    broker = Broker(conn)
    broker.enqueue("q", [new(f"{key}{i}", fair_key=key) for key in "xy" for i in range(3)], "n")
    assert [job[1] for job in _order(conn)] == [*"001122"], "they take turns"
    broker.reprioritise([Move(job) for job in ("x2", "x0", "x1")], 2)
    assert _order(conn)[:3] == ["x0", "x1", "x2"]
    broker.enqueue("q", [new("x3", priority=2, fair_key="x")], "m")
    assert _order(conn)[:4] == ["x0", "x1", "x2", "x3"], "who comes later of the key stays behind"


def test_a_better_priority_rings(conn: redis.Redis) -> None:
    broker = Broker(conn)
    put(broker, "q", "a")
    conn.delete("rq:wake:q", "rq:wake:q:high")
    broker.reprioritise([Move("a")], 2)
    assert (conn.llen("rq:wake:q"), conn.llen("rq:wake:q:high")) == (1, 1)
