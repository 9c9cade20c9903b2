"""The scripts that read graphs of jobs and count members of batches: bounded, whatever stands in Redis."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
import redis

from fusion.jobs.failures import CHUNK
from fusion.jobs.tree import _FIELDS, JobTree, _Walk, tree
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.store.layout import codec
from fusion.store.read.graph_inspector import MOST, WORK, GraphInspector, MemberCount, Way
from fusion.store.read.inspector import Inspector
from fusion.store.read.tolerant import forgiving
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, everything, new, outcome, wire
from tests.store.batch_hands import add, begin
from tests.store.kin_hands import child, give, settle


def chain(broker: Broker, length: int) -> list[str]:
    """A chain of jobs that wait for each other."""
    names = [f"j{n}" for n in range(length)]
    give(broker, "q", new(names[0]))
    for first in range(1, length, 20):
        some = range(first, min(first + 20, length))
        give(broker, "q", *(child(names[n], names[n - 1]) for n in some))
    return names


def ids(inspector: GraphInspector, *starts: tuple[Way, str], most: int = MOST) -> list[str]:
    return [one.id for one in inspector.walk_graph(starts, _FIELDS, most)]


# -- one call


@pytest.mark.parametrize(("begin_at", "calls"), [(0, 2), (299, 1), (150, 1)])
def test_a_chain_of_300_is_few_calls(conn: redis.Redis, broker: Broker, begin_at: int, calls: int) -> None:
    names = chain(broker, 300)
    inspector = Inspector(conn)
    with wire(conn) as sent:
        found = tree(inspector, f"j{begin_at}")
    assert [one for one in sent if one != "EVAL"] == ["EVALSHA"] * calls
    assert {node.id: node.level for node in found.nodes} == {one: n - begin_at for n, one in enumerate(names)}


def test_it_goes_on_the_nearest_first_and_only_on_the_way_that_was_named(conn: redis.Redis, broker: Broker) -> None:
    chain(broker, 5)
    give(broker, "q", child("side", "j1"))
    inspector = Inspector(conn)
    assert ids(inspector, ("u", "j2")) == ["j2", "j1", "j0"]
    assert ids(inspector, ("d", "j2")) == ["j2", "j3", "j4"]
    assert ids(inspector, ("b", "j2")) == ["j2", "j1", "j3", "j0", "j4"]
    assert ids(inspector, ("b", "j2"), most=2) == ["j2", "j1"]
    assert ids(inspector, ("u", "j4"), ("d", "side"), ("u", "nobody")) == ["j4", "side", "nobody", "j3", "j2", "j1", "j0"]


def test_a_call_is_bounded_in_jobs_and_in_names(conn: redis.Redis, broker: Broker) -> None:
    inspector = Inspector(conn)
    for parent in range(10):
        conn.hset(f"rq:job:p{parent}", mapping={"status": "deferred", "func": "f", "data": "[[],{}]"})
        conn.zadd(f"rq:job:p{parent}:children", {f"c{parent}-{n}": n for n in range(5000)})
        conn.sadd(f"rq:job:p{parent}:dependents", *(f"d{parent}-{n}" for n in range(5000)))
    found = inspector.walk_graph([("d", f"p{n}") for n in range(10)], _FIELDS)
    assert 1 <= len(found) < 10 and sum(len(one.children or ()) for one in found) <= WORK + 7000
    assert all(1000 <= len(one.children or ()) < 4000 for one in found)
    conn.zadd("rq:job:wide:children", {f"x{n}": n for n in range(100)})
    assert len(inspector.walk_graph([("d", "wide")], _FIELDS, 10_000)) == 101
    assert len(inspector.walk_graph([("u", f"n{n}") for n in range(400)], _FIELDS)) == MOST


def test_a_large_set_of_children_is_read_whole_up_to_a_thousand(conn: redis.Redis, broker: Broker) -> None:
    for count, found in ((999, 999), (1000, 1000), (40_000, 1000)):
        conn.delete("rq:job:p:dependents")
        conn.sadd("rq:job:p:dependents", *(f"c{n}" for n in range(count)))
        (parent, *_) = Inspector(conn).walk_graph([("d", "p")], _FIELDS)
        assert found <= len(parent.children or ()) <= max(found, 1100) and len(set(parent.children or ())) == len(
            parent.children or ()
        )
        assert set(parent.children or ()) <= {f"c{n}" for n in range(count)}


def test_parents_for_which_a_record_has_no_room_are_read(conn: redis.Redis, broker: Broker) -> None:
    parents = [f"p{n}" for n in range(250)]
    conn.hset("rq:job:c", mapping={"status": "deferred", "func": "f", "data": "[[],{}]", "parents": json.dumps(parents[:100])})
    conn.hset("rq:job:c:parents", mapping={"1": json.dumps(parents[100:200]), "2": json.dumps(parents[200:])})
    (found, *others) = Inspector(conn).walk_graph([("u", "c")], _FIELDS)
    assert [json.loads(part) for part in found.further] == [parents[100:200], parents[200:]]
    assert [one.id for one in others] == parents[: len(others)] and {one.row and one.row["status"] for one in others} == {None}


def test_a_resend_changes_nothing_and_answers_the_same(conn: redis.Redis, broker: Broker) -> None:
    chain(broker, 30)
    begin(broker, "b")
    add(broker, "b", *(f"m{n}" for n in range(9)))
    inspector, before = Inspector(conn), everything(conn, clocks=True)
    answers = []
    for _ in range(2):
        conn.script_flush()
        answers.append((inspector.walk_graph([("b", "j9")], _FIELDS), inspector.count_members("b")))
    assert answers[0] == answers[1] and everything(conn, clocks=True) == before


# -- what strangers wrote


def test_keys_of_a_wrong_type_read_as_empty_and_are_told(conn: redis.Redis, broker: Broker) -> None:
    chain(broker, 3)
    conn.delete("rq:job:j1:dependents", "rq:job:j1:children", "rq:job:j0")
    conn.set("rq:job:j1:dependents", "x")
    conn.lpush("rq:job:j1:children", "x")
    conn.lpush("rq:job:j0", "x")
    connection, broken = forgiving(conn)
    found = tree(Inspector(connection), "j1")
    assert [(node.id, node.status) for node in found.nodes] == [("j1", "deferred"), ("j0", "gone")]
    assert broken == {"rq:job:j1:dependents": "a set", "rq:job:j1:children": "a sorted set", "rq:job:j0": "a hash"}


@pytest.mark.parametrize("parents", ['{"a":1}', '[["x"],{"y":1},3,null,"j0"]', "no json", "[" * 2000, '"j0"', "[", "null", "7"])
def test_parents_that_cannot_be_read_harm_nothing(conn: redis.Redis, broker: Broker, parents: str) -> None:
    chain(broker, 2)
    conn.hset("rq:job:j1", "parents", parents)
    found = {node.id: node.level for node in tree(Inspector(conn), "j1").nodes}
    assert found["j1"] == 0 and found.get("j0", -1) == -1


def test_a_circle_ends(conn: redis.Redis, broker: Broker) -> None:
    chain(broker, 4)
    conn.hset("rq:job:j0", "parents", '["j3","j0"]')
    conn.zadd("rq:job:j3:children", {"j0": 1})
    conn.zadd("rq:job:j0:children", {"j0": 1})
    found = tree(Inspector(conn), "j1")
    assert {node.id: node.level for node in found.nodes} == {"j1": 0, "j0": -1, "j2": 1, "j3": -2}
    assert {node.id: set(node.parents) for node in found.nodes}["j0"] == {"j3", "j0"}
    assert ids(Inspector(conn), ("b", "j1")).count("j1") <= 3


# -- the same as when it was read level by level


class LevelReads:
    """Reads what `fusion.jobs.tree` asks for by plain commands, a level after the other, and no more than that."""

    def __init__(self, conn: redis.Redis) -> None:
        self._conn, self._inspector = conn, Inspector(conn)
        self._rows: dict[str, dict[str, bytes | None] | Exception] = {}

    def read(self, starts: list[tuple[Way, str]], room: int) -> None:
        asked = [one for _, one in starts]
        for start in range(0, len(asked), CHUNK):
            part = asked[start : start + CHUNK]
            self._rows.update(zip(part, self._inspector.table(part, _FIELDS), strict=True))

    def row(self, job_id: str) -> dict[str, bytes | None] | None:
        row = self._rows[job_id]
        return row if isinstance(row, dict) and row["status"] is not None else None

    def children(self, job_id: str) -> list[str]:
        keys = self._inspector.keys
        found = [
            *self._conn.zrange(keys.children(job_id), 0, 999),
            *sorted(self._conn.smembers(keys.dependents(job_id)), key=codec.text),
        ]
        return [*dict.fromkeys(map(codec.text, found))]

    def parents(self, job_id: str) -> list[str]:
        raw = (self.row(job_id) or {}).get("parents")
        listed = json.loads(raw or b"[]")
        return listed if len(listed) < 100 else [*listed, *self._inspector.further_parents(job_id)]


def by_levels(conn: redis.Redis, job_id: str, limit: int, scope: Scope) -> JobTree:
    walk = _Walk(LevelReads(conn), job_id, limit, scope)  # type: ignore[arg-type]
    while walk.go_on():
        pass
    return walk.found()


def grow(conn: redis.Redis, broker: Broker, seed: int) -> list[str]:
    """A graph of some hundred jobs in two queues: chains, fans, jobs that have ended or are gone, and a name that was given anew."""
    chance, names = random.Random(seed), list[str]()
    for n in range(chance.choice((40, 150, 450))):
        near = names[-chance.choice((1, 5, 200)) :]
        parents = chance.sample(near, min(len(near), chance.choice((0, 1, 1, 2, 3))))
        signed = [chance.choice(("", "", "?", "~")) + one for one in parents]
        queue = chance.choice(("q", "q", "q", "other"))
        give(broker, queue, child(f"j{n}", *signed) if signed else new(f"j{n}"))
        names.append(f"j{n}")
    hand = Hand(broker, "q", "other")
    for _ in range(chance.choice((0, 20))):
        if not (held := hand.claim(5)):
            break
        hand.turn(*(outcome(one, chance.choice(("finished", "finished", "failed"))) for one in held))
        settle(broker)
    for one in chance.sample(names, 5):
        conn.delete(f"rq:job:{one}")
    return names


@pytest.mark.parametrize("seed", range(8))
def test_it_finds_what_a_read_level_by_level_finds(conn: redis.Redis, broker: Broker, seed: int) -> None:
    names = grow(conn, broker, seed)
    there = [one for one in names if conn.exists(f"rq:job:{one}")]
    scopes = (EVERYTHING, Scope(("q",)))
    for one in random.Random(seed).sample(there, 6):
        for limit, scope in ((1000, scopes[0]), (1000, scopes[1]), (25, scopes[0]), (1, scopes[0])):
            if not scope.allows(codec.text(conn.hget(f"rq:job:{one}", "origin"))):
                continue
            assert tree(Inspector(conn), one, limit, scope) == by_levels(conn, one, limit, scope), (one, limit, scope)


# -- members of a batch


def test_members_are_counted_by_function_and_state(conn: redis.Redis, broker: Broker) -> None:
    begin(broker, "b")
    begin(broker, "inner", "b")
    add(broker, "b", "a1", "a2", "a3", func="shop.send")
    add(broker, "b", "c1", func="shop.bill")
    hand = Hand(broker, "q")
    hand.turn(*map(outcome, hand.claim(2)))
    conn.delete("rq:job:a1", "rq:job:a3")
    conn.hdel("rq:job:c1", "func")
    conn.hset("rq:job:c1", "data", '["shop.older",null,[],{}]')
    inspector = Inspector(conn)
    looked, found = inspector.count_members("b")
    assert looked == 5
    assert sorted(found, key=str) == sorted(
        [
            MemberCount("", "finished", 1),
            MemberCount("", "open", 1),
            MemberCount("#", "open", 1),
            MemberCount("shop.older", "queued", 1),
            MemberCount("shop.send", "finished", 1),
        ],
        key=str,
    )
    parts = [inspector.count_members("b", first, 2) for first in (0, 2, 4, 6)]
    assert [looked for looked, _ in parts] == [2, 2, 1, 0]
    counted = Counter[tuple[str, str]]()
    for _, some in parts:
        counted.update({(one.function, one.state): one.count for one in some})
    assert counted == {(one.function, one.state): one.count for one in found}
    assert inspector.count_members("nobody") == (0, [])


def test_members_whose_records_are_foreign_are_counted(conn: redis.Redis, broker: Broker) -> None:
    begin(broker, "b")
    add(broker, "b", "a", "c", "d")
    conn.delete("rq:job:a")
    conn.lpush("rq:job:a", "x")
    for name, fields in (("c", {"data": "x" * 9000}), ("d", {"serializer": "pickle", "data": "x"})):
        conn.hdel(f"rq:job:{name}", "func")
        conn.hset(f"rq:job:{name}", mapping=fields)
    looked, found = Inspector(conn).count_members("b")
    assert (looked, sorted((one.function, one.state, one.count) for one in found)) == (3, [("", "open", 1), ("", "queued", 2)])
