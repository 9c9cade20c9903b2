"""The list of schedulers, and which version of an app may say what its entries are."""

from __future__ import annotations

import pytest
import redis

from fusion.store.read.cron_inspector import CronInspector
from fusion.store.write.cron_broker import CronBroker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import everything, now_ms
from tests.store.cron_hands import PLAN, SPEC, Cron, mark_of

LEASE = 30.0


@pytest.fixture
def broker(conn: redis.Redis) -> CronBroker:
    return CronBroker(conn)


def _beat(
    broker: CronBroker, name: str, app: str = "a", version: str = "1", *, incarnation: str = "", lease: float = LEASE
) -> bool:
    fields = {"pid": 7, "hostname": "h", "app": app, "version": version}
    return broker.scheduler_beat(name, incarnation or f"of {name}", lease, 420, fields)


def _silence(conn: redis.Redis, name: str, seconds: float) -> None:
    """As if it had said nothing for this long."""
    at = now_ms(conn) - int(seconds * 1000)
    conn.hset(f"rq:scheduler:process:{name}", "beat_ms", at)
    conn.zadd("rq:schedulers", {name: at})


def _names(conn: redis.Redis) -> set[str]:
    return {member.decode() for member in conn.zrange("rq:schedulers", 0, -1)}


def _declare(broker: CronBroker, app: str, version: str, *entries: str) -> tuple[str, list[str], list[str]]:
    """What a scheduler of this version does when it starts."""
    for entry in entries:
        broker.cron_put(entry, PLAN, SPEC, "r", app=app, version=version)
    status, removed, left = broker.cron_retire(app, version, entries)
    return status, sorted(removed), sorted(left)


# -- the list


def test_a_scheduler_is_listed_while_it_lives(broker: CronBroker, conn: redis.Redis) -> None:
    assert _beat(broker, "h.1", version="2.1")
    (found,) = CronInspector(conn).schedulers()
    assert (found.name, found.hostname, found.pid, found.app, found.version, found.alive) == ("h.1", "h", 7, "a", "2.1", True)
    assert 0 < conn.ttl("rq:scheduler:process:h.1") <= 420
    assert _beat(broker, "h.1", version="2.1")
    again = CronInspector(conn).schedulers()[0]
    assert again.birth == found.birth
    assert again.last_heartbeat is not None
    assert found.last_heartbeat is not None
    assert again.last_heartbeat > found.last_heartbeat
    _silence(conn, "h.1", LEASE + 1)
    assert [s.alive for s in CronInspector(conn).schedulers()] == [False]
    assert broker.scheduler_leave("h.1", "of h.1")
    assert conn.exists("rq:schedulers", "rq:scheduler:process:h.1") == 0


def test_a_name_belongs_to_the_one_that_lives(broker: CronBroker, conn: redis.Redis) -> None:
    assert _beat(broker, "h", incarnation="first")
    before = everything(conn, clocks=True)
    assert not _beat(broker, "h", incarnation="second")
    assert not broker.scheduler_leave("h", "second")
    assert everything(conn, clocks=True) == before
    _silence(conn, "h", LEASE + 1)
    assert _beat(broker, "h", version="9", incarnation="second"), "a dead one's name is free"
    assert not _beat(broker, "h", incarnation="first"), "and no longer its own, should it come back"
    assert [s.version for s in CronInspector(conn).schedulers()] == ["9"]


def test_a_lease_is_the_owners_and_not_the_askers(broker: CronBroker, conn: redis.Redis) -> None:
    _beat(broker, "h", incarnation="first", lease=300.0)
    _silence(conn, "h", 100)
    assert not _beat(broker, "h", incarnation="second", lease=1.0)


def test_the_dead_leave_the_list(broker: CronBroker, conn: redis.Redis) -> None:
    for name, lease, silent in (("dead", 30.0, 91), ("silent", 30.0, 60), ("patient", 300.0, 200), ("expired", 30.0, 200)):
        _beat(broker, name, lease=lease)
        _silence(conn, name, silent)
    conn.delete("rq:scheduler:process:expired")
    assert _beat(broker, "h")
    assert _names(conn) == {"silent", "patient", "h"}
    assert conn.exists("rq:scheduler:process:dead") == 0
    for i in range(30):
        _beat(broker, f"d{i}")
    for i in range(30):
        _silence(conn, f"d{i}", 500)
    _beat(broker, "h")
    assert len(_names(conn)) == 3 + 10, "a few at a time"
    _beat(broker, "h")
    assert _names(conn) == {"silent", "patient", "h"}


# -- versions


@pytest.mark.parametrize(
    ("higher", "lower"),
    [
        ("1.10", "1.9"),
        ("2", "1.99.99"),
        ("1.0.1", "1"),
        ("1", ""),
        ("20261120093000", "20261120092959"),
        ("10", "9"),
        ("1.2", "1.01"),
    ],
)
def test_versions_are_compared_number_by_number(broker: CronBroker, higher: str, lower: str) -> None:
    _declare(broker, "a", lower, "x")
    assert _declare(broker, "a", lower) == ("ok", [], ["x"])
    assert _declare(broker, "a", higher) == ("ok", ["x"], [])
    _declare(broker, "a", higher, "y")
    assert _declare(broker, "a", lower) == ("ok", [], ["y"])


