"""Five hooks that every way of a job calls: arrive, claim, return, leave, end. Here they write down who called."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from fusion.store.layout.records import ClaimFilter
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.kit.armed import HOOKS, armed
from tests.kit.hands import LEASE, Hand, expire_lease, may_reap, new, over, put
from tests.store.cron_hands import Cron
from tools.check_lua import sources
from tools.lua_build import joined

NOTES = "rq:noted"
NOTE = {hook: f"redis.call('RPUSH', '{NOTES}', '{hook} ' .. id)" for hook in HOOKS}
#: Which hooks a script reaches: the others reach none. Wherever a job ends a callback's delivery may arrive.
REACHED = {
    "cancel": "arrive end",
    "cancel_batch": "arrive end",
    "clean": "arrive end",
    "cron_run": "arrive end",
    "cron_tick": "arrive end",
    "delete": "end",
    "deregister": "arrive return end",
    "empty": "end",
    "enqueue": "arrive end",
    "expire": "arrive end",
    "promote": "arrive end",
    "prune": "arrive return end",
    "reap": "arrive return end",
    "release": "arrive end",
    "stop": "arrive end",
    "requeue": "arrive",
    "restore": "arrive",
    "tell_verdict": "arrive",
    "tend_batches": "arrive end",
    "turn": "arrive claim return leave end",
    "follow": "arrive claim leave end",
}
TASK = "tasks.sms.sendSMS"


def test_which_hooks_a_script_reaches() -> None:
    bodies = {name: "\n".join(line.text for line in joined(name)) for name in sources() if not name.startswith("include/")}
    found = {name: " ".join(hook for hook in HOOKS if f"on_{hook}(" in body) for name, body in bodies.items()}
    assert {name: hooks for name, hooks in found.items() if hooks} == REACHED


def test_a_job_that_is_bound_to_nothing_costs_no_command_more() -> None:
    """Each hook asks one table, and does nothing unless the job stands in it."""
    texts = "".join(sources().values())
    for hook in HOOKS:
        found = re.search(rf"^local function on_{hook}\(.*\)\n((?:  .*\n)+)end$", texts, re.MULTILINE)
        assert found is not None, hook
        first, *others = [line.strip() for line in found[1].splitlines()]
        assert (first.startswith("if tied[key] then ") and not others) or (first, others[-1]) == ("if tied[key] then", "end")


@pytest.fixture
def broker(conn: redis.Redis) -> Iterator[Broker]:
    with armed(NOTE):
        yield Broker(conn)


class Calls:
    """What the hooks were told since the last look."""

    def __init__(self, conn: redis.Redis) -> None:
        self._conn = conn

    def __call__(self) -> list[str]:
        found: list[Any] = self._conn.lrange(NOTES, 0, -1)
        self._conn.delete(NOTES)
        return [line.decode() for line in found]


@pytest.fixture
def calls(conn: redis.Redis) -> Calls:
    return Calls(conn)


def test_arriving(conn: redis.Redis, broker: Broker, calls: Calls) -> None:
    put(broker, "q", "a", "b")
    broker.enqueue("q", [new("front", front=True), new("later", delay=60.0)], "n")
    put(broker, "scheduler", "inbox")
    assert calls() == ["arrive a", "arrive b", "arrive front", "arrive inbox"]
    conn.zadd("rq:scheduler:scheduled_jobs", {"later": 1})
    broker.promote()
    assert calls() == ["arrive later"]
    Hand(broker, "scheduler").claim(5)
    assert calls() == ["claim inbox"], "it arrived when it was enqueued"


def test_what_outsiders_wrote_arrives_when_it_is_met(conn: redis.Redis, broker: Broker, calls: Calls) -> None:
    for job_id in ("old", "pushed", "adopted"):
        conn.hset(f"rq:job:{job_id}", mapping={"data": b'["f", null, [], {}]', "status": "queued"})
    conn.zadd("rq:queue:q", {"old": 1})
    conn.rpush("rq:queue:scheduler", "pushed")
    hand = Hand(broker, "q", "scheduler")
    hand.claim(5)
    assert sorted(calls()) == ["arrive old", "arrive pushed", "claim old", "claim pushed"]
    conn.zadd("rq:queue:q", {"adopted": 1})
    broker.clean()
    assert calls() == ["arrive adopted"]
    hand.claim(5)
    assert calls() == ["claim adopted"]


def test_a_tick_and_a_run_by_hand_arrive(conn: redis.Redis, calls: Calls) -> None:
    with armed(NOTE):
        cron = Cron(conn)
        cron.tick(cron.now - 60)
        cron.run()
    assert [call.split()[0] for call in calls()] == ["arrive", "arrive"]


@pytest.mark.parametrize(
    ("kind", "more", "expected"),
    [
        ("finished", {}, "end"),
        ("failed", {"reason": "r"}, "end"),
        ("retry", {"reason": "r", "delay": 9.0}, "leave"),
        ("retry", {"reason": "r"}, "return"),
        ("later", {"reason": "r", "delay": 9.0}, "leave"),
        ("held", {"reason": "r", "delay": 9.0}, "leave"),
        ("held", {"reason": "r", "delay": 9.0, "fields": {"task": "shop.f"}}, "leave"),
        ("release", {"reason": "r"}, "return"),
        ("lost", {"reason": "r"}, "return"),
        ("struck", {"reason": "r"}, "return"),
    ],
)
def test_an_execution_ends(broker: Broker, calls: Calls, kind: str, more: dict[str, Any], expected: str) -> None:
    put(broker, "q", "a")
    hand = Hand(broker, "q")
    claimed = hand.take()
    assert calls() == ["arrive a", "claim a"]
    assert hand.tell(claimed, kind, **more) == "ok"
    assert calls() == [f"{expected} a"]
    assert hand.tell(claimed, kind, **more) in ("ok", "stale")
    assert calls() == [], "told again"


def test_a_job_that_was_canceled_while_it_ran_ends(broker: Broker, calls: Calls) -> None:
    put(broker, "q", "a", "b")
    hand = Hand(broker, "q")
    jobs = hand.claim(2)
    broker.cancel("a"), broker.cancel("b")
    calls()
    hand.tell(jobs[0], "retry", reason="r", delay=9.0)
    hand.tell(jobs[1], "release", reason="r")
    assert calls() == ["end a", "end b"]


def test_a_lost_job_is_requeued_or_failed_by_its_policy(conn: redis.Redis, broker: Broker, calls: Calls) -> None:
    put(broker, "q", *"abc", on_lost="again")
    hand, other = Hand(broker, "q"), Hand(broker, "q", name="host.2")
    hand.claim(1), other.claim(1), hand.claim(1)
    conn.hset("rq:job:c", "on_lost", "fail")
    calls()
    broker.deregister("host.2", other.incarnation)
    assert calls() == ["return b"]
    may_reap(conn)
    expire_lease(conn, "q", "a")
    broker.reap(LEASE, 0)
    assert calls() == ["return a"]
    broker.prune(LEASE, "host.1")
    assert calls() == ["end c"]


def test_after_a_pause_a_lost_job_arrives_though_it_never_left(conn: redis.Redis, broker: Broker, calls: Calls) -> None:
    put(broker, "q", "a", on_lost="again")
    conn.hset("rq:job:a", "lost", 1)
    hand = Hand(broker, "q")
    hand.tell(hand.take(), "lost", reason="r")
    conn.zadd("rq:scheduler:scheduled_jobs", {"a": 1}, xx=True)
    broker.promote()
    assert calls() == ["arrive a", "claim a", "return a", "arrive a"]


def test_a_set_of_blocked_jobs_is_left_by_arriving(broker: Broker, calls: Calls) -> None:
    put(broker, "q", "a")
    hand = Hand(broker, "q")
    hand.turn(slots=[0], claim_filter=ClaimFilter(lacking={TASK: "no such task"}))
    assert calls() == ["arrive a", "leave a"]
    assert hand.turn(slots=[0], claim_filter=ClaimFilter(sets=(f"held:q:{TASK}",))).jobs
    assert calls() == ["arrive a", "claim a"]


def _canceled(conn: redis.Redis, broker: Broker) -> None:
    broker.cancel("a")


def _expired(conn: redis.Redis, broker: Broker) -> None:
    over(conn, "a")
    broker.expire()


def _expired_in_a_claim(conn: redis.Redis, broker: Broker) -> None:
    over(conn, "a")
    Hand(broker, "q").claim()


def _deleted(conn: redis.Redis, broker: Broker) -> None:
    broker.delete(["a"])


def _emptied(conn: redis.Redis, broker: Broker) -> None:
    broker.empty("q", 50)


def _corrupt(conn: redis.Redis, broker: Broker) -> None:
    conn.delete("rq:job:a")
    Hand(broker, "q").claim()


@pytest.mark.parametrize("end", [_canceled, _expired, _expired_in_a_claim, _deleted, _emptied, _corrupt])
def test_a_waiting_job_ends(conn: redis.Redis, broker: Broker, calls: Calls, end: Callable[[redis.Redis, Broker], None]) -> None:
    put(broker, "q", "a", ttl=60)
    end(conn, broker)
    assert calls() == ["arrive a", "end a"]
    broker.delete(["a"])
    assert calls() == [], "it has ended"


@pytest.mark.parametrize("end", [_canceled, _expired, _deleted, _emptied])
def test_a_blocked_job_ends(conn: redis.Redis, broker: Broker, calls: Calls, end: Callable[[redis.Redis, Broker], None]) -> None:
    put(broker, "q", "a", ttl=60)
    Hand(broker, "q").turn(slots=[0], claim_filter=ClaimFilter(lacking={TASK: "no such task"}))
    conn.zadd("rq:expiring", {"a": 1})
    end(conn, broker)
    assert calls() == ["arrive a", "leave a", "end a"]


def test_one_that_was_held_for_too_long_ends(conn: redis.Redis) -> None:
    with armed(NOTE):
        broker = Broker(conn, FleetConstants(hold_timeout=0))
        put(broker, "q", "a")
        Hand(broker, "q").turn(slots=[0], claim_filter=ClaimFilter(lacking={TASK: "no such task"}))
        may_reap(conn)
        broker.reap(LEASE, 0)
    assert Calls(conn)() == ["arrive a", "leave a", "end a"]


def test_a_requeued_job_arrives_again(conn: redis.Redis, broker: Broker, calls: Calls) -> None:
    put(broker, "q", "a", "b")
    broker.cancel("a"), broker.cancel("b")
    calls()
    broker.requeue(["a"], "n")
    broker.requeue(["b"], "n", delay=60.0)
    assert calls() == ["arrive a"]


def test_a_callbacks_delivery_arrives_and_ends_like_a_job(broker: Broker, calls: Calls) -> None:
    put(broker, "q", "a", callback_url="https://x/", hooks=1)
    hand, courier = Hand(broker, "q"), Hand(broker, "_callbacks", name="courier")
    hand.tell(hand.take(), "finished", fields={"result": "1"})
    delivery = courier.take()
    courier.tell(delivery)
    ways = ["arrive a", "claim a", "end a", f"arrive {delivery.id}", f"claim {delivery.id}", f"end {delivery.id}"]
    assert calls() == ways
