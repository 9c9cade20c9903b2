"""Operations whose carriers and servers die: the figures stay exact."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable

import pytest
import redis

from fusion.store.write.broker import Broker
from tests.kit.hands import status_of
from tests.kit.servers import SpawnedServer
from tests.kit.waiting import eventually
from tests.kit.workers import Workers
from tests.operations.hands import begin, carrier, carry_on, failed, start
from tests.store.operation_hands import figures, record

SOAK = os.environ.get("FUSION_TEST_SOAK", "") not in ("", "0")


def requeued(conn: redis.Redis, ids: list[str]) -> set[bytes | None]:
    found = set[bytes | None]()
    for at in range(0, len(ids), 5000):
        pipe = conn.pipeline(transaction=False)
        for job in ids[at : at + 5000]:
            pipe.hget(f"rq:job:{job}", "requeued")
        found |= set(pipe.execute())
    return found


@pytest.mark.long
def test_workers_carry_on_what_a_command_left(conn: redis.Redis, workers: Workers) -> None:
    ids = failed(conn, 3000, "elsewhere")
    conn.delete("rq:fleet", "rq:worker:host.f")
    operation = begin(conn, "requeue", "queue:elsewhere")
    first = workers.start("one")
    eventually(lambda: figures(conn, operation)[0] > 0, 15, why="a worker has begun")
    os.kill(first.pid, signal.SIGKILL)
    workers.start("two")
    eventually(lambda: record(conn, operation)["status"] == "done", 40, why="another goes on when the lease is over")
    assert figures(conn, operation) == (3000, 0, 0)
    assert requeued(conn, ids) == {b"1"}


@pytest.mark.long
def test_a_server_that_starts_anew_has_its_cursors_forgotten(spawn: Callable[..., SpawnedServer]) -> None:
    server = spawn("--appendonly", "yes", "--appendfsync", "always")
    conn = server.client()
    ids = failed(conn, 3000)
    operation, one = begin(conn, "requeue", "state:failed"), carrier(conn)
    one.carry(operation, 0)
    before = record(conn, operation)
    assert before["cursor"] != "0"
    server.restart()
    conn = server.client()
    eventually(lambda: not conn.info("persistence")["loading"], why="it has read its file")
    assert carry_on(conn, operation) == "done"
    assert record(conn, operation)["run_id"] != before["run_id"]
    assert figures(conn, operation) == (3000, 0, 0)
    assert requeued(conn, ids) == {b"1"}


@pytest.mark.timeout(580)
@pytest.mark.skipif(not SOAK, reason="several minutes: FUSION_TEST_SOAK=1")
def test_200_000_jobs_and_ten_kills(conn: redis.Redis, redis_url: str) -> None:
    chance = random.Random(815)
    ids = failed(conn, 200_000)
    for job in ids[:7]:
        conn.hdel(f"rq:job:{job}", "data")
    operation = begin(conn, "requeue", "state:failed")
    began, kills = time.monotonic(), 0
    at_kills = list[int]()
    while kills < 10:
        carriers = [start(redis_url, operation, f"c{n}") for n in range(2)]
        upto = figures(conn, operation)[0] + chance.randrange(2_000, 15_000)
        eventually(lambda upto=upto: figures(conn, operation)[0] > upto, 60, why="they get on")  # type: ignore[misc]
        time.sleep(chance.random() / 10)
        for one in carriers:
            one.kill()
            one.wait()
        kills += 1
        at_kills.append(figures(conn, operation)[0])
    late = failed(conn, 100, "q", "late")
    assert carry_on(conn, operation, page=500) == "done"
    print(f"killed at {at_kills}; {time.monotonic() - began:.0f} s; {record(conn, operation)['part']} parts")
    assert figures(conn, operation) == (199_993, 0, 7)
    assert requeued(conn, ids[7:]) == {b"1"}
    assert {status_of(conn, job) for job in late} == {"failed"}
    assert Broker(conn).cancel_operation(operation) == "done"
