"""What is set for single queues: one text per queue, and nothing where nothing is set."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from fusion.store.layout.gates import read_gate
from fusion.store.write.broker import Broker
from tests.kit.hands import everything, put


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


def _say(broker: Broker, **values: str | int | None) -> dict[str, str]:
    return broker.set_gate("q", values, of_setting=True)


def test_a_limit_set_by_hand_holds_until_the_setting_changes(broker: Broker, conn: redis.Redis) -> None:
    assert _say(broker, limit=20, rate="9/1000/9") == {"limit": "20", "rate": "9/1000/9"}
    broker.set_gate("q", {"limit": 2, "timeout": 5})
    by_hand = {"limit": "2", "rate": "9/1000/9", "timeout": "5"}
    assert _say(broker, limit=20, rate="9/1000/9") == by_hand
    assert _say(broker, rate="8/1000/8", limit=20) == by_hand | {"rate": "8/1000/8"}, "only what changed is set"
    broker.set_gate("q", {"rate": None})
    assert _say(broker, rate="8/1000/8", limit=20) == {"limit": "2", "timeout": "5"}, "taken back is set by hand, too"
    assert _say(broker, limit=30) == {"limit": "30", "timeout": "5"}
    assert conn.hgetall("rq:gates:settings") == {b"q": b"limit=30"}


def test_the_first_setting_counts_whatever_stood_there(broker: Broker) -> None:
    broker.set_gate("q", {"limit": 2})
    assert _say(broker, limit=20) == {"limit": "20"}


def test_a_name_that_leaves_the_setting_is_taken_back_unless_somebody_set_it_since(broker: Broker, conn: redis.Redis) -> None:
    _say(broker, limit=20, max_wait=5, max_length=7)
    broker.set_gate("q", {"max_wait": 6, "timeout": 1})
    assert _say(broker, max_length=7) == {"max_wait": "6", "max_length": "7", "timeout": "1"}
    assert _say(broker) == {"max_wait": "6", "timeout": "1"}
    assert conn.exists("rq:gates:settings") == 0
    assert _say(broker) == {"max_wait": "6", "timeout": "1"}
    assert _say(broker, max_wait=5) == {"max_wait": "5", "timeout": "1"}, "a name that comes back is new"


def test_none_in_a_setting_takes_back_once(broker: Broker) -> None:
    broker.set_gate("q", {"limit": 2})
    assert _say(broker, limit=None) == {}
    broker.set_gate("q", {"limit": 3})
    assert _say(broker, limit=None) == {"limit": "3"}
    assert _say(broker) == {"limit": "3"}
    assert _say(broker, limit=None) == {}


def test_the_settings_of_the_last_started_worker_apply(broker: Broker) -> None:
    for _ in range(2):
        assert _say(broker, limit=20) == {"limit": "20"}
        assert _say(broker, limit=30) == {"limit": "30"}


def test_the_same_setting_again_changes_nothing(broker: Broker, conn: redis.Redis) -> None:
    put(broker, "q", "a")
    _say(broker, limit=20)
    conn.delete("rq:wake:q")
    conn.set("rq:wake:q:closed", "1")
    before = everything(conn)
    assert _say(broker, limit=20) == {"limit": "20"}
    assert everything(conn) == before, "nobody is woken"


def test_a_wrong_type_leaves_nothing_half_written(broker: Broker, conn: redis.Redis) -> None:
    conn.set("rq:gates:settings", "x")
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        _say(broker, limit=20)
    assert conn.exists("rq:gates") == 0


@pytest.mark.parametrize("stored", [None, b"", b"  ", b"junk", b"=1", b"a="])
def test_a_malformed_limit_is_ignored(stored: bytes | None) -> None:
    assert read_gate(stored) == {}
