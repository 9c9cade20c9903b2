"""Cron entries come, change, pause and go; and what that means for ticks already decided and those to come."""

from __future__ import annotations

import pytest
import redis

from fusion.store.read.cron_inspector import CronInspector
from fusion.store.write.broker import Broker
from fusion.store.write.cron_broker import CronBroker
from tests.faults.rig.conservation import check_conservation
from tests.kit.hands import everything
from tests.store.cron_hands import PLAN, SPEC, Cron, fields_of_entry, history_of, look_of, mark_of, now_s, rung

OTHER = '{"every":300}'
INF = float("inf")


@pytest.fixture
def cron(conn: redis.Redis) -> Cron:
    """An entry `e`, last decided ten minutes ago."""
    return Cron(conn)


# -- put


def test_a_new_entry_is_looked_at_at_once_and_counts_from_now(conn: redis.Redis) -> None:
    broker, before = CronBroker(conn), now_s(conn)
    assert broker.cron_put("e", PLAN, SPEC, "r1") == "new"
    mark = mark_of(conn)
    assert mark is not None
    assert before <= mark <= now_s(conn), "ticks of before are not made up"
    assert rung(conn)
    look = broker.cron_due()
    assert [(e.id, e.mark, e.plan, e.spec, e.rev) for e in look.entries] == [("e", str(mark), PLAN, SPEC, "r1")]
    assert look.now == pytest.approx(now_s(conn), abs=2)
    found = fields_of_entry(conn)
    assert (found["app"], found["version"]) == ("", "")
    assert found["created_at"] == found["declared_at"]
    assert "next" not in found


def test_the_same_again_changes_nothing(cron: Cron, conn: redis.Redis) -> None:
    cron.tick(cron.now - 60)
    before, look, mark = everything(conn), look_of(conn), mark_of(conn)
    assert cron.put() == "same"
    assert (everything(conn), look_of(conn), mark_of(conn)) == (before, look, mark)
    assert not rung(conn)


def test_the_same_again_brings_back_what_fell_out_of_the_index(cron: Cron, conn: redis.Redis) -> None:
    conn.delete("rq:cron:due")
    assert cron.put() == "same"
    assert [e.id for e in cron.broker.cron_due().entries] == ["e"]
    cron.broker.cron_pause("e")
    conn.delete("rq:cron:due")
    assert cron.put() == "same"
    assert look_of(conn) == INF


def test_another_plan_counts_from_now_if_nothing_was_left_undecided(cron: Cron, conn: redis.Redis) -> None:
    cron.tick(cron.now - 60, following=cron.now + 3600)
    before = now_s(conn)
    assert cron.put(plan=OTHER) == "changed"
    mark = mark_of(conn)
    assert mark is not None
    assert before <= mark <= now_s(conn)
    assert rung(conn)
    assert [e.plan for e in cron.broker.cron_due().entries] == [OTHER]
    assert "next" not in fields_of_entry(conn)


def test_a_tick_that_is_due_and_undecided_is_left_to_the_new_plan(cron: Cron, conn: redis.Redis) -> None:
    due = cron.now - 30
    cron.tick(cron.now - 60, following=due)
    assert cron.put(plan=OTHER) == "changed"
    assert mark_of(conn) == due - 1
    assert cron.put(plan=PLAN) == "changed", "and back, before anybody has looked"
    assert mark_of(conn) == due - 1, "it is not forgotten on the way"
    assert cron.tick(due) == ("ok", 1, 0)
    assert check_conservation(conn, [cron.id(cron.now - 60), cron.id(due)])


def test_another_plan_never_moves_a_mark_back(cron: Cron, conn: redis.Redis) -> None:
    cron.tick(cron.now - 60, following=cron.now - 30)
    cron.set_mark(cron.now - 10)
    cron.put(plan=OTHER)
    assert mark_of(conn) == cron.now - 10


