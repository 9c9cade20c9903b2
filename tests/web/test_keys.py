"""`GET` of concurrency keys."""

from __future__ import annotations

from urllib.parse import quote

import pytest
import redis

from fusion import Queue
from fusion.job import Job
from fusion.kernel.rates import Rate
from fusion.kernel.timeutil import to_iso
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker
from tests.kit.hands import Hand
from tests.web.harness import Answer, ServerProcess, Tokens


def _get(service: ServerProcess, tokens: Tokens, path: str) -> Answer:
    return service.ask("GET", path, token=tokens.by_scope["read"])


def test_a_concurrency_key_is_told_by_its_figures(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    key = "https://api.example.com/v1:user%42"
    broker, limits = Broker(conn), LimitBroker(conn)
    hand = Hand(broker, "sms")
    for n in range(4):
        Queue("sms", conn).enqueue("tasks.sms.sendSMS", job_id=f"j{n}", concurrency_key=key, max_concurrent=1)
    hand.tell(hand.take())
    hand.take()
    limits.pin_rate(key, Rate.parse("100/60s"))
    limits.pause_limit(key, 60, by="billing", reason="the provider is down")
    shown = _get(service, tokens, f"/api/v1/keys/{quote(key, safe='/')}/stats").json
    assert shown.pop("oldest_enqueued_at") == to_iso(Job.fetch("j2", conn).enqueued_at or Job.fetch("j2", conn).created_at)
    pause, updated, (holder,) = shown.pop("pause"), shown.pop("last_updated"), shown.pop("holders")
    assert (pause["by"], pause["reason"]) == ("billing", "the provider is down")
    assert pause["since"] <= updated < pause["until"]
    assert (holder["job_id"], holder["queue"], holder["status"], holder["started"]) == ("j1", "sms", "started", True)
    assert shown.pop("last_used") <= updated
    totals = {name: shown.pop(name) for name in list(shown) if name.startswith("total_")}
    assert {name: count for name, count in totals.items() if count} == {"total_enqueued": 4, "total_completed": 1}
    assert shown == {
        "key": key, "max_concurrent": 1, "pinned": False, "rate": "100/60s", "rate_pinned": True, "queue_length": 2, "active_count": 1,
        "held_count": 1, "blocked_count": 2, "lock_waiting_count": 0, "paused": True, "held_back_until": None, "stuck": False,
    }  # fmt: skip


def test_a_function_is_the_key_of_its_own_limit(service: ServerProcess, tokens: Tokens, conn: redis.Redis) -> None:
    """At the address of the original's route, and at that of every key."""
    name = "tests.jobs.declared.one_at_a_time"
    for _ in range(3):
        Queue("q", conn).enqueue("tests.jobs.basic.noop", concurrency_key=name, max_concurrent=1)
    found = _get(service, tokens, f"/api/v1/actions/{name}/queue-stats").json
    assert (found["queue_length"], found["active_count"], found["max_concurrent"], found["total_enqueued"]) == (3, 0, 1, 3)
    again = _get(service, tokens, f"/api/v1/keys/{name}/stats").json
    assert found.keys() == again.keys() and found["oldest_enqueued_at"] == again["oldest_enqueued_at"]
    assert _get(service, tokens, "/api/v1/actions/nothing.here/queue-stats").status == 404


@pytest.mark.parametrize("key", ["nothing", "a/b", "%00", "a%20b"])
def test_what_is_no_concurrency_key(service: ServerProcess, tokens: Tokens, key: str) -> None:
    answer = _get(service, tokens, f"/api/v1/keys/{key}/stats")
    assert (answer.status, answer.code) == (404, "no_such_key")
