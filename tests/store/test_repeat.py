"""A job that is repeated: the script that commits a run which finished also writes down the next one, once."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import redis

from fusion.store.layout.records import Claimed, TurnRequest
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import Hand, events_of, everything, fields_of, ids, new, now_ms, outcome, promote_all, put, status_of
from tests.store.batch_hands import batch_faults, begin, counts
from tests.store.kin_hands import child, give, of_kin, settle
from tests.store.limits_hands import holders, tied, waiting

LEFT = {"repeats_left": "1", "repeat_intervals": "[0]"}


def _events(conn: redis.Redis, job_id: str) -> list[str]:
    return [event["event"] for event in events_of(conn) if event["job_id"] == job_id]


def _totals(conn: redis.Redis, queue: str = "q") -> dict[str, int]:
    return {name.decode(): int(count) for name, count in conn.hgetall(f"rq:totals:{queue}").items()}


def _commit(hand: Hand, held: Claimed, delay: float = 0.0, **more: str) -> str:
    return hand.tell(held, "repeat", delay=delay, fields={"result": "1", **LEFT, **more})


def test_the_next_run_waits_behind_others_in_the_call_that_commits_this_one(
    broker: Broker, conn: redis.Redis, hand: Hand
) -> None:
    put(broker, "q", "a", "b", ties="r")
    held = hand.take()
    assert _commit(hand, held) == "ok"
    assert check_conservation(conn, ["a", "b"]) == {"a": "queued", "b": "queued"}
    assert ids(hand.claim(2)) == ["b", "a"]
    found = fields_of(conn, "a")
    assert (found["result"], found["repeats_left"], found["deliveries"]) == ("1", "1", "2")
    assert _events(conn, "a") == ["queued", "processing", "completed", "queued", "processing"]
    assert _totals(conn) == {"enqueued:1": 2, "completed:1": 1, "requeued:1": 1}
    assert conn.hget(f"rq:worker:{hand.name}", "successful_job_count") == b"1"
    assert [json.loads(line)["outcome"] for line in found["history"].splitlines()] == ["finished"]


def test_with_an_interval_it_waits_for_its_time(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b", ties="r")
    held, before = hand.take(), now_ms(conn)
    _commit(hand, held, 30.0)
    after = now_ms(conn)
    assert check_conservation(conn, ["a"]) == {"a": "scheduled"}
    due = conn.zscore("rq:scheduler:scheduled_jobs", "a")
    assert due is not None and before + 30_000 <= round(due * 1000) <= after + 30_000
    promote_all(broker, conn)
    assert ids(hand.claim(2)) == ["b", "a"]


@pytest.mark.parametrize("delay", [0.0, 30.0])
def test_a_resent_commit_repeats_nothing_twice(broker: Broker, conn: redis.Redis, hand: Hand, delay: float) -> None:
    put(broker, "q", "a", ties="r")
    told = outcome(hand.take(), "repeat", delay=delay, fields={"result": "1", **LEFT})
    assert hand.turn(told).answers == ["ok"]
    before = everything(conn)
    assert hand.turn(told, token=hand.token).answers == ["ok"]
    assert everything(conn) == before
    assert hand.turn(told).answers == ["ok"], "offered again, under another token: it stands"
    assert _events(conn, "a").count("completed") == 1 and _totals(conn)["requeued:1"] == 1
    promote_all(broker, conn)
    hand.take()
    assert hand.turn(told).answers == ["stale"], "the next run has begun"
    assert status_of(conn, "a") == "started" and _totals(conn)["completed:1"] == 1


@pytest.mark.parametrize("wish", ["cancel", "stop"])
def test_whoever_calls_it_off_while_it_runs_ends_its_repeats(broker: Broker, conn: redis.Redis, hand: Hand, wish: str) -> None:
    put(broker, "q", "a", ties="r")
    held = hand.take()
    getattr(broker, wish)("a")
    assert _commit(hand, held) == "ok"
    assert check_conservation(conn, ["a"]) == {"a": "finished"}
    assert "cancel" not in fields_of(conn, "a") and _totals(conn) == {"enqueued:1": 1, "completed:1": 1}


@pytest.mark.parametrize("delay", [0.0, 30.0])
@pytest.mark.parametrize(
    ("end", "status"),
    [
        (lambda broker: broker.cancel("a"), "canceled"),
        (lambda broker: broker.stop("a"), "stopped"),
        (lambda broker: broker.delete(["a"]), None),
    ],
)
def test_between_two_runs_it_can_be_called_off(
    broker: Broker, conn: redis.Redis, hand: Hand, end: Callable[[Broker], object], status: str | None, delay: float
) -> None:
    put(broker, "q", "a", ties="r")
    _commit(hand, hand.take(), delay)
    end(broker)
    if status:
        assert check_conservation(conn, ["a"]) == {"a": status}
    promote_all(broker, conn)
    assert hand.claim() == []


@pytest.mark.parametrize("delay", [0.0, 30.0])
def test_it_gives_up_the_slot_of_its_key_to_those_who_wait(broker: Broker, conn: redis.Redis, hand: Hand, delay: float) -> None:
    broker.enqueue("q", [tied("a", ties="kr"), tied("b", ties="kr")], "n")
    _commit(hand, hand.take(), delay)
    assert holders(conn) == ["b"] and status_of(conn, "a") == ("scheduled" if delay else "blocked")
    assert hand.tell(hand.take()) == "ok"
    promote_all(broker, conn)
    assert holders(conn) == ["a"] and waiting(conn) == []
    assert hand.tell(hand.take()) == "ok" and holders(conn) == []


def test_the_job_behind_it_in_its_process_has_its_slot(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    broker.enqueue("q", [tied("a", ties="kr"), tied("b")], "n")
    first, behind = hand.turn(slots=[0, 0], ahead=1).jobs
    assert (first.id, behind.id) == ("a", "b")
    _commit(hand, first)
    assert holders(conn) == ["b"] and waiting(conn) == ["a"]
    assert hand.tell(behind) == "ok" and holders(conn) == ["a"]


def test_a_unique_key_is_held_until_the_last_run_has_ended(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    unique = {"ties": "ur", "unique_key": "u", "unique_until": "end", "on_duplicate": "raise"}
    broker.enqueue("q", [new("a", **unique)], "n")
    _commit(hand, hand.take())
    assert conn.get("rq:unique:u") == b"a"
    hand.tell(hand.take())
    assert conn.get("rq:unique:u") is None


def test_a_batch_waits_for_the_last_run(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    begin(broker, "x")
    broker.enqueue("q", [new("a", ties="br", batch="x")], "n")
    broker.close_batch("x")
    _commit(hand, hand.take())
    assert counts(conn, "x") == {"members": 1, "open": 1} and batch_faults(conn) == []
    hand.tell(hand.take())
    assert counts(conn, "x") == {"members": 1, "finished": 1} and batch_faults(conn) == []


def test_its_children_wait_for_the_first_run_that_finishes(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", ties="r")
    give(broker, "r", child("b", "a"), child("c", "a", ties="pr"))
    _commit(hand, hand.take(), 30.0)
    give(broker, "r", child("d", "a"))  # after it
    settle(broker)
    assert check_conservation(conn, "abc") == {"a": "scheduled", "b": "queued", "c": "queued"}
    assert ids(hand.claim(2, queues=["r"]))[:2] == ["b", "c"]


def test_its_children_do_not_fail_with_an_end_that_comes_at_once(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", ties="r")
    give(broker, "r", child("b", "a"))
    _commit(hand, hand.take(), 30.0)
    broker.cancel("a")
    settle(broker)
    assert check_conservation(conn, "ab") == {"a": "canceled", "b": "queued"}
    hand.tell(hand.take("r"))
    settle(broker)
    assert of_kin(conn) == set()


def test_a_ttl_counts_anew_for_each_run(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", ties="r", ttl=40)
    conn.hset("rq:job:a", "ttl", 40)
    held, before = hand.take(), now_ms(conn)
    _commit(hand, held, 600.0)
    expires = int(fields_of(conn, "a")["expires_at"])
    assert before + 640_000 <= expires <= now_ms(conn) + 640_000
    assert conn.zscore("rq:expiring", "a") == expires


def test_what_the_last_run_left_is_gone(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """A retry before it finished left its error; the run itself a cursor, and an error of its callback."""
    put(broker, "q", "a", ties="r")
    hand.tell(hand.take(), "retry", delay=0, reason="ValueError: no", fields={"exc_info": "no", "error_class": "ValueError"})
    _commit(hand, hand.take(), callback_error="on_success raised: ValueError: no", cursor="7")
    found = fields_of(conn, "a")
    assert not found.keys() & {"exc_info", "error_class", "reason", "cursor", "progress", "held_since"}
    assert (found["attempts"], found["callback_error"][:10]) == ("1", "on_success")
    hand.take()
    assert "callback_error" not in fields_of(conn, "a")


def test_a_result_that_is_not_kept(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", ties="r", result_ttl=0)
    _commit(hand, hand.take())
    found = fields_of(conn, "a")
    assert "result" not in found and found["result_once"] == "1"


def test_urls_hear_of_each_run_that_finished(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    broker.enqueue("q", [new("a", ties="r", hooks=1, success_task_handler="http://example.com/")], "n")
    _commit(hand, hand.take())
    assert conn.zcard("rq:queue:_callbacks") == 1
    hand.tell(hand.take())
    assert conn.zcard("rq:queue:_callbacks") == 2


def test_a_worker_that_dies_between_two_runs_loses_nothing(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """The turn that commits a run claims the next one, and its answer is never read."""
    put(broker, "q", "a", ties="r")
    told = outcome(hand.take(), "repeat", fields={"result": "1", **LEFT})
    hand.turn(told, slots=[0])
    assert status_of(conn, "a") == "started"
    other = Hand(broker, "q", name="host.2")
    broker.prune(hand.lease, hand.name, incarnation=hand.incarnation)
    (again,) = other.claim()
    assert (again.id, fields_of(conn, "a")["repeats_left"]) == ("a", "1")
    check_conservation(conn, ["a"])


def test_a_broken_queue_puts_the_next_run_off(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", ties="r")
    held = hand.take()
    conn.set("rq:queue:q", "broken")
    request = TurnRequest(hand.name, hand.incarnation, 50, [outcome(held, "repeat", fields=LEFT)], ["q"], [], hand.lease, 420)
    assert broker.turn(request).answers == ["ok"]
    assert status_of(conn, "a") == "scheduled" and conn.zscore("rq:scheduler:scheduled_jobs", "a")
    conn.delete("rq:queue:q")
    broker.promote()
    assert check_conservation(conn, ["a"]) == {"a": "queued"}
