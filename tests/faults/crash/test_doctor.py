"""SIGKILL of a watching `doctor` around the script that tells a verdict: its successor tells what was not told, and nothing twice."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.doctor.watching import Watching

PAIR = ("tell_verdict.before", "tell_verdict.after")


@pytest.fixture
def watching(conn: redis.Redis, redis_url: str, tmp_path: Path) -> Iterator[Watching]:
    with Watching(conn, redis_url, tmp_path) as found:
        yield found


@pytest.mark.gate
@pytest.mark.timeout(600)
@pytest.mark.parametrize("pair", [PAIR], ids=["tell_verdict"])
def test_a_watcher_killed_around_its_word(watching: Watching, pair: tuple[str, str], conn: redis.Redis) -> None:
    watching.make_bad()
    for place, told in zip(pair, (0, 1), strict=True):
        killed = watching.start(FUSION_FAILPOINTS=f"{place}=kill")
        assert killed.wait(150) == -signal.SIGKILL, killed.output
        assert conn.zcard("rq:callbacks:open") == told, "not at all, or with what notes it"
    watching.start()
    firing = watching.until(1)
    watching.make_well()
    assert [one.type for one in watching.until(2)] == ["alert.firing", "alert.resolved"]
    assert firing[0] == watching.told[0]
    assert len({one.id for one in watching.told}) == 2
