"""The algorithm of rates, as the server runs it."""

from __future__ import annotations

import random
from pathlib import Path

import redis

from fusion.store.scripting import scripts

LUA = Path(scripts.__file__).parents[1] / "lua" / "include" / "lib" / "rate.lua"
#: ARGV: rate, tat, now, starts; {what may start, when one may, tat after them}.
ASK = (
    LUA.read_text()
    + """
local interval, burst = rate_of(ARGV[1])
if not interval then return 'none' end
local tat, now = tonumber(ARGV[2]), tonumber(ARGV[3])
local room, opens = rate_room(tat, now, interval, burst)
local after = rate_spend(tat, now, interval, burst, tonumber(ARGV[4]))
return { room, string.format('%.3f', opens), string.format('%.17g', after) }
"""
)
NOW = 1_800_000_000_000_000


class Rated:
    """One rate on a server, and a clock."""

    def __init__(self, connection: redis.Redis, rate: str) -> None:
        self.connection, self.rate, self.tat = connection, rate, "0"

    def look(self, now: float, starts: int = 0) -> tuple[int, float]:
        room, opens, after = self.connection.eval(ASK, 0, self.rate, self.tat, f"{now:.3f}", starts)
        if starts:
            self.tat = after.decode()
        return room, float(opens)


def test_a_burst_then_evenly(conn: redis.Redis) -> None:
    rated = Rated(conn, "10/1000/3")  # one in 100 ms
    assert rated.look(NOW) == (3, NOW)
    assert rated.look(NOW, 2) == (3, NOW)
    assert rated.look(NOW) == (1, NOW)
    rated.look(NOW, 1)
    assert rated.look(NOW) == (0, NOW + 100_000)
    assert rated.look(NOW + 99_999)[0] == 0
    assert rated.look(NOW + 100_000, 1)[0] == 1
    assert rated.look(NOW + 100_000) == (0, NOW + 200_000)
    assert rated.look(NOW + 10_000_000) == (3, NOW + 10_000_000), "no more than a burst is saved up"


def test_another_rate_and_a_clock_that_was_set_back(conn: redis.Redis) -> None:
    rated = Rated(conn, "1/3600000/1")
    rated.look(NOW, 1)
    assert rated.look(NOW) == (0, NOW + 3_600_000_000)
    assert rated.look(NOW - 86_400_000_000) == (0, NOW - 86_400_000_000 + 3_600_000_000), "an hour, not a day and an hour"
    rated.rate = "100/1000/5"
    assert rated.look(NOW) == (0, NOW + 10_000)


def test_never_more_than_the_rate_and_a_burst(conn: redis.Redis) -> None:
    chance = random.Random(7)
    for rate, interval, burst in (("7/1000/1", 1e6 / 7, 1), ("1000/60000/20", 60_000, 20), ("100000/1000/50", 10, 50)):
        rated, now, starts = Rated(conn, rate), float(NOW), list[float]()
        for _ in range(300):
            now += chance.choice((0, 0, interval / 3, interval, interval * burst * 2, 1))
            room, opens = rated.look(now)
            if room == 0:
                assert now < opens <= now + interval + 1
                now = opens + 1
                room, _ = rated.look(now)
                assert room >= 1, "when it says so it is open"
            take = chance.randint(1, room)
            rated.look(now, take)
            starts += [now] * take
        for i in range(len(starts)):
            for j in range(i, min(len(starts), i + 200)):
                assert j - i + 1 <= (starts[j] - starts[i]) / interval + burst + 0.1


def test_malformed_rates_are_ignored(conn: redis.Redis) -> None:
    for text in ("", "1/2", "0/1000/1", "1/0/1", "1/1000/0", "x"):
        assert conn.eval(ASK, 0, text, "0", str(NOW), 0) == b"none"
