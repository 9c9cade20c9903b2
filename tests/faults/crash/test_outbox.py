"""SIGKILL of the forwarder of an outbox at each place: the next one goes on, and each row is one job."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fusion.contrib.outbox.database import SENT
from fusion.store.write.broker import Broker
from tests.contrib.outbox.forwarding import PRELOAD, run
from tests.contrib.outbox.hands import Base, in_queue, sqlite
from tests.faults.crash.zygote import Zygote
from tests.kit.hands import put
from tests.kit.length import gate_case
from tests.kit.promises import claim

OWN = ("outbox.opened", "outbox.accepted", "outbox.closed", "outbox.parked", "outbox.again")
PLACES = ("enqueue.before", "enqueue.after", *OWN)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    found = Zygote(PRELOAD)
    yield found
    found.close()


def _forgotten(conn: redis.Redis) -> list[str]:
    """The jobs that wait, which have run since, and of which nothing is known any more."""
    found = in_queue(conn)
    for job_id in found:
        conn.delete(f"rq:job:{job_id}")
    conn.delete("rq:queue:q")
    return found


@claim("P15")
@pytest.mark.parametrize("place", [gate_case(place) if place in OWN else place for place in PLACES])
def test_a_forwarder_is_killed_anywhere_and_each_row_is_one_job(
    conn: redis.Redis, redis_url: str, tmp_path: Path, zygote: Zygote, place: str
) -> None:
    base = sqlite(tmp_path)
    expected = ["a", "b", "c"]
    if place == "outbox.again":
        base.add("q", "lost")
        base.forwarder(conn).forward()
        conn.flushall()
        expected = ["lost", *expected]
    put(Broker(conn), "other", "taken")
    base.add("q", "a", "taken", "b", "c")
    assert run(zygote, base, redis_url, f"{place}=kill").code == -signal.SIGKILL
    found = _forgotten(conn)
    ended = run(zygote, base, redis_url)
    assert ended.code == 0, ended.output
    found += _forgotten(conn)
    assert found == expected, ended.output
    assert base.column(state=SENT) == expected
    assert [row["job_id"] for row in base.ledger.parked()] == ["taken"]


def test_another_takes_over_when_the_lease_of_a_killed_one_is_over(
    conn: redis.Redis, redis_url: str, tmp_path: Path, zygote: Zygote
) -> None:
    base: Base = sqlite(tmp_path)
    base.add("q", "a")
    base.ledger.identity()
    assert base.ledger.lead("dead", time.time(), 0.6)
    begun = time.monotonic()
    assert run(zygote, base, redis_url, lease=6).code == 0
    assert 0.5 < time.monotonic() - begun < 6
    assert in_queue(conn) == ["a"]
