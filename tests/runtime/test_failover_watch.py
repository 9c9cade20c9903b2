"""When a process reads what a failover would lose."""

from __future__ import annotations

import logging
from math import inf

import pytest
import redis

from fusion.runtime.failover_watch import FailoverWatch
from fusion.runtime.redis_link import RedisAway, RedisLink
from fusion.runtime.supervised import SupervisorLine

log = logging.getLogger("fusion.test")
ALONE = {"role": "master", "connected_slaves": 0}
BEHIND = {
    "role": "master",
    "connected_slaves": 1,
    "slave0": {"ip": "h", "port": 1, "state": "send_bulk", "offset": 0, "lag": 0},
    "min_slaves_good_slaves": 0,
}
IN_STEP = {**BEHIND, "slave0": {"ip": "h", "port": 1, "state": "online", "offset": 9, "lag": 0}}


class Told(redis.Redis):
    """Answers INFO with `answer`."""

    answer: dict[str, object] | Exception = ALONE

    def info(self, *args: object, **kwargs: object) -> dict[str, object]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Line(SupervisorLine):
    """Keeps the lines that are sent to the supervisor."""

    def __init__(self) -> None:
        super().__init__()
        self.said = list[tuple[str, str]]()

    def say(self, word: str, value: str = "") -> None:
        self.said.append((word, value))


@pytest.fixture
def line() -> Line:
    return Line()


@pytest.fixture
def server() -> Told:
    return Told()


@pytest.fixture
def link() -> RedisLink:
    return RedisLink(log)


@pytest.fixture
def watch(server: Told, link: RedisLink, line: Line) -> FailoverWatch:
    made = FailoverWatch(server, link, line, log)
    assert made.next_at == inf, "nothing before the start"
    made.begin(cluster=False)
    assert made.next_at == 0.0
    return made


def test_one_look_where_nothing_can_take_over(watch: FailoverWatch, line: Line) -> None:
    watch.tick(100.0)
    assert watch.next_at == inf
    assert (watch.warnings, line.said) == ([], [])


def test_a_look_each_minute_and_a_line_for_each_change(
    watch: FailoverWatch, server: Told, line: Line, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "fusion.test")
    server.answer = BEHIND
    for at in (100.0, 160.0):
        watch.tick(at)
        assert watch.next_at == at + 60
    server.answer = IN_STEP
    watch.tick(220.0)
    assert watch.warnings == []
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert [level for level, _ in lines] == ["WARNING", "INFO"]
    assert lines[0][1].startswith("failover: no replica is in sync with this Redis (h:1 is send_bulk)")
    assert lines[1][1] == "failover: this risk is gone [FUS-444]"
    (first, told), second = line.said
    assert (first, told.endswith("[FUS-444]"), second) == ("WARN", True, ("WARN", ""))


def test_it_looks_again_after_an_outage(watch: FailoverWatch, server: Told, link: RedisLink) -> None:
    watch.tick(100.0)
    server.answer = redis.ConnectionError("gone")
    with pytest.raises(RedisAway):
        link.attempt(server.info)
    assert watch.next_at == 0.0
    with pytest.raises(RedisAway):
        watch.tick(130.0)
    assert watch.next_at == 0.0, "the link's pause holds it back, nothing else"
    server.answer = BEHIND
    watch.tick(140.0)
    assert watch.next_at == 200.0
    assert len(watch.warnings) == 1
