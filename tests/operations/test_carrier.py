"""Operations are carried on to the end, whoever is killed meanwhile: each job is changed and counted once."""

from __future__ import annotations

import signal
import threading
from functools import partial
from itertools import count, pairwise

import pytest
import redis

from fusion.operations import carrier as carrier_module
from fusion.operations.carrier import Carrier
from fusion.settings import Settings
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, new, outcome, put, status_of
from tests.kit.waiting import eventually
from tests.operations.hands import begin, carrier, carry_on, failed, start
from tests.store.operation_hands import figures, record

KEY = "k1:Zt7uQm2xW9cR4vB6nY1kL8pS3dF5gH0jA-eT_oIuXyq"


def requeued_once(conn: redis.Redis, ids: list[str]) -> bool:
    pipe = conn.pipeline(transaction=False)
    for job in ids:
        pipe.hget(f"rq:job:{job}", "requeued")
    return set(pipe.execute()) == {b"1"}


def test_all_that_match_and_nothing_else(conn: redis.Redis) -> None:
    ids = failed(conn, 250)
    others = failed(conn, 20, "other", "o")
    put(Broker(conn), "q", "w")
    operation = begin(conn, "requeue", "queue:q")
    late = failed(conn, 5, "q", "late")
    assert carry_on(conn, operation, page=60) == "done"
    assert figures(conn, operation) == (250, 0, 0)
    assert requeued_once(conn, ids)
    assert {status_of(conn, job) for job in others + late} == {"failed"}, "another queue's, and what came after the cut-off"
    assert record(conn, operation)["ended_at"]


def test_a_requeued_job_that_fails_again_is_not_taken_twice(conn: redis.Redis) -> None:
    failed(conn, 300)
    operation, one, hand = begin(conn, "requeue", "state:failed"), carrier(conn), Hand(Broker(conn), "q")
    while one.carry(operation, 0)[0] == "running":
        jobs = hand.claim(500)
        hand.turn(*(outcome(claimed, "failed", reason="again") for claimed in jobs))
    assert figures(conn, operation) == (300, 0, 0)
    assert conn.zcard("rq:queue:failed") + conn.zcard("rq:queue:q") == 300


@pytest.mark.parametrize(
    "point",
    [
        "requeue.before=kill@2",  # a part was read, and nothing done
        "requeue.after=kill@2",  # done, and the cursor not moved
        "advance_operation.before=kill@3",
        "advance_operation.after=kill@3",  # moved, and nobody heard of it
        "lease_operation.after=kill",
    ],
)
def test_a_carrier_may_be_killed_anywhere(conn: redis.Redis, redis_url: str, point: str) -> None:
    ids = failed(conn, 2000)
    conn.delete("rq:job:f7")
    conn.hset("rq:job:f7", mapping={"status": "failed", "origin": "q", "success_callback_name": "", "ended_at": "2020"})
    operation = begin(conn, "requeue", "state:failed")
    killed = start(redis_url, operation, failpoints=point)
    assert killed.wait(30) == -signal.SIGKILL
    late = failed(conn, 30, "q", "late")
    assert carry_on(conn, operation) == "done"
    assert figures(conn, operation) == (1999, 1, 0)
    assert requeued_once(conn, [job for job in ids if job != "f7"])
    assert {status_of(conn, job) for job in late} == {"failed"}


