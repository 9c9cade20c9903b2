"""The server's clock decides alone."""

from __future__ import annotations

import time
from datetime import datetime
from importlib import resources

import pytest
import redis

from fusion import Queue
from fusion.store.scripting import minutes
from fusion.store.write import broker as broker_module
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, fields_of, ids, now_ms, outcome, put

LUA = resources.files("fusion.store") / "lua"


def test_times_are_the_servers(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """ADR 0007: a client whose clock is wrong changes nothing."""
    monkeypatch.setattr(time, "time", lambda: 0.0)
    broker = Broker(conn)
    put(broker, "q", "a", ttl=60)
    hand = Hand(broker, "q")
    assert ids(hand.claim()) == ["a"]
    assert conn.zscore("rq:wip:q", "a") > now_ms(conn)
    assert "time" not in vars(broker_module)


@pytest.mark.parametrize("ahead", [-3600, -60, 0, 60, 86400], ids="{} s ahead".format)
def test_a_minute_by_the_callers_clock(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch, ahead: int) -> None:
    """It saves the server some work if it is the server's too, and else changes nothing, in a job nor in its events."""
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() + ahead)
    broker, queue = Broker(conn), Queue("q", conn)
    before = now_ms(conn)
    queue.enqueue("tests.jobs.basic.noop", job_id="a")
    plain = [queue.enqueue("tests.jobs.basic.noop").id for _ in range(3)]  # by a template, from the second on
    hand = Hand(broker, "q")
    hand.turn(*[outcome(job, age=1e-3) for job in hand.claim(4)])
    for job_id in ("a", *plain):
        row = fields_of(conn, job_id)
        for name in ("created_at", "started_at", "ended_at"):
            at = datetime.fromisoformat(row[name]).timestamp() * 1000
            assert before - 2 <= at <= now_ms(conn), name


def test_a_script_believes_how_times_of_its_minute_begin(conn: redis.Redis) -> None:
    piece = (LUA / "include" / "lib" / "time.lua").read_text()
    told = "local MINUTE, MINUTE_TEXT = math.floor(redis.call('TIME')[1] / 60), 'told '\n"
    assert conn.eval(f"{told}{piece}\nreturn now_iso", 0).startswith(b"told ")


@pytest.mark.parametrize("seconds", [0, 951782399, 951782400, 1709210096, 1735689599, 4107542400])
def test_how_times_begin_is_what_a_script_writes(conn: redis.Redis, monkeypatch: pytest.MonkeyPatch, seconds: int) -> None:
    piece = "local MINUTE, MINUTE_TEXT\n" + (LUA / "include" / "lib" / "time.lua").read_text()
    monkeypatch.setattr(time, "time", lambda: float(seconds))
    number, text = minutes.minute()
    assert int(number) == seconds // 60
    assert conn.eval(f"{piece}\nreturn iso({seconds}, 7)", 0).startswith(text.encode())
    assert minutes.present().encoded == b"$%d\r\n%b\r\n$17\r\n%b\r\n" % (len(number), number.encode(), text.encode())


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "1970-01-01T00:00:00.000007Z"),
        (951782399, "2000-02-28T23:59:59.000007Z"),
        (951782400, "2000-02-29T00:00:00.000007Z"),
        (1709210096, "2024-02-29T12:34:56.000007Z"),
        (1735689599, "2024-12-31T23:59:59.000007Z"),
        (4107542400, "2100-03-01T00:00:00.000007Z"),
    ],
)
def test_iso_times_in_lua(conn: redis.Redis, seconds: int, expected: str) -> None:
    piece = "local MINUTE, MINUTE_TEXT\n" + (LUA / "include" / "lib" / "time.lua").read_text()
    assert conn.eval(f"{piece}\nreturn iso({seconds}, 7)", 0) == expected.encode()
    assert conn.eval(f"{piece}\nnow_s, now_us = {seconds}, 7\nreturn iso_before(0)", 0) == expected.encode()
    assert conn.eval(f"{piece}\nnow_s, now_us = {seconds + 90}, 6\nreturn iso_before(89999999)", 0) == expected.encode()
