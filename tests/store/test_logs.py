"""The logs of jobs in Redis: each goes with its job, and all together never grow over their bound."""

from __future__ import annotations

import random
import time

import pytest
import redis

from fusion.store.layout.records import Claimed, RunLog
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, everything, new, now_ms, outcome, put

#: Bytes of all logs, and of one beside its lines.
MOST, OVERHEAD = 64 * 1024 * 1024, 400


def of(claimed: Claimed, lines: str = "1 a line", **more: int) -> RunLog:
    return RunLog(claimed.id, claimed.execution_id, lines=lines, **more)


def log_of(conn: redis.Redis, job_id: str) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in conn.hgetall(f"rq:log:{job_id}").items()}


def sound(conn: redis.Redis) -> set[str]:
    """Index, sizes and logs agree. Returns whose logs there are."""
    logs = {key.decode().removeprefix("rq:log:"): conn.hstrlen(key, "lines") for key in conn.scan_iter("rq:log:*", count=1000)}
    sizes = {name.decode(): int(size) for name, size in conn.hgetall("rq:logs:sizes").items()}
    assert sizes.pop("*", 0) == sum(sizes.values()) <= MOST
    assert sizes == {job_id: size + OVERHEAD for job_id, size in logs.items()}
    assert {raw.decode() for raw in conn.zrange("rq:logs", 0, -1)} == set(logs)
    return set(logs)