def test_one_whose_time_is_over_goes_on_amid_a_part(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small set comes as one part, however few jobs were asked for: a worker must not be kept from its own by all of them."""
    ids = failed(conn, 100)
    operation = begin(conn, "requeue", "tag:*a -tag:b* state:failed")
    for job in ids:
        conn.hset(f"rq:job:{job}", "log_tag", "a")
    monkeypatch.setattr(carrier_module, "monotonic", partial(next, count(0, 0.004)))
    one, other = (Carrier(conn, Settings(), name, part=0.01, lease=lease) for name, lease in (("one", 0.001), ("other", 9)))
    done = [0]
    while one.carry(operation, 0)[0] == "running" and done[-1] < 40:
        done.append(sum(figures(conn, operation)))
    assert 2 <= max(after - before for before, after in pairwise(done)) <= 4, "as many as there is time for"
    # On a fast machine the lease of the first is not over yet.
    state = eventually(lambda: (found := other.carry(operation, 0)[0]) != "busy" and found, why="the other one takes over")
    while state == "running":
        assert one.carry(operation, 0)[0] in ("busy", "done"), "it has begun the part again and is not to be disturbed"
        state = other.carry(operation, 0)[0]
    assert figures(conn, operation) == (100, 0, 0)
    assert requeued_once(conn, ids)


def test_two_carriers_at_once_do_no_harm(conn: redis.Redis) -> None:
    ids = failed(conn, 1500)
    operation = begin(conn, "requeue", "state:failed")
    # a lease of nothing keeps nobody away: all read the same parts, and send the same calls
    ones = [carrier(conn, name, page=50, lease=0.001) for name in "abc"]

    def run(n: int) -> None:
        while ones[n].carry(operation, 0)[0] in ("running", "busy"):
            pass

    threads = [threading.Thread(target=run, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert figures(conn, operation) == (1500, 0, 0)
    assert requeued_once(conn, ids)


def test_a_canceled_operation_stops_before_its_next_part(conn: redis.Redis) -> None:
    failed(conn, 400)
    operation, one = begin(conn, "delete", "state:failed"), carrier(conn)
    assert one.carry(operation, 0)[0] == "running"
    Broker(conn).cancel_operation(operation, "me")
    assert one.carry(operation, 9)[0] == "canceled"
    done, skipped, refused = figures(conn, operation)
    assert (skipped, refused) == (0, 0)
    assert 0 < done < 400
    assert conn.zcard("rq:queue:failed") == 400 - done


def test_another_server_has_other_cursors(conn: redis.Redis) -> None:
    ids = failed(conn, 600)
    operation, one = begin(conn, "requeue", "state:failed"), carrier(conn)
    one.carry(operation, 0)
    assert record(conn, operation)["cursor"] != "0"
    conn.hset(f"rq:operation:{operation}", mapping={"run_id": "another", "cursor": "12345"})
    assert carry_on(conn, operation) == "done"
    assert figures(conn, operation) == (600, 0, 0)
    assert requeued_once(conn, ids)


def test_jobs_wherever_they_wait(conn: redis.Redis) -> None:
    broker = Broker(conn)
    broker.enqueue("q", [new("apart", ties="h"), new("later", delay=60.0), new("now"), new("runs", priority=9)], "n")
    put(broker, "scheduler", "inbox")
    hand = Hand(broker, "q")
    running = hand.take()
    assert running.id == "runs"
    operation = begin(conn, "cancel", "queue:q,scheduler")
    assert carry_on(conn, operation) == "done"
    assert figures(conn, operation) == (3, 1, 0), "what stands in a LIST is left alone"
    assert [status_of(conn, job) for job in ("apart", "later", "now", "runs", "inbox")] == ["canceled"] * 3 + [
        "started",
        "queued",
    ]
    stop = begin(conn, "stop", "queue:q")
    assert carry_on(conn, stop) == "done"
    assert figures(conn, stop) == (1, 0, 0)
    assert conn.hget("rq:job:runs", "cancel") == b"stop"


def test_quarantined_jobs_are_left_out_unless_they_are_meant(conn: redis.Redis) -> None:
    failed(conn, 3)
    Broker(conn).quarantine(["f1"], "why")
    assert carry_on(conn, begin(conn, "requeue", "queue:q")) == "done"
    assert [status_of(conn, f"f{n}") for n in range(3)] == ["queued", "failed", "queued"]
    assert carry_on(conn, begin(conn, "requeue", "is:quarantined")) == "done"
    assert status_of(conn, "f1") == "queued"


def test_signed_jobs_get_another_priority_where_the_keys_are(conn: redis.Redis) -> None:
    from fusion.enqueue.build import sealed
    from fusion.kernel.signing import Keyring, as_claimed
    from fusion.settings import Settings

    settings, broker = Settings(secret_keys=(KEY,)), Broker(conn)
    broker.enqueue("q", sealed("q", [new("a"), new("b")], settings), "n")
    broker.enqueue("q", [new("plain")], "n")
    conn.hset("rq:job:b", "timeout", 9999)
    first = begin(conn, "reprioritise", "queue:q", priority="high")
    assert carry_on(conn, first) == "done"
    assert figures(conn, first) == (1, 0, 2)
    assert record(conn, first)["why:keyless"] == "2"
    again = begin(conn, "reprioritise", "queue:q", priority=2, keyed=True)
    assert carrier(conn).carry(again, 1)[0] == "keyless", "who has no keys leaves it to others"
    assert carry_on(conn, again, secret_keys=(KEY,)) == "done"
    assert figures(conn, again) == (2, 0, 1)
    assert record(conn, again)["example:flawed"] == "b"
    from fusion.store.read.inspector import Inspector

    fields = Inspector(conn).job("a")
    assert fields is not None
    assert Keyring((KEY,)).flaw("a", "q", as_claimed(fields)) == ""
    assert fields["priority"] == b"2"