@pytest.mark.parametrize(("one", "same"), [("1", "1.0"), ("1.10", "1.10"), ("", "0"), ("1.01", "1.1")])
def test_versions_that_are_equal(broker: CronBroker, one: str, same: str) -> None:
    _declare(broker, "a", one, "x")
    assert _declare(broker, "a", same) == ("ok", [], ["x"])
    assert _declare(broker, "a", one) == ("ok", [], ["x"])


def test_a_higher_version_removes_what_it_no_longer_declares(broker: CronBroker, conn: redis.Redis) -> None:
    assert _declare(broker, "a", "1", "x", "y") == ("ok", [], [])
    _declare(broker, "b", "1", "of-b")
    broker.cron_put("by-hand", PLAN, SPEC, "r")
    mark = mark_of(conn, "y")
    assert _declare(broker, "a", "2", "x") == ("ok", ["y"], [])
    assert CronInspector(conn).entry_ids() == ["by-hand", "of-b", "x"]
    assert conn.exists("rq:cron:entry:y") == 0
    assert mark_of(conn, "y") == mark, "should it come back, no tick runs twice"
    assert _declare(broker, "a", "2", "x") == ("ok", [], [])
    assert conn.hgetall("rq:cron:apps") == {b"a": b"2", b"b": b"1"}


def test_the_first_word_of_an_app_removes_nothing(broker: CronBroker, conn: redis.Redis) -> None:
    broker.cron_put("x", PLAN, SPEC, "r", app="a", version="1")
    assert _declare(broker, "a", "2") == ("ok", [], ["x"])
    assert CronInspector(conn).entry_ids() == ["x"]


def test_an_entry_declared_with_a_mistake_is_still_declared(broker: CronBroker, conn: redis.Redis) -> None:
    _declare(broker, "a", "1", "x")
    broker.cron_put("x", "", "", "", app="a", version="2", error="no such zone")
    broker.cron_put("new", "", "", "", app="a", version="2", error="no such zone")
    assert broker.cron_retire("a", "2", ["x", "new"]) == ("ok", [], [])
    assert CronInspector(conn).entry_ids() == ["new", "x"]


def test_while_a_higher_version_lives_a_lower_one_says_nothing(broker: CronBroker, conn: redis.Redis) -> None:
    """Both run during a deployment, and the order in which they start or restart is nobody's choice."""
    _beat(broker, "old", version="1.9")
    _declare(broker, "a", "1.9", "x", "y")
    _beat(broker, "new", version="1.10")
    _beat(broker, "other", app="b", version="99")
    assert _declare(broker, "a", "1.10", "x", "z") == ("ok", ["y"], [])
    before = everything(conn, clocks=True)
    assert broker.cron_put("y", PLAN, SPEC, "r", app="a", version="1.9") == "outdated"
    assert broker.cron_put("x", PLAN, '{"func":"old"}', "r0", app="a", version="1.9") == "outdated"
    assert broker.cron_put("y", "", "", "", app="a", version="1.9", error="a mistake") == "outdated"
    assert broker.cron_retire("a", "1.9", ["x", "y"]) == ("outdated", [], [])
    assert everything(conn, clocks=True) == before
    assert broker.cron_put("by-hand", PLAN, SPEC, "r") == "new", "programs are not asked for a version"
    assert broker.cron_put("of-b", PLAN, SPEC, "r", app="b", version="100") == "new"


@pytest.mark.parametrize("left", [True, False])
def test_a_rollback(broker: CronBroker, conn: redis.Redis, left: bool) -> None:
    """Once the higher version is gone, the lower one says what there is; what the higher one added stays until it is overtaken."""
    _beat(broker, "new", version="2")
    _declare(broker, "a", "2", "x", "z")
    if left:
        assert broker.scheduler_leave("new", "of new")
    else:
        _silence(conn, "new", LEASE + 1)
    _beat(broker, "old", version="1")
    assert _declare(broker, "a", "1", "x", "y") == ("ok", [], ["z"])
    assert CronInspector(conn).entry_ids() == ["x", "y", "z"]
    assert _declare(broker, "a", "1.1", "x", "y") == ("ok", ["z"], [])


def test_the_living_are_found_among_many_dead(broker: CronBroker, conn: redis.Redis) -> None:
    """Of a fleet whose schedulers crash at their start, say."""
    for i in range(150):
        _beat(broker, f"d{i}", version="3", lease=LEASE)
        _silence(conn, f"d{i}", LEASE + 1)
    assert broker.cron_put("x", PLAN, SPEC, "r", app="a", version="1") == "new", "the dead have no say"
    _beat(broker, "new", version="2")
    assert broker.cron_put("x", PLAN, SPEC, "r", app="a", version="1") == "outdated"


def test_jobs_of_what_is_retired_stay(broker: CronBroker, conn: redis.Redis) -> None:
    _declare(broker, "a", "1", "x")
    cron = Cron(conn, "e")
    cron.tick(cron.now - 60)
    conn.hset("rq:cron:entry:e", "app", "a")
    assert _declare(broker, "a", "2") == ("ok", ["e", "x"], [])
    assert check_conservation(conn, [cron.id(cron.now - 60)]) == {cron.id(cron.now - 60): "queued"}
    assert cron.put() == "new"
    assert cron.tick(cron.now - 60, upto=cron.now) == ("ok", 0, 0)
