"""What a plain job gets by the short ways of the scripts is what the general way gives it: two fleets under two prefixes get the same calls,
one of them with scripts that know no short way, and hold the same in the end."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusion.store.layout.records import Claimed, Commit, NewJob, TurnRequest
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.kit.general import counted_scripts
from tests.kit.hands import new
from tests.kit.still import everything_at_once

PREFIXES = ("rq:p:", "rq:g:")
#: What a job may have besides: one thing each.
FEATURES: dict[str, dict[str, Any]] = {
    "ttl": {"ttl": 3600.0},
    "gone": {"ttl": 0.001},
    "retry": {"retryCount": 3, "retry": '{"delays":[1]}'},
    "meta": {"meta": '{"a":1}'},
    "timeout": {"timeout": 60},
    "priority": {"priority": 2},
    "low": {"priority": 0},
    "front": {"front": True},
    "later": {"delay": 60.0},
    "log_tag": {"log_tag": "x"},
    "no result": {"result_ttl": 0},
    "key": {"ties": "k", "concurrency_key": "k", "max_concurrent": "1"},
    "key 2": {"ties": "k", "concurrency_key": "k2", "max_concurrent": "2"},
    "key 3": {"ties": "k", "concurrency_key": "k2", "max_concurrent": "3"},
    "key 2, high": {"ties": "k", "concurrency_key": "k2", "max_concurrent": "2", "priority": 2},
    "key 2, discard": {"ties": "kd", "concurrency_key": "k2", "max_concurrent": "2"},
    "key, timeout": {"ties": "k", "concurrency_key": "k", "timeout": 60},
    "key, no result": {"ties": "k", "concurrency_key": "k", "result_ttl": 0},
    "fair": {"ties": "", "fair_key": "f"},
    "unique": {"ties": "u", "unique_key": "u", "unique_until": "end"},
    "hooks": {"hooks": 1, "callback_url": "https://x.example/"},
    "full record": {"data": None},
}
KINDS = ("finished", "finished", "finished", "failed", "retry", "release", "lost", "later", "stopped", "struck")
QUEUE = "q"
#: Where in a script an error arose.
_PLACE = re.compile(r"[0-9a-f]{40}|user_script: ?\d+")


class Side:
    """One of the two fleets."""

    def __init__(self, conn: redis.Redis, prefix: str, general: bool) -> None:
        self.conn, self.prefix = conn, prefix
        if keys := list(conn.scan_iter(f"{prefix}*", count=1000)):
            conn.delete(*keys)
        with counted_scripts(general=general):
            self.broker = Broker(conn, FleetConstants(prefix=prefix), server_version=(7,))
            for name in ("register", "enqueue", "turn", "cancel", "requeue", "expire", "promote"):
                self.broker._script(name)
        self.token = 0
        self.held: list[Claimed] = []
        self.last: tuple[Any, ...] = ()
        self.answers: list[str] | None = None

    def begin(self) -> Side:
        self.broker.register("host.1", "i", 30.0, 420, {"queues": QUEUE})
        self.conn.set(f"{self.prefix}callbacks:secret", "s")  # which a worker makes by chance
        return self

    def enqueue(self, jobs: list[NewJob], nonce: str) -> Any:
        return self.broker.enqueue(QUEUE, jobs, nonce)

    def turn(self, kinds: tuple[str, ...], slots: int, more: dict[str, Any]) -> Any:
        self.token += 1
        self.conn.delete(f"{self.prefix}wake:{QUEUE}", f"{self.prefix}wake:{QUEUE}:high")  # who waited there takes the turn
        told = [
            Commit(
                kind,
                one.id,
                one.execution_id,
                fields=more if kind == "finished" else {},
                delay=1.0 if kind == "later" else 0.0,
                keyed=one.keyed,
            )
            for kind, one in zip(kinds, self.held, strict=False)
        ]
        self.held = self.held[len(told) :]
        self.last, self.answers = ("host.1", "i", self.token, told, [QUEUE], [0] * slots, 30.0, 420), None
        answer = self.broker.turn(TurnRequest(*self.last))
        self.answers = answer.answers
        self.held += answer.jobs
        return answer

    def again(self) -> Any:
        if not self.last:
            return None
        answer = self.broker.turn(TurnRequest(*self.last))
        assert self.answers in (None, answer.answers), "whatever has happened since, a resend answers alike"
        return answer

    def texts(self, answer: object) -> str:
        return _PLACE.sub("", repr(answer).replace(self.prefix, ""))

    def all(self) -> dict[str, Any]:
        found = {}
        for key, kind, left, content in everything_at_once(self.conn, f"{self.prefix}*"):
            if kind == "stream":
                content = [list(fields.items()) for _, fields in content]
            elif kind in ("hash", "set"):
                content = sorted(content.items() if kind == "hash" else content)
            found[key.removeprefix(self.prefix)] = kind, left, self.texts(content)
        return found


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for key, (kind, left, content) in one.items():
        assert (kind, content) == other[key][::2], key
        assert abs(left - other[key][1]) <= 1000, key


# -- what the queue, or Redis, is like before


def _paused(side: Side) -> None:
    side.conn.set(f"{side.prefix}paused:{QUEUE}", "1")


def _suspended(side: Side) -> None:
    side.conn.set(f"{side.prefix}suspended", "1")


def _full(side: Side) -> None:
    side.conn.hset(f"{side.prefix}gates", QUEUE, "max_length=2")


def _limited(side: Side) -> None:
    side.conn.hset(f"{side.prefix}gates", QUEUE, "limit=1")


def _wildcard(side: Side) -> None:
    side.conn.hset(f"{side.prefix}wildcards", "q*", "1 ^q.*$")


def _list(side: Side) -> None:
    side.conn.rpush(f"{side.prefix}queue:{QUEUE}", "old")


def _other_type(side: Side) -> None:
    side.conn.set(f"{side.prefix}queue:{QUEUE}", "x")


def _records(side: Side) -> None:
    """Another program's record, what a deleted job left, and one that has a time to live."""
    side.conn.hset(f"{side.prefix}job:j0", mapping={"status": "queued", "origin": QUEUE, "data": "x"})
    side.conn.zadd(f"{side.prefix}job:j1:children", {"j9": 1})
    side.conn.hset(f"{side.prefix}job:j2", mapping={"status": "finished", "origin": QUEUE, "seq": "", "func": "f"})
    side.conn.expire(f"{side.prefix}job:j2", 500)


