"""Timers: what is due, in which order, and how long the loop may sleep. Nobody waits here: rounds are given their time."""

from __future__ import annotations

import logging
from math import inf

import pytest

from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.runtime.timers import Timer, Timers

LOG = logging.getLogger("timers")


class Part:
    """Something with a time of its own that notes when it was called."""

    def __init__(self, next_at: float, pause: float = inf, away: bool = False) -> None:
        self.next_at, self.pause, self.away = next_at, pause, away
        self.ticks: list[float] = []

    def tick(self, now: float) -> None:
        self.ticks.append(now)
        if self.away:
            raise RedisAway
        self.next_at = now + self.pause


def link(retry_at: float = 0.0) -> RedisLink:
    made = RedisLink(LOG)
    made.retry_at = retry_at
    return made


@pytest.mark.parametrize(
    ("seconds", "rounds", "ticks"),
    [
        (1.0, [0, 0.5, 1, 1.5, 2], [0, 1, 2]),
        (1.0, [0, 0.9, 5.0, 5.9, 6.0], [0, 5.0, 6.0]),
        (0.25, [10, 10.1, 10.25, 10.5], [10, 10.25, 10.5]),
        (60, [1, 2, 3, 60, 61, 62], [1, 61]),
    ],
)
def test_every(seconds: float, rounds: list[float], ticks: list[float]) -> None:
    timers, seen = Timers(), []
    timers.every(seconds, seen.append)
    for now in rounds:
        timers.tick(now)
    assert seen == ticks


@pytest.mark.parametrize(("when", "rounds", "ticks"), [(5, [1, 4.9, 5, 6], [5]), (0, [3, 4], [3]), (inf, [1, 1e9], [])])
def test_at_runs_once(when: float, rounds: list[float], ticks: list[float]) -> None:
    timers, seen = Timers(), []
    timers.at(when, seen.append)
    for now in rounds:
        timers.tick(now)
    assert (seen, timers.next_at) == (ticks, inf)


@pytest.mark.parametrize("moved", [0.0, 3.0, 7.0])
def test_a_timer_can_be_moved(moved: float) -> None:
    timers, seen = Timers(), []
    timer = timers.at(inf, seen.append)
    timers.tick(1)
    timer.next_at = moved
    assert timers.next_at == moved
    timers.tick(moved)
    timers.tick(moved + 1)
    assert seen == [moved]


@pytest.mark.parametrize(
    ("parts", "retry_at", "expected"),
    [
        ([], 0, inf),
        ([(5, False)], 0, 5),
        ([(5, False), (3, False)], 0, 3),
        ([(inf, False), (inf, True)], 9, inf),
        ([(3, True)], 0, 3),
        ([(3, True)], 8, 8),
        ([(3, True), (5, False)], 8, 5),
        ([(3, True), (9, False)], 8, 8),
        ([(0, True), (0, True)], 2, 2),
        ([(10, True)], 2, 10),
    ],
)
def test_the_loop_sleeps_until_the_first_that_can_be_done(
    parts: list[tuple[float, bool]], retry_at: float, expected: float
) -> None:
    timers = Timers(link(retry_at))
    for next_at, redis in parts:
        timers.when(Timer(next_at), print, redis=redis)
    assert timers.next_at == expected


@pytest.mark.parametrize(("now", "called"), [(1, []), (2.9, []), (3, ["own"]), (7.9, ["own"]), (8, ["redis", "own"])])
def test_timers_that_need_redis_wait_for_the_connection(now: float, called: list[str]) -> None:
    timers, seen = Timers(link(8)), []
    timers.when(Timer(3), lambda _: seen.append("redis"), redis=True)
    timers.when(Timer(3), lambda _: seen.append("own"))
    timers.tick(now)
    assert seen == called


def test_order_is_the_order_of_adding() -> None:
    timers, seen = Timers(), []
    for name, at in [("c", 1), ("a", 3), ("b", 2)]:
        timers.at(at, lambda _, name=name: seen.append(name))  # type: ignore[misc]
    timers.tick(5)
    assert seen == ["c", "a", "b"]


def away(made: RedisLink) -> None:
    """Redis does not answer one call."""

    def fail() -> None:
        raise OSError("gone")

    made.attempt(fail)


@pytest.mark.parametrize("kind", ["every", "at"])
def test_a_timer_that_met_an_outage_is_due_again_and_delays_no_other(kind: str) -> None:
    made, seen = link(), []
    timers = Timers(made)

    def ask(now: float) -> None:
        seen.append("ask")
        if len(seen) == 1:
            away(made)

    if kind == "every":
        timers.every(60, ask, redis=True)
    else:
        timers.at(0.0, ask, redis=True)
    timers.when(Timer(0), lambda _: seen.append("second"), redis=True)
    timers.when(Part(0), lambda _: seen.append("own"))
    timers.tick(1)
    assert seen == ["ask", "own"], "the second would have waited for Redis once more"
    assert timers.next_at == 0, "the own part did not move on"
    timers.tick(made.retry_at)
    assert seen[2:4] == ["ask", "second"]


@pytest.mark.parametrize("pause", [0.5, 2.0, inf])
def test_when_follows_its_part(pause: float) -> None:
    timers, part = Timers(), Part(1.0, pause)
    timers.when(part, part.tick)
    for now in (0.0, 1.0, 1.25, 3.0):
        timers.tick(now)
    assert part.ticks == ([1.0, 3.0] if pause < inf else [1.0])
    assert timers.next_at == part.next_at


def test_wake_shortens_the_sleep_and_calls_nobody() -> None:
    timers, part = Timers(), Part(4.0)
    timers.wake(part)
    assert timers.next_at == 4.0
    timers.tick(5.0)
    assert part.ticks == []


def test_other_errors_come_as_they_are() -> None:
    timers = Timers()
    timers.at(0, lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        timers.tick(1)


@pytest.mark.parametrize(("at", "low", "high"), [(0.0, 0.0, 0.0), (inf, inf, inf)])
def test_a_pause_is_never_negative(at: float, low: float, high: float) -> None:
    timers = Timers()
    timers.at(at, print)
    assert low <= timers.pause() <= high
