"""Threads of one process that share a client of Redis, and are struck at random instants from outside."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
import redis

from fusion.exceptions import JobTimeoutException
from fusion.kernel.striking import ThreadGuard, Watcher
from tests.store.test_interrupted import CLIENTS, check_own_answers, enqueue, look

_THREADS, _STRIKES = 4, 400


@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_no_connection_is_left_half_used_and_no_other_run_is_struck(redis_url: str, conn: redis.Redis, kind: str) -> None:
    client, watcher = CLIENTS[kind](redis_url), Watcher()
    for shared in (client, getattr(conn, "admin", conn)):
        _open_as_many_as_there_will_be(shared)
    before = conn.info("stats")["total_connections_received"]
    count, lock, wrong = [0], threading.Lock(), list[str]()

    def runs(number: int) -> None:
        rounds = 0
        while count[0] < _STRIKES:
            rounds += 1
            guard = ThreadGuard(watcher, lambda why: None)

            def task() -> None:
                while True:
                    enqueue(client)
                    look(client)

            try:
                guard.run_task(random.uniform(0.0005, 0.006), task)
            except JobTimeoutException:
                with lock:
                    count[0] += 1
            try:
                check_own_answers(client, conn, f"{number}-{rounds}")  # not guarded: another one's strike would show
            except BaseException as error:
                wrong.append(repr(error))
                return

    _in_threads(runs)
    assert not wrong
    assert count[0] >= _STRIKES
    assert conn.info("stats")["total_connections_received"] == before, "none was given up"
    check_own_answers(client, conn, "after all")
    client.close()


def _open_as_many_as_there_will_be(client: redis.Redis) -> None:
    pool = client.connection_pool
    for connection in [pool.get_connection() for _ in range(_THREADS)]:
        pool.release(connection)


def _in_threads(what: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=what, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