def test_a_log_is_of_the_run_that_holds_the_job(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    first = hand.take("q")
    assert broker.write_logs([of(first, "1 one\n2 two", left_out=3), RunLog("none", "x", lines="1 a")]) == ["ok", "missing"]
    found = log_of(conn, "a")
    assert (found["lines"], found["left_out"], found["attempt"]) == ("1 one\n2 two", "3", "1")
    assert abs(int(found["at"]) - now_ms(conn)) < 60_000
    before = everything(conn)
    assert broker.write_logs([of(first, "1 one\n2 two", left_out=3)]) == ["ok"], "a resend"
    after = everything(conn)
    assert {k: v for k, v in after.items() if k not in ("rq:logs", "rq:log:a")} == {
        k: v for k, v in before.items() if k not in ("rq:logs", "rq:log:a")
    }
    hand.tell(first, "retry", reason="r", delay=0.0)
    second = hand.take("q")
    assert broker.write_logs([of(first, "1 late")]) == ["stale"]
    assert broker.write_logs([of(second, "3 again", attempt=2)]) == ["ok"]
    assert log_of(conn, "a")["lines"] == "3 again"
    assert broker.write_logs([of(second, "")]) == ["ok"], "it finished"
    assert sound(conn) == set()
    assert not conn.exists("rq:logs", "rq:logs:sizes")


def test_a_lost_run_can_still_write_until_another_begins(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take("q")
    hand.tell(claimed, "lost", reason="r")
    assert broker.write_logs([of(claimed, "1 last words")]) == ["ok"]
    assert log_of(conn, "a")["lines"] == "1 last words"


def test_it_lasts_as_long_as_the_record(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a")
    claimed = hand.take("q")
    broker.write_logs([of(claimed)])
    assert conn.pttl("rq:log:a") == -1
    hand.tell(claimed, "failed", reason="r")
    broker.write_logs([of(claimed)])
    assert 0 <= conn.pttl("rq:log:a") - conn.pttl("rq:job:a") + 60_000 <= 120_000


@pytest.mark.parametrize("way", ["delete", "trash", "over", "empty"])
def test_it_goes_with_its_job(way: str, broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    one, other = hand.claim(2)
    broker.write_logs([of(one), of(other)])
    if way == "empty":
        hand.tell(one, "retry", reason="r", delay=0.0)
        broker.empty("q")
    else:
        hand.tell(one, "failed", reason="r")
    if way == "delete":
        broker.delete(["a"])
    elif way == "trash":
        assert broker.delete_to_trash(["a"]) == ["kept"]
    elif way == "over":
        conn.zadd("rq:queue:failed", {"a": 1.5})
        broker.clean()
    assert sound(conn) == {"b"}


def test_cleaning_finds_logs_that_nobody_dropped(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    """Of a job that failed first, and then finished without a line; and of one whose record somebody deleted."""
    for job_id in ("finished", "kept", "gone", "failed"):
        broker.enqueue("q", [new(job_id, **({"keep_logs": "1"} if job_id == "kept" else {}))], job_id)
    for claimed in hand.claim(4):
        broker.write_logs([of(claimed)])
        hand.tell(claimed, "failed" if claimed.id == "failed" else "finished")
    conn.delete("rq:job:gone")
    broker.clean()
    assert sound(conn) == {"kept", "failed"}


def test_without_any_log_cleaning_asks_once(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    for claimed in hand.claim(2):
        hand.tell(claimed)
    conn.zadd("rq:finished:q", {"a": 1.5, "b": 1.5})
    with getattr(conn, "admin", conn).monitor() as monitor:
        broker.clean()
        conn.echo("end")
        asked = []
        for said in monitor.listen():
            if said["command"].startswith("ECHO"):
                break
            asked.append(said["command"])
    assert [command for command in asked if "log" in command and not command.startswith("EVAL")] == ["EXISTS rq:logs"]


@pytest.mark.long
@pytest.mark.gate
@pytest.mark.timeout(300)
def test_all_together_stay_under_their_bound_and_the_oldest_go_first(broker: Broker, conn: redis.Redis) -> None:
    chance, order = random.Random(7), list[str]()
    text = "1 " + "x" * 8190
    for first in range(0, 10_500, 150):
        names = [f"j{n}" for n in range(first, first + 150)]
        broker.enqueue("q", [new(name) for name in names], names[0])
        logs = [RunLog(name, "", lines=text[: chance.choice((20, *[8192] * 7))]) for name in names]
        if order:
            logs.append(RunLog(order[-1], "", lines="1 shorter now"))
        assert set(broker.write_logs(logs)) == {"ok"}
        order += names
        assert int(conn.hget("rq:logs:sizes", "*")) <= MOST
    left = sound(conn)
    dropped = int(conn.hget("rq:dropped", "logs"))
    assert dropped > 0 and len(left) + dropped == len(order)
    newest = set(order[-len(left) :])
    assert len(newest - left) <= 60, "those go that were written to longest ago"
    used = sum(conn.memory_usage(f"rq:log:{name}") for name in [*left][:500]) / 500 * len(left)
    assert used + conn.memory_usage("rq:logs", samples=0) + conn.memory_usage("rq:logs:sizes", samples=0) < 1.35 * MOST
    broker.delete(order[-50:])
    assert sound(conn) == left - set(order[-50:])


def test_a_broken_key_harms_no_other(broker: Broker, conn: redis.Redis, hand: Hand) -> None:
    put(broker, "q", "a", "b")
    one, other = hand.claim(2)
    conn.set("rq:log:a", "no hash")
    answers = broker.write_logs([of(one), of(other)])
    assert answers[0].startswith("error: ") and answers[1] == "ok"
    assert log_of(conn, "b")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_their_memory_stays_under_its_bound_for_a_minute_of_a_thousand_jobs_a_second(conn: redis.Redis) -> None:
    """60,000 jobs that fail, each with as many lines as are kept, at 1,000 a second where the machine can. What Redis uses for all logs is
    looked at ten times: the bytes of the lines are bounded, and the allocator adds less than a third."""
    broker = Broker(conn, FleetConstants(failed_max=100_000))
    hand, rng, began, count = Hand(broker, "q"), random.Random(1), time.monotonic(), 0
    peak = 0
    for second in range(60):
        put(broker, "q", *(f"j{count + n}" for n in range(1000)))
        for _ in range(20):
            held = hand.claim(50)
            text = rng.randbytes(4096).hex()  # 8 KiB
            assert broker.write_logs([of(one, f"1 {text}") for one in held]) == ["ok"] * 50
            assert set(hand.turn(*(outcome(one, "failed", reason="r") for one in held)).answers) == {"ok"}
        count += 1000
        assert int(conn.hget("rq:logs:sizes", "*") or 0) <= MOST
        if second % 6 == 5:
            sizes = [int(conn.memory_usage(f"rq:log:{raw.decode()}") or 0) for raw in conn.zrange("rq:logs", -200, -1)]
            indexes = sum(int(conn.memory_usage(key, samples=0) or 0) for key in ("rq:logs", "rq:logs:sizes"))
            peak = max(peak, conn.zcard("rq:logs") * max(sizes) + indexes)
        time.sleep(max(0.0, began + second + 1 - time.monotonic()))
    took = time.monotonic() - began
    print(f"{count} jobs in {took:.0f} s, {conn.zcard('rq:logs')} logs, at most {peak / 2**20:.1f} MiB")
    assert peak < MOST * 4 / 3
    sound(conn)