@pytest.mark.parametrize("ended", [True, False])
def test_an_entry_that_has_ended_or_is_paused_left_nothing_undecided(cron: Cron, conn: redis.Redis, ended: bool) -> None:
    cron.tick(cron.now - 60, following=None if ended else cron.now - 30)
    if not ended:
        cron.broker.cron_pause("e")
    before = now_s(conn)
    assert cron.put(plan=OTHER) == "changed"
    assert (mark_of(conn) or 0) >= before
    assert look_of(conn) == (pytest.approx(before, abs=2) if ended else INF)


def test_another_spec_keeps_the_mark(cron: Cron, conn: redis.Redis) -> None:
    mark = cron.now - 60
    cron.tick(mark, following=cron.now + 3600)
    read = cron.stored
    cron.broker.cron_fault(read, "damaged")
    assert cron.put(spec='{"func":"f"}') == "changed"
    assert mark_of(conn) == mark
    assert rung(conn)
    assert [e.spec for e in cron.broker.cron_due().entries] == ['{"func":"f"}']
    found = fields_of_entry(conn)
    assert found["next"] == str(cron.now + 3600)
    assert not {"error", "error_at"} & set(found), "whatever was wrong with the former one"
    assert cron.tick(cron.now, read=read) == ("stale", 0, 0), "nobody decides by what it read before"


def test_a_mark_in_the_future_is_waited_for(cron: Cron, conn: redis.Redis) -> None:
    """The clock was set back: what was decided by the former one is not run again, whatever happens to the entry."""
    future = cron.now + 7200
    cron.set_mark(future)
    assert cron.put(plan=OTHER) == "changed"
    assert cron.broker.cron_remove("e")
    assert cron.put() == "new"
    assert mark_of(conn) == future
    assert cron.tick(upto=future) == ("early", 0, 0), "as a scheduler asks that finds no tick after the mark"
    assert look_of(conn) == future
    assert cron.broker.cron_due().entries == [], "and it does not ask again and again"
    cron.broker.cron_pause("e")
    assert cron.broker.cron_resume("e") == "ok"
    assert (mark_of(conn) or 0) <= now_s(conn), "the way out"


def test_an_app_changes_only_its_own_entries(conn: redis.Redis) -> None:
    broker = CronBroker(conn)
    assert broker.cron_put("mine", PLAN, SPEC, "r", app="a", version="1") == "new"
    assert broker.cron_put("by-hand", PLAN, SPEC, "r") == "new"
    before = everything(conn, clocks=True)
    assert broker.cron_put("mine", OTHER, SPEC, "r2", app="b", version="9") == "taken a"
    assert broker.cron_put("mine", OTHER, SPEC, "r2") == "taken a"
    assert broker.cron_put("by-hand", OTHER, SPEC, "r2", app="a", version="1") == "taken "
    assert broker.cron_put("mine", "", "", "", app="b", version="1", error="a mistake") == "taken a"
    assert everything(conn, clocks=True) == before
    assert broker.cron_put("mine", OTHER, SPEC, "r2", app="a", version="0.9") == "changed", (
        "an older one too, if it is the one that runs"
    )


def test_a_declaration_with_a_mistake_is_shown_and_the_former_goes_on(cron: Cron, conn: redis.Redis) -> None:
    before, look, mark = fields_of_entry(conn), look_of(conn), mark_of(conn)
    assert cron.broker.cron_put("e", "", "", "", error="no such zone: Mars") == "faulty"
    found = fields_of_entry(conn)
    assert found.pop("declared_error") == "no such zone: Mars"
    assert {**found, "declared_at": ""} == {**before, "declared_at": ""}
    assert (look_of(conn), mark_of(conn)) == (look, mark)
    assert cron.tick(cron.now - 60) == ("ok", 1, 0)
    assert cron.put() == "same"
    assert "declared_error" not in fields_of_entry(conn)


