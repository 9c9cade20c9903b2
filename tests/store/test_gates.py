"""What is set for single queues: one text per queue, and nothing where nothing is set."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from fusion.store.layout.gates import read_gate
from fusion.store.write.broker import Broker


def test_a_value_is_set_and_taken_back_beside_others(broker: Broker, conn: redis.Redis) -> None:
    assert broker.set_gate("q", {"max_length": 9}) == {"max_length": "9"}
    assert broker.set_gate("q", {"timeout": 5000, "max_length": 8}) == {"timeout": "5000", "max_length": "8"}
    assert broker.set_gate("other", {"timeout": 1}) == {"timeout": "1"}
    assert broker.set_gate("q", {"max_length": None}) == {"timeout": "5000"}
    assert broker.set_gate("q", {"timeout": None}) == {}
    assert conn.hgetall("rq:gates") == {b"other": b"timeout=1"}
    assert broker.set_gate("other", {"timeout": None, "max_length": None}) == {}
    assert conn.exists("rq:gates") == 0


def test_a_name_of_a_newer_version_is_kept(broker: Broker, conn: redis.Redis) -> None:
    conn.hset("rq:gates", "q", "colour=red max_length=1")
    assert broker.set_gate("q", {"max_length": 2}) == {"colour": "red", "max_length": "2"}


def test_two_who_set_two_things_at_once_lose_neither(broker: Broker, conn: redis.Redis) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: broker.set_gate("q", {f"n{i}": i}), range(64)))
    assert read_gate(conn.hget("rq:gates", "q")) == {f"n{i}": str(i) for i in range(64)}


@pytest.mark.parametrize("stored", [None, b"", b"  ", b"junk", b"=1", b"a="])
def test_what_is_no_such_text_says_nothing(stored: bytes | None) -> None:
    assert read_gate(stored) == {}
