"""Jobs with a key that meet a worker without their task: they hand their slot on, and come to run all the same."""

from __future__ import annotations

import pytest
import redis

from fusion.store.layout.records import Claimed, ClaimFilter
from fusion.store.write.broker import Broker
from tests.kit.hands import TASK, Hand, fields_of, ids, now_ms, outcome, status_of
from tests.store.limits_hands import faults, give, holders, waiting

OTHER = b'["tasks.other.run",null,[],{}]'
HELD = f"held:q:{TASK}"
LACKS, HAS = ClaimFilter(lacking={TASK: "no such task"}), ClaimFilter(sets=(HELD,))


@pytest.fixture
def hands(broker: Broker) -> tuple[Hand, Hand]:
    """One lacks the task, the other has it; a job of it is the key's first and another one runs in its place: the worker that has the task
    finds no slot for it."""
    lacks, has = Hand(broker, "q"), Hand(broker, "q", name="host.2")
    give(broker, "q", "a")
    give(broker, "q", "b", "c", data=OTHER)
    assert lacks.turn(slots=[0], claim_filter=LACKS).jobs == []
    return lacks, has


def audit(conn: redis.Redis) -> int:
    Broker(conn).clean()
    return int(conn.get("rq:limits:audit") or 0)


def test_it_is_not_handed_on_for_ever(conn: redis.Redis, broker: Broker, hands: tuple[Hand, Hand]) -> None:
    lacks, has = hands
    running: dict[str, list[Claimed]] = {lacks.name: [], has.name: []}
    order: list[str] = []
    for number in range(12):  # who lacks the task always comes first, and there are always others of the key
        give(broker, "q", f"d{number}", data=OTHER)
        for hand, wishes, tells in ((lacks, LACKS, True), (lacks, LACKS, False), (has, HAS, True)):
            mine = running[hand.name]
            ended = [mine.pop() for _ in range(len(mine) * tells)]
            mine += hand.turn(*map(outcome, ended), slots=[0], claim_filter=wishes).jobs
            order += ids(mine[-1:]) if mine and mine[-1].id not in order else []
            assert faults(conn) == []
    assert order[:3] == ["b", "a", "c"], order
    assert audit(conn) == 0


def test_it_keeps_its_slot_for_a_worker_that_wanted_it_and_not_for_long(
    conn: redis.Redis, broker: Broker, hands: tuple[Hand, Hand]
) -> None:
    lacks, has = hands
    (b,) = lacks.turn(slots=[0], claim_filter=LACKS).jobs
    assert holders(conn) == ["b"], "nobody wanted it yet: it hands its slot on"
    assert has.turn(slots=[0], claim_filter=HAS).jobs == []
    assert waiting(conn) == ["a", "c"]
    assert lacks.turn(outcome(b), slots=[0], claim_filter=LACKS).jobs == []
    assert (fields_of(conn, "a")["waits_in"], holders(conn), waiting(conn)) == (HELD, ["a"], ["c"])
    assert faults(conn) == []
    assert audit(conn) == 0
    due = conn.zscore("rq:limits:due", "k a held") or 0
    assert 29_000 < due - now_ms(conn) <= 30_000
    conn.zadd("rq:limits:due", {"k a held": 1})
    broker.promote()
    assert (status_of(conn, "a"), holders(conn), waiting(conn)) == ("blocked", ["c"], []), "that worker did not come"
    assert faults(conn) == []
    (c,) = lacks.turn(slots=[0], claim_filter=LACKS).jobs
    lacks.tell(c)
    assert ids(has.turn(slots=[0], claim_filter=HAS).jobs) == ["a"]


def test_one_that_keeps_a_slot_again_keeps_it_as_long_again(conn: redis.Redis, broker: Broker, hands: tuple[Hand, Hand]) -> None:
    lacks, has = hands
    (b,) = lacks.turn(slots=[0], claim_filter=LACKS).jobs
    has.turn(slots=[0], claim_filter=HAS)
    lacks.turn(outcome(b), slots=[0], claim_filter=LACKS)
    conn.zadd("rq:limits:due", {"k a held": now_ms(conn) + 5_000})
    (a,) = has.turn(slots=[0], claim_filter=HAS).jobs
    has.tell(a, "held", reason="no such task", fields={"task": TASK})
    (c,) = lacks.turn(slots=[0], claim_filter=LACKS).jobs
    assert has.turn(slots=[0], claim_filter=HAS).jobs == []
    assert lacks.turn(outcome(c), slots=[0], claim_filter=LACKS).jobs == []
    assert (holders(conn), waiting(conn)) == (["a"], [])
    assert (conn.zscore("rq:limits:due", "k a held") or 0) - now_ms(conn) > 29_000, "what is left of the first time is not its"


def test_the_time_of_one_that_has_started_since_takes_no_slot(
    conn: redis.Redis, broker: Broker, hands: tuple[Hand, Hand]
) -> None:
    lacks, has = hands
    (b,) = lacks.turn(slots=[0], claim_filter=LACKS).jobs
    has.turn(slots=[0], claim_filter=HAS)
    lacks.turn(outcome(b), slots=[0], claim_filter=LACKS)
    assert ids(has.turn(slots=[0], claim_filter=HAS).jobs) == ["a"]
    conn.zadd("rq:limits:due", {"k a held": 1})
    broker.promote()
    assert (holders(conn), waiting(conn)) == (["a"], ["c"])
    assert faults(conn) == []


def test_one_that_ran_gives_way_again_to_a_better_one(conn: redis.Redis, broker: Broker, hands: tuple[Hand, Hand]) -> None:
    lacks, has = hands
    (b,) = lacks.turn(slots=[0], claim_filter=LACKS).jobs
    has.turn(slots=[0], claim_filter=HAS)
    lacks.tell(b)
    (a,) = has.claim(1)
    give(broker, "q", "high", priority=2)
    has.tell(a, "held", reason="no such task", fields={"task": TASK})
    assert (status_of(conn, "a"), holders(conn), waiting(conn)) == ("blocked", ["high"], ["c"])
    assert faults(conn) == []


@pytest.mark.parametrize("way", ["cancel", "delete"])
def test_whatever_ends_it_hands_its_slot_on(conn: redis.Redis, broker: Broker, hands: tuple[Hand, Hand], way: str) -> None:
    lacks, has = hands
    (b,) = lacks.turn(slots=[0], claim_filter=LACKS).jobs
    has.turn(slots=[0], claim_filter=HAS)
    lacks.turn(outcome(b), slots=[0], claim_filter=LACKS)
    getattr(broker, way)("a" if way == "cancel" else ["a"])
    assert (holders(conn), waiting(conn)) == (["c"], [])
    assert faults(conn) == []