def _remains(side: Side) -> None:
    """A job was deleted that others wait for."""
    side.conn.zadd(f"{side.prefix}job:j0:children", {"j9": 1})


def _no_schema(side: Side) -> None:
    side.conn.delete(f"{side.prefix}schema")


PLACES: dict[str, Callable[[Side], None]] = {
    one.__name__.strip("_"): one
    for one in (_paused, _suspended, _full, _limited, _wildcard, _list, _other_type, _records, _remains, _no_schema)
}

JOBS = st.lists(st.one_of(st.none(), st.none(), st.sampled_from(sorted(FEATURES))), min_size=1, max_size=3)
ENQUEUE = st.tuples(st.just("enqueue"), JOBS, st.integers(0, 6), st.booleans())
STEP = st.one_of(
    ENQUEUE,
    st.tuples(
        st.just("turn"), st.lists(st.sampled_from(KINDS), max_size=3).map(tuple), st.integers(0, 4), st.sampled_from(("1", None))
    ),
    st.tuples(st.just("turn again")),
    st.tuples(st.just("enqueue again")),
    st.tuples(st.sampled_from(("cancel", "requeue")), st.integers(0, 6)),
    st.tuples(st.just("write"), st.integers(0, 6), st.sampled_from(("cancel", "ties", "reason", "execution_id"))),
)


def job(job_id: str, feature: str | None) -> NewJob:
    more = dict(FEATURES[feature]) if feature else {}
    if feature == "full record":
        return NewJob(job_id, 1, {"data": '["f",null,[],{}]', "description": "f"})
    return new(job_id, **more)


def do(sides: tuple[Side, Side], step: tuple[Any, ...], sent: list[tuple[list[NewJob], str]]) -> None:
    name, *rest = step
    if name == "enqueue":
        features, first, own = rest
        jobs = [job(f"j{(first + nth) % 9}", feature) for nth, feature in enumerate(features)]
        nonce = "" if own else f"n{len(sent)}"
        sent.append(([replace(one, nonce=one.id) for one in jobs] if own else jobs, nonce))
    if name in ("enqueue", "enqueue again"):
        if not sent:
            return
        both(sides, lambda side: side.enqueue(*sent[-1]))
    elif name == "turn":
        kinds, slots, result = rest
        both(sides, lambda side: side.turn(kinds, slots, {"result": result} if result else {}))
    elif name == "turn again":
        both(sides, lambda side: side.again())
    elif name == "write":  # as another process does while it runs
        for side in sides:
            key = f"{side.prefix}job:j{rest[0]}"
            if side.conn.hget(key, "status") == b"started":
                side.conn.hset(key, rest[1], {"ties": "c", "reason": "x"}.get(rest[1], "1"))
    elif name == "cancel":
        both(sides, lambda side: side.broker.cancel(f"j{rest[0]}"))
    else:
        both(sides, lambda side: side.broker.requeue([f"j{rest[0]}"], f"r{len(sent)}"))


