"""When a lost subscription to commands is made again."""

from __future__ import annotations

import time

from redis import Redis
from redis.exceptions import ConnectionError as Unreachable

from fusion.runtime.commands import Commands


def test_the_pause_between_subscriptions_grows_to_two_seconds() -> None:
    tries = 0

    def refused() -> Redis:
        nonlocal tries
        tries += 1
        raise Unreachable

    commands = Commands(refused, lambda: "rq:pubsub:w", "rq:pubsub:all")
    failed = time.monotonic()
    commands.tick(failed)
    assert tries == 1
    for n, pause in enumerate([0.0, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0], 2):
        commands.tick(failed + 0.9 * pause - 0.001)
        assert tries == n - 1, f"sooner than after {pause} s"
        before = time.monotonic()
        commands.tick(time.monotonic() + pause)
        assert tries == n, f"later than after {pause} s"
        failed = before
