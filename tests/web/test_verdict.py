"""What `/readyz` says of the fleet: a word, to anybody, and never a 503 for it."""

from __future__ import annotations

import redis

from fusion import Queue
from fusion.store.write.broker import Broker
from fusion.web.fleet import KeptVerdict
from tests.jobs import basic
from tests.kit.hands import wire
from tests.web.conftest import Start


def test_the_verdict_is_a_word_without_names_and_no_reason_for_a_503(start: Start, redis_url: str) -> None:
    Queue("secret-name").enqueue(basic.noop)
    answer = start(redis_url, "--no-auth").ask("GET", "/readyz")
    assert (answer.status, answer.json) == (200, {"status": "ok", "verdict": "unhealthy"})


def test_it_is_made_every_few_seconds_at_most(conn: redis.Redis) -> None:
    kept = KeptVerdict(conn)
    assert kept.word() == "healthy"
    Broker(conn).suspend()
    with wire(conn) as sent:
        assert kept.word() == "healthy"
    assert not sent
    kept._until = 0.0
    assert kept.word() == "strained"
