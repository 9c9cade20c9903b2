"""The scripts that read graphs of jobs and count members of batches: bounded, whatever stands in Redis."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import pytest
import redis

from fusion.enqueue.graph import Graph, write
from fusion.jobs.failures import CHUNK
from fusion.jobs.tree import _WITH_QUEUES, JobTree, _Walk, tree
from fusion.kernel.scope import EVERYTHING, Scope
from fusion.store.layout import codec
from fusion.store.read.graph_inspector import MOST, WORK, GraphInspector, MemberCount, Way
from fusion.store.read.inspector import Inspector
from fusion.store.read.tolerant import forgiving
from fusion.store.scripting.host import run
from fusion.store.write.broker import Broker
from tests.kit.hands import Hand, everything, new, outcome, wire
from tests.store.batch_hands import add, begin
from tests.store.kin_hands import child, give, settle

AT = "2026-01-01T00:00:00.000000Z"


def chain(broker: Broker, length: int) -> list[str]:
    """A chain of jobs that wait for each other."""
    names = [f"j{n}" for n in range(length)]
    give(broker, "q", new(names[0]))
    for first in range(1, length, 20):
        some = range(first, min(first + 20, length))
        give(broker, "q", *(child(names[n], names[n - 1]) for n in some))
    return names


def ids(inspector: GraphInspector, *starts: tuple[Way, str], most: int = MOST) -> list[str]:
    return [one.id for one in inspector.walk_graph(starts, _WITH_QUEUES, most)]


# -- one call


#: Graphs of 300 jobs: the parents of each but the first. They are read in two calls, each within 12.5 million instructions (benchmarks/instructions).
SHAPES: dict[str, Callable[[int], Iterable[int]]] = {
    "chain": lambda n: [n - 1],
    "fan out": lambda n: [0],
    "fan in": lambda n: range(299) if n == 299 else [],
    "chain, then fan": lambda n: [min(n - 1, 59)],
    "tree": lambda n: [(n - 1) // 2],
    "diamond": lambda n: range(1, 299) if n == 299 else [0],
    "row of diamonds": lambda n: [n - 2, n - 1] if n % 3 == 0 else [n // 3 * 3],
    "ten layers": lambda n: [n // 30 * 30 - 30 + (3 * n + 7 * i) % 30 for i in range(3)] if n >= 30 else [0],
}


def of_shape(broker: Broker, parents: Callable[[int], Iterable[int]], state: str) -> dict[str, set[str]]:
    """Make a graph of 300 jobs that wait, or have ended; return the parents of each."""
    named = {f"j{n}": {f"j{one}" for one in (parents(n) if n else ())} for n in range(300)}
    run(write(Graph.of([child(one, *sorted(of)) for one, of in named.items()]), "q", broker))
    if state == "finished":
        for one in named:
            broker.connection.hset(
                f"rq:job:{one}", mapping=dict.fromkeys(("enqueued_at", "started_at", "ended_at"), AT) | {"status": state}
            )
            broker.connection.delete(f"rq:job:{one}:children")
    return named


def behind(job: str, ways: Mapping[str, Iterable[str]]) -> set[str]:
    """All that is reached from a job, and the job."""
    found = [job]
    for one in found:  # grows while it is read
        found += [other for other in ways[one] if other not in found]
    return {*found}


@pytest.mark.parametrize("state", ["deferred", "finished"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_graph_of_300_is_two_calls(conn: redis.Redis, broker: Broker, shape: str, state: str) -> None:
    parents = of_shape(broker, SHAPES[shape], state)
    children: dict[str, list[str]] = {one: [] for one in parents}
    for one, of in parents.items():
        for parent in of:
            children[parent].append(one)
    inspector = Inspector(conn)
    for at in ("j0", "j150", "j299"):
        with wire(conn) as sent:
            found = tree(inspector, at)
        assert len([one for one in sent if one == "EVALSHA"]) <= 2, (at, sent)
        assert {*sent} <= {"EVALSHA", "EVAL"}
        assert {one.id for one in found.nodes} == behind(at, parents) | behind(at, children)
        assert all({*one.parents} == parents[one.id] & {other.id for other in found.nodes} for one in found.nodes)


def test_very_many_parents_are_more_calls(conn: redis.Redis, broker: Broker) -> None:
    """Ten layers of 30 jobs, each behind all 30 before it: 8,400 lines."""
    of_shape(broker, lambda n: range(n // 30 * 30 - 30, n // 30 * 30) if n >= 30 else [], "deferred")
    inspector = Inspector(conn)
    with wire(conn) as sent:
        found = tree(inspector, "j0")
    assert 2 < len([one for one in sent if one == "EVALSHA"]) <= 5 and len(found.nodes) == 271


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
    found = inspector.walk_graph([("d", f"p{n}") for n in range(10)], _WITH_QUEUES)
    assert 1 <= len(found) < 10 and 4 * sum(len(one.children or ()) for one in found) <= WORK
    assert all(1000 <= len(one.children or ()) < 4000 for one in found)
    conn.zadd("rq:job:wide:children", {f"x{n}": n for n in range(100)})
    assert len(inspector.walk_graph([("d", "wide")], _WITH_QUEUES, 10_000)) == 101
    assert WORK // 60 < len(inspector.walk_graph([("u", f"n{n}") for n in range(400)], _WITH_QUEUES)) < MOST


def test_a_job_with_more_than_is_left_of_a_call_begins_the_next(conn: redis.Redis, broker: Broker) -> None:
    for n in range(3):
        conn.zadd(f"rq:job:wide{n}:children", {f"c{n}-{child}": child for child in range(500)})
        conn.sadd(f"rq:job:wide{n}:dependents", *(f"c{n}-{child}" for child in range(1000)))
        parts = [json.dumps([f"p{n}-{part}-{parent}" for parent in range(100)]) for part in range(11)]
        conn.hset(f"rq:job:deep{n}", mapping={"status": "deferred", "func": "f", "parents": parts[0]})
        conn.hset(f"rq:job:deep{n}:parents", mapping={str(part): parts[part] for part in range(1, 11)})
    inspector = Inspector(conn)
    assert ids(inspector, ("d", "wide0"), ("d", "wide1"), ("d", "none")) == ["wide0"]
    assert ids(inspector, ("d", "wide0"), *(("u", f"deep{n}") for n in range(3))) == ["wide0", "deep0"]
    assert len(inspector.walk_graph([("d", "wide1")], _WITH_QUEUES)[0].children or ()) == 1000
    assert len(inspector.walk_graph([("u", "deep1")], _WITH_QUEUES)[0].further) == 10
    assert {one.level for one in tree(inspector, "deep1").nodes} == {0, -1}


def test_a_large_set_of_children_is_read_whole_up_to_a_thousand(conn: redis.Redis, broker: Broker) -> None:
    for count, found in ((999, 999), (1000, 1000), (40_000, 1000)):
        conn.delete("rq:job:p:dependents")
        conn.sadd("rq:job:p:dependents", *(f"c{n}" for n in range(count)))
        (parent, *_) = Inspector(conn).walk_graph([("d", "p")], _WITH_QUEUES)
        assert found <= len(parent.children or ()) <= max(found, 1100) and len(set(parent.children or ())) == len(
            parent.children or ()
        )
        assert set(parent.children or ()) <= {f"c{n}" for n in range(count)}


def test_parents_for_which_a_record_has_no_room_are_read(conn: redis.Redis, broker: Broker) -> None:
    parents = [f"p{n}" for n in range(250)]
    conn.hset("rq:job:c", mapping={"status": "deferred", "func": "f", "data": "[[],{}]", "parents": json.dumps(parents[:100])})
    conn.hset("rq:job:c:parents", mapping={"1": json.dumps(parents[100:200]), "2": json.dumps(parents[200:])})
    (found, *others) = Inspector(conn).walk_graph([("u", "c")], _WITH_QUEUES)
    assert [json.loads(part) for part in found.further] == [parents[100:200], parents[200:]]
    assert [one.id for one in others] == parents[: len(others)] and {one.row and one.row["status"] for one in others} == {None}


@pytest.mark.parametrize(
    "listed", [r'["\ud800"]', r'["?\ud800","j0"]', "5", '"x"', "[" * 100_000, '{"a":1}', "[1e999,null,[]]", '["é"]']
)
def test_what_a_record_names_as_parents_and_is_no_id_is_none(conn: redis.Redis, broker: Broker, listed: str) -> None:
    """Another program wrote it. Half of a pair could not even be asked for."""
    chain(broker, 2)
    conn.hset("rq:job:j1", "parents", listed)
    found = {one.id: one.level for one in tree(Inspector(conn), "j1").nodes}
    assert found["j1"] == 0 and all(one.isascii() for one in found)
    assert ("j0" in found) is ("j0" in listed)


def test_a_resend_changes_nothing_and_answers_the_same(conn: redis.Redis, broker: Broker) -> None:
    chain(broker, 30)
    begin(broker, "b")
    add(broker, "b", *(f"m{n}" for n in range(9)))
    inspector, before = Inspector(conn), everything(conn, clocks=True)
    answers = []
    for _ in range(2):
        conn.script_flush()
        answers.append((inspector.walk_graph([("b", "j9")], _WITH_QUEUES), inspector.count_members("b")))
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
            self._rows.update(zip(part, self._inspector.table(part, _WITH_QUEUES), strict=True))

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
