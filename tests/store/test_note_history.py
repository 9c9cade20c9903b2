"""The most of an hour that the history of a function keeps: kept once, with the hours, in a bounded number of fields."""

from __future__ import annotations

from datetime import timedelta

import pytest
import redis

from fusion.store.layout.history import MOST_NAMES, OTHER, PEAK, SLOWEST
from fusion.store.read.inspector import Inspector
from fusion.store.read.totals import Step
from fusion.store.write.broker import Broker

NAME = "tasks.f"
#: More digits than Python reads a number of.
MUCH = "9" * 5000


def say(broker: Broker, number: int, *rows: tuple[int, str, int], name: str = NAME) -> None:
    broker.note_history("host.1", number, {("function", name): list(rows)})


def hours(conn: redis.Redis, name: str = NAME, count: int = 24) -> list[Step]:
    return Inspector(conn).histories("function", [name], count)[name]


def most(conn: redis.Redis, name: str = NAME) -> tuple[float | None, int | None]:
    found = hours(conn, name)
    slowest, peaks = (
        [one.slowest for one in found if one.slowest is not None],
        [one.peak for one in found if one.peak is not None],
    )
    return max(slowest, default=None), max(peaks, default=None)


def test_an_hour_keeps_the_most_of_each_figure(broker: Broker, conn: redis.Redis) -> None:
    say(broker, 1, (0, SLOWEST, 900), (0, PEAK, 5000))
    say(broker, 2, (0, SLOWEST, 1000), (0, PEAK, 10_000), (0, SLOWEST, 30))
    say(broker, 3, (0, SLOWEST, 999), (0, PEAK, 0))
    assert most(conn) == (1.0, 10_000)


def test_a_call_that_is_sent_again_changes_nothing_known_or_not(broker: Broker, conn: redis.Redis) -> None:
    """Redis may have forgotten the worker, and with it the number of the last call."""
    for known in (False, True):
        if known:
            broker.register("host.1", "i", 30, 420, {})
        for _ in range(3):
            say(broker, 1, (0, SLOWEST, 700), (0, PEAK, 4096))
        assert most(conn) == (0.7, 4096)


def test_each_hour_has_its_own_and_minutes_have_none(broker: Broker, conn: redis.Redis) -> None:
    say(broker, 1, (0, SLOWEST, 5), (60, SLOWEST, 7), (120, SLOWEST, 6))
    assert [one.slowest for one in hours(conn, count=3)] == [0.006, 0.007, 0.005]
    assert conn.keys("rq:history:minute:*") == []
    steps, touched = Inspector(conn).function_history(NAME, 3600)
    assert len(steps) == 60 and all(one.slowest is None for one in steps)
    assert [one.slowest for one in touched] == [0.007, 0.005]
    steps, touched = Inspector(conn).function_history(NAME, 7 * 86400)
    assert touched is steps and [one.slowest for one in steps if one.slowest] == [0.006, 0.007, 0.005]


def test_the_hours_of_a_function_are_those_into_which_the_time_reaches(conn: redis.Redis) -> None:
    """Whatever the minute: half an hour reaches into two hours in half of all minutes, and 90 minutes into three."""
    for minutes in (*range(1, 121), 1440):
        steps, touched = Inspector(conn).function_history(NAME, 60 * minutes)
        begins = steps[0].at - timedelta(minutes=1)
        assert touched[0].at <= begins < touched[0].at + timedelta(hours=1), minutes
        assert touched[-1].at <= steps[-1].at < touched[-1].at + timedelta(hours=1)


def test_they_go_with_the_hours_and_take_a_field_of_an_hour(broker: Broker, conn: redis.Redis) -> None:
    for number in range(1, 300):
        say(broker, number, (number % 180, SLOWEST, number), (number % 180, PEAK, number))
    keys = conn.keys(f"rq:history:hour:function:{NAME}:*")
    assert all(conn.ttl(key) == pytest.approx(31 * 86400, abs=30) for key in keys)
    assert sum(conn.hlen(key) for key in keys) in (2 * 3, 2 * 4), "two of each hour of three"


def test_functions_without_a_name_of_their_own_have_the_most_of_all(broker: Broker, conn: redis.Redis) -> None:
    for number in range(MOST_NAMES + 20):
        say(broker, number + 1, (0, SLOWEST, number), name=f"tasks.f{number}")
    names = Inspector(conn).history_names("function")
    assert len(names) == MOST_NAMES
    assert most(conn, OTHER)[0] == (MOST_NAMES + 19) / 1000
    assert conn.exists(*(f"rq:history:hour:function:tasks.f{MOST_NAMES}:{day}" for day in (int(conn.time()[0]) // 86400,))) == 0


def test_what_is_no_number_counts_as_nothing(broker: Broker, conn: redis.Redis) -> None:
    now = int(conn.time()[0]) // 3600
    key = f"rq:history:hour:function:{NAME}:{now // 24}"
    conn.hset(key, mapping={f"{now % 24}:slowest": "slow", f"{now % 24}:peak": "", f"{now % 24}:strange": "9", "x:peak": "9"})
    conn.hset(key, mapping=dict.fromkeys((f"{MUCH}:1:failed", f"{now % 24}:{MUCH}:failed", f"{now % 24}:1:r{MUCH}", MUCH), 1))
    conn.hset("rq:totals:q", mapping=dict.fromkeys((f"failed:{MUCH}", MUCH), 1))
    assert Inspector(conn).counters("q").by_priority == {}
    assert most(conn) == (0.0, 0)
    say(broker, 1, (0, SLOWEST, 5), (0, PEAK, 6))
    assert most(conn) == (0.005, 6)