def test_an_entry_that_was_never_valid_is_listed_and_does_nothing(conn: redis.Redis) -> None:
    broker = CronBroker(conn)
    assert broker.cron_put("e", "", "", "", app="a", version="1", error="no such zone") == "faulty"
    assert broker.cron_put("e", "", "", "", app="a", version="1", error="no such zone") == "faulty"
    assert broker.cron_due().entries == []
    info = CronInspector(conn).entry("e")
    assert info is not None
    assert (info.declared_error, info.rev, info.mark, info.next) == ("no such zone", "", None, None)
    assert broker.cron_pause("e")
    assert broker.cron_resume("e") == "ok"
    assert broker.cron_due().entries == []
    assert broker.cron_put("e", PLAN, SPEC, "r", app="a", version="1") == "new"
    assert [e.id for e in broker.cron_due().entries] == ["e"]


# -- pause, resume, remove


def test_paused_nothing_is_decided_and_nothing_made_up(cron: Cron, conn: redis.Redis) -> None:
    cron.tick(cron.now - 120, following=cron.now - 60)
    read = cron.stored
    assert cron.broker.cron_pause("e")
    paused = fields_of_entry(conn)["paused"]
    assert cron.broker.cron_pause("e")
    assert fields_of_entry(conn)["paused"] == paused, "since the first time"
    assert look_of(conn) == INF
    assert cron.tick(cron.now - 60, read=read) == ("stale", 0, 0), "not by one that has read it just before either"
    assert cron.put(spec='{"func":"f"}') == "changed"
    assert cron.broker.cron_due().entries == [], "a change does not end the pause"
    before = now_s(conn)
    rung(conn)
    assert cron.broker.cron_resume("e") == "ok"
    assert rung(conn)
    assert (mark_of(conn) or 0) >= before, "it goes on from now"
    assert [e.id for e in cron.broker.cron_due().entries] == ["e"]
    assert cron.broker.cron_resume("e") == "running"
    assert conn.exists(f"rq:job:{cron.id(cron.now - 60)}") == 0
    assert len(history_of(conn)) == 1


def test_calls_for_an_unknown_entry_change_nothing(conn: redis.Redis) -> None:
    broker = CronBroker(conn)
    assert not broker.cron_pause("e")
    assert broker.cron_resume("e") == "missing"
    assert not broker.cron_remove("e")
    assert list(conn.scan_iter()) == []


def test_removed_its_jobs_stay_and_no_tick_runs_twice(cron: Cron, conn: redis.Redis) -> None:
    ticks = [cron.now - 120, cron.now - 60]
    cron.tick(ticks[0])
    assert cron.tick(ticks[1])[0] == "ok"
    read = cron.stored
    assert cron.broker.cron_remove("e")
    assert conn.exists("rq:cron:entry:e", "rq:cron:history:e", "rq:cron:due") == 0
    assert cron.broker.cron_due().next_in is None
    assert cron.tick(cron.now, read=read) == ("stale", 0, 0)
    assert set(check_conservation(conn, map(cron.id, ticks)).values()) == {"queued"}
    before = now_s(conn)
    assert cron.put() == "new"
    assert (mark_of(conn) or 0) >= before
    assert cron.tick(*ticks, upto=cron.now)[:2] == ("ok", 0), "and if it were asked for, the jobs are there"
    assert [outcome for _, outcome, _ in history_of(conn)] == ["exists", "exists"]
    assert conn.zcard("rq:queue:q") == 2


def test_marks_of_entries_long_gone_are_cleared(cron: Cron, conn: redis.Redis) -> None:
    old = cron.now - 401 * 86400
    conn.zadd("rq:cron:marks", {**{f"gone{i:02d}": old for i in range(30)}, "recent": cron.now - 399 * 86400})
    conn.zadd("rq:cron:marks", {"e2": old})
    conn.hset("rq:cron:entry:e2", "rev", "r")
    cron.broker.cron_remove("e")
    assert conn.zcard("rq:cron:marks") == 33 - 19, "some at a time, and none of an entry that is there"
    assert cron.put() == "new"
    cron.broker.cron_remove("e")
    assert {member.decode() for member in conn.zrange("rq:cron:marks", 0, -1)} == {"e", "e2", "recent"}