def both(sides: tuple[Side, Side], call: Callable[[Side], Any]) -> None:
    def answer(side: Side) -> str:
        try:
            return side.texts(call(side))
        except AssertionError:
            raise
        except Exception as error:
            text = str(error).partition(" (fusion/store/lua")[0]
            assert "attempt" not in text, (
                "a fault of the script, and both have it"
            )  # "attempt to call", "Script attempted to access"
            return side.texts(f"{type(error).__name__}: {text}")

    assert answer(sides[0]) == answer(sides[1])


def compare(conn: redis.Redis, place: str | None, steps: list[tuple[Any, ...]]) -> None:
    sides = Side(conn, PREFIXES[0], False), Side(conn, PREFIXES[1], True)
    for side in sides:
        side.begin()
    if place:
        for side in sides:
            PLACES[place](side)
    sent: list[tuple[list[NewJob], str]] = []
    for step in steps:
        do(sides, step, sent)
    same(sides[0].all(), sides[1].all())


SETTINGS = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@settings(SETTINGS, max_examples=60)
@given(place=st.one_of(st.none(), st.sampled_from(sorted(PLACES))), steps=st.lists(STEP, min_size=2, max_size=12))
def test_plain_and_general_are_the_same(conn: redis.Redis, place: str | None, steps: list[tuple[Any, ...]]) -> None:
    compare(conn, place, steps)


@pytest.mark.long
@pytest.mark.timeout(300)
@settings(SETTINGS, max_examples=400)
@given(place=st.one_of(st.none(), st.sampled_from(sorted(PLACES))), steps=st.lists(STEP, min_size=2, max_size=25))
def test_plain_and_general_are_the_same_for_long(conn: redis.Redis, place: str | None, steps: list[tuple[Any, ...]]) -> None:
    compare(conn, place, steps)


@pytest.mark.parametrize(("feature", "place"), [*((one, None) for one in (None, *FEATURES)), *((None, one) for one in PLACES)])
def test_a_job_of_each_kind_in_each_place(conn: redis.Redis, feature: str | None, place: str | None) -> None:
    enqueue = ("enqueue", [feature], 0, True)
    steps = [enqueue, ("enqueue again",), ("turn", (), 1, None), ("turn again",), ("turn", ("finished",), 1, "1"), enqueue]
    steps += [
        ("turn", (), 1, None),
        ("turn", ("failed",), 1, None),
        ("requeue", 0),
        ("turn", (), 1, None),
        ("turn", ("finished",), 0, "1"),
    ]
    compare(conn, place, steps)


@pytest.mark.parametrize(
    "jobs",
    [
        ["key 2"] * 5,
        ["key 2"] * 3 + ["key 2, high"] * 3,
        ["key 2"] * 3 + ["key 3"] * 3,
        ["key 2", "key 2", "key 2, discard", "key 2"],
    ],
    ids=["alike", "better ones", "another limit", "one that is discarded"],
)
@pytest.mark.parametrize("before", [[], ["key 2"], ["key 2"] * 3], ids=["alone", "beside one", "behind others"])
def test_jobs_of_one_key_in_one_call(conn: redis.Redis, jobs: list[str], before: list[str]) -> None:
    steps = [("enqueue", before, 6, False)] if before else []
    compare(conn, None, [*steps, ("enqueue", jobs, 0, False), ("turn", (), 3, None), ("turn", ("finished",) * 3, 3, None)])


def test_a_job_of_a_key_that_gets_another_tie_while_it_runs(conn: redis.Redis) -> None:
    steps = [("enqueue", ["key 2"], 0, True), ("turn", (), 1, None), ("write", 0, "ties"), ("turn", ("finished",), 1, "1")]
    compare(conn, None, steps)


def test_what_a_claim_answers_of_a_job_with_one_option(conn: redis.Redis) -> None:
    side = Side(conn, PREFIXES[0], False).begin()
    side.enqueue([replace(job("j0", "timeout"), nonce="j0")], "")
    side.turn((), 1, {})
    assert side.held[0].fields[b"timeout"] == b"60"


def test_a_fresh_record_with_a_time_to_live(conn: redis.Redis) -> None:
    """A job that was put back keeps none, though its record looks new but for that."""
    side = Side(conn, PREFIXES[0], False).begin()
    side.enqueue([job("j0", "meta")], "j0")
    conn.expire(f"{PREFIXES[0]}job:j0", 500)
    side.turn((), 1, {})
    assert conn.ttl(f"{PREFIXES[0]}job:j0") == -1


def test_all_jobs_of_a_turn_have_a_lease(conn: redis.Redis) -> None:
    side = Side(conn, PREFIXES[0], False).begin()
    side.enqueue([job(f"j{n}", None) for n in range(5)], "n")
    side.turn((), 5, {})
    assert sorted(conn.zrange(f"{PREFIXES[0]}wip:{QUEUE}", 0, -1)) == [b"j0", b"j1", b"j2", b"j3", b"j4"]
