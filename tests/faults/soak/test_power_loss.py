"""Power loss: with `appendfsync always` nothing that was acknowledged is gone. With the other settings it may be, and the test must see it."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redis import RedisError

from fusion import Queue
from fusion.exceptions import FusionError
from fusion.store.client.connections import connect
from fusion.store.redis_server.binary import ServerBinary
from tests.faults.rig.clock import why_not
from tests.faults.rig.conservation import check_conservation, memberships
from tests.faults.rig.fsync import PowerRedis
from tests.kit.promises import claim
from tests.kit.waiting import eventually
from tests.kit.workers import Workers

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

SOAK = bool(os.environ.get("FUSION_TEST_SOAK"))
TRIALS = 20 if SOAK else 3
NOOP = "tests.jobs.basic.noop"


class Clients:
    """Three clients that believe their answers: two enqueue as fast as they can, one looks what has finished."""

    def __init__(self, url: str, name: str) -> None:
        self.acknowledged: list[str] = []
        self.finished: set[str] = set()
        self._url, self._stop = url, threading.Event()
        todo = [lambda n=n: self._enqueue(f"{name}-{n}") for n in range(2)]
        self._threads = [threading.Thread(target=each) for each in (*todo, self._watch)]
        for thread in self._threads:
            thread.start()

    def _enqueue(self, name: str) -> None:
        conn = connect(self._url, role="worker")  # one attempt: what it does not say is not known
        queue, n = Queue("power", conn), 0
        try:
            while not self._stop.is_set():
                job = queue.enqueue(NOOP, job_id=f"{name}-{n}", result_ttl=86400)
                self.acknowledged.append(job.id)
                n += 1
        except (RedisError, FusionError):
            pass
        finally:
            conn.close()

    def _watch(self) -> None:
        conn = connect(self._url, role="worker")
        try:
            while not self._stop.wait(0.001):
                self.finished |= {member.decode() for member in conn.zrange("rq:finished:power", -200, -1)}
        except (RedisError, FusionError):
            pass
        finally:
            conn.close()

    def end(self) -> None:
        """They have heard the last they will hear."""
        self._stop.set()
        for thread in self._threads:
            thread.join(30)


@contextmanager
def _powered(binary: ServerBinary, appendfsync: str) -> Iterator[PowerRedis]:
    redis = PowerRedis(binary, appendfsync)
    try:
        yield redis
    finally:
        redis.close()


def _until_cut(redis: PowerRedis, directory: Path, name: str, jobs: int) -> tuple[Clients, int]:
    """Enqueue and commit until there are this many jobs, then cut the power of the machine that Redis and a worker are on."""
    directory.mkdir()
    workers = Workers(redis.url, directory)
    try:
        worker = workers.start("power", "--slots", "2", "--no-relay")
        clients = Clients(redis.url, name)
        try:
            eventually(lambda: len(clients.acknowledged) >= jobs and len(clients.finished) >= jobs // 10, 60, why="work is done")
        finally:
            lost = redis.cut()
            worker.kill()
            clients.end()
    finally:
        workers.stop()
    return clients, lost


@claim("P2")
@pytest.mark.gate
@pytest.mark.timeout(60 * TRIALS)
def test_with_appendfsync_always_no_acknowledged_enqueue_or_commit_is_lost(server_binary: ServerBinary, tmp_path: Path) -> None:
    chance, acknowledged, finished, torn = random.Random(11), list[str](), set[str](), 0
    with _powered(server_binary, "always") as redis:
        for trial in range(TRIALS):
            clients, lost = _until_cut(redis, tmp_path / str(trial), f"t{trial}", chance.randint(100, 300))
            acknowledged += clients.acknowledged
            finished |= clients.finished
            torn += lost > 0
            redis.start()
            states = check_conservation(redis.conn, acknowledged)
            assert [job_id for job_id in finished if states.get(job_id, "finished") != "finished"] == [], "commits are lost"
            check_conservation(redis.conn, finished)
    print(
        f"{TRIALS} power cuts: 0 of {len(acknowledged)} enqueues and 0 of {len(finished)} commits lost; {torn} cut off an answer"
    )
    assert len(acknowledged) >= 100 * TRIALS
    assert len(finished) >= 10 * TRIALS


@pytest.mark.timeout(120)
def test_with_appendfsync_no_the_same_cut_loses_acknowledged_jobs(server_binary: ServerBinary, tmp_path: Path) -> None:
    """Teeth: else the test above would show nothing."""
    with _powered(server_binary, "no") as redis:
        clients, lost = _until_cut(redis, tmp_path / "only", "t", 200)
        redis.start()
        kept = memberships(redis.conn)
    gone = [job_id for job_id in clients.acknowledged if job_id not in kept]
    print(f"appendfsync no: {len(gone)} of {len(clients.acknowledged)} acknowledged enqueues lost, {lost} bytes")
    assert len(gone) > len(clients.acknowledged) // 2


@pytest.mark.skipif(not SOAK, reason="make soak: how much is lost is a figure, no promise")
@pytest.mark.timeout(900)
def test_with_appendfsync_everysec_what_is_left_is_whole(server_binary: ServerBinary, tmp_path: Path) -> None:
    """The last second or two may be gone. What is there is as it once was: no job is half there."""
    gone, acknowledged = 0, 0
    for trial in range(5):
        with _powered(server_binary, "everysec") as redis:
            clients, _ = _until_cut(redis, tmp_path / str(trial), "t", 3000)
            redis.start()
            kept = memberships(redis.conn)
            check_conservation(redis.conn, kept)
            records = {key.decode().removeprefix("rq:job:") for key in redis.conn.scan_iter("rq:job:*", 1000)}
            assert records == set(kept)
            gone += sum(job_id not in kept for job_id in clients.acknowledged)
            acknowledged += len(clients.acknowledged)
    print(f"appendfsync everysec, 5 power cuts: {gone} of {acknowledged} acknowledged enqueues lost")
    assert acknowledged >= 15_000