# -- looked at


def test_what_is_due_is_read_a_page_at_a_time(conn: redis.Redis) -> None:
    broker, names = CronBroker(conn), [f"e{i:02d}" for i in range(7)]
    for name in names:
        broker.cron_put(name, PLAN, SPEC, "r")
    now = now_s(conn)
    conn.zadd("rq:cron:due", {name: now - 10 + i for i, name in enumerate(names)} | {"e06": now + 30, "e05": INF})
    page = broker.cron_due(3)
    assert ([e.id for e in page.entries], page.next_in) == (names[:3], 0.0)
    page = broker.cron_due()
    assert ([e.id for e in page.entries], page.next_in) == (names[:5], pytest.approx(29.5, abs=1))
    conn.zadd("rq:cron:due", dict.fromkeys(names, INF))
    assert (broker.cron_due().entries, broker.cron_due().next_in) == ([], None)


def test_an_entry_that_can_not_be_planned_is_put_off_and_says_why(cron: Cron, conn: redis.Redis) -> None:
    assert cron.broker.cron_fault(cron.stored, "format 9: upgrade")
    assert look_of(conn) == pytest.approx(now_s(conn) + 30, abs=2)
    assert fields_of_entry(conn)["error"] == "format 9: upgrade"
    info = CronInspector(conn).entry("e")
    assert info is not None
    assert info.error == "format 9: upgrade"
    read = cron.stored
    cron.put(spec="{}")
    assert not cron.broker.cron_fault(read, "format 9: upgrade"), "it was changed meanwhile"
    assert "error" not in fields_of_entry(conn)
    assert cron.tick(cron.now - 60, read=cron.stored) == ("ok", 1, 0)
    assert check_conservation(conn, [cron.id(cron.now - 60)]) == {cron.id(cron.now - 60): "queued"}


@pytest.mark.parametrize("key", ["none", "string"])
def test_an_index_entry_that_leads_to_nothing_keeps_nobody_busy(cron: Cron, conn: redis.Redis, key: str) -> None:
    conn.zadd("rq:cron:due", {"ghost": 1})
    if key == "string":
        conn.set("rq:cron:entry:ghost", "junk")
    ghost, e = cron.broker.cron_due().entries
    assert (ghost.id, ghost.rev, ghost.plan, e.id) == ("ghost", "", "", "e")
    assert cron.broker.cron_fault(ghost, "what is stored of it is damaged")
    assert [e.id for e in cron.broker.cron_due().entries] == ["e"]


def test_a_broken_entry_stops_no_other(cron: Cron, conn: redis.Redis) -> None:
    """Another tool, or a person, overwrote it."""
    cron.broker.cron_put("a", PLAN, SPEC, "r", app="app", version="1")
    cron.broker.cron_retire("app", "1", ["a"])
    conn.delete("rq:cron:entry:e")
    conn.set("rq:cron:entry:e", "junk")
    assert cron.broker.cron_retire("app", "2", []) == ("ok", ["a"], [])
    broker = Broker(conn)
    assert broker.promote()[:2] == (0, None)
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"):
        cron.put()
    conn.set("rq:scheduler:process:s", "junk")
    cron.broker.scheduler_beat("t", "i", 30.0, 420, {})
    conn.zadd("rq:schedulers", {"s": now_s(conn) * 1000})
    assert [(e.id, e.rev, "WRONGTYPE" in e.error) for e in CronInspector(conn).entries()] == [("e", "", True)]
    assert [(s.name, s.alive) for s in CronInspector(conn).schedulers()] == [("s", False), ("t", True)]
    assert cron.broker.cron_put("b", PLAN, SPEC, "r", app="app", version="1") == "new", "a broken scheduler speaks for nobody"
    conn.zadd("rq:schedulers", {"s": 1})
    assert cron.broker.scheduler_beat("t", "i", 30.0, 420, {})
    assert conn.zrange("rq:schedulers", 0, -1) == [b"t"]
    assert conn.exists("rq:scheduler:process:s") == 0
