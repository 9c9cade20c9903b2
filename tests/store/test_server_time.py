"""The server's clock decides alone."""

from __future__ import annotations

import time
from importlib import resources

import pytest
import redis

from fusion.store.write import broker as broker_module
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, ids, now_ms, put

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
    piece = (LUA / "include" / "lib" / "time.lua").read_text()
    assert conn.eval(f"{piece}\nreturn iso({seconds}, 7)", 0) == expected.encode()
    assert conn.eval(f"{piece}\nnow_s, now_us = {seconds}, 7\nreturn iso_before(0)", 0) == expected.encode()
    assert conn.eval(f"{piece}\nnow_s, now_us = {seconds + 90}, 6\nreturn iso_before(89999999)", 0) == expected.encode()
