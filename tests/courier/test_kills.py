"""At least once, under one id: couriers that are killed, frozen and cut off from Redis."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Queue
from fusion.delivery.signing import verify
from fusion.runtime.doorbells import Doorbell
from fusion.store.redis_server.binary import ServerBinary
from tests.courier.harness import SECRET, Endpoint, World, allowing, registered
from tests.kit.hands import fields_of, status_of
from tests.kit.private_redis import PrivateRedis
from tests.kit.promises import claim, promise
from tests.kit.receivers import Receiver
from tests.kit.waiting import eventually
from tests.kit.workers import Workers

Start = Callable[..., Receiver]
PLACES = ("callback.before_post", "callback.after_post")


def url_of(receiver: Receiver) -> str:
    return f"http://127.0.0.1:{receiver.port}/hook"


@claim("P11")
@pytest.mark.long
@pytest.mark.timeout(180)
def test_every_end_is_delivered_under_one_id_over_twenty_kills(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    settings, ran = allowing(server, lease=0.5, reap_interval=0.1), random.Random(7)
    jobs: list[str] = []
    for kill in range(20):
        jobs += world.end(url_of(server), 25, "failed" if kill % 2 else "finished")
        courier, seen = world.process(settings), len(endpoint.posts)
        eventually(lambda seen=seen: len(endpoint.posts) > seen + ran.randrange(20), 20, why=courier.output)
        courier.kill()
    courier = world.process(settings)
    world.settled(120, finished=500)
    assert courier.end() == 0
    with promise("P11"):
        assert endpoint.jobs.keys() == set(jobs)
        assert set(endpoint.ids) == set(world.deliveries())
        assert len(set(endpoint.ids)) == 500
        by_job = {(post.data["job_id"], post.id) for post in endpoint.posts}
        assert len(by_job) == 500, "one id for each end, at every try"
    # under way when it was killed: two of a host at a time, of which the other side may have heard and Redis not
    assert len(endpoint.posts) - 500 <= 20 * 16
    for post in endpoint.posts[::25]:
        verify(post.headers, post.body, SECRET)
    assert endpoint.most <= 4, "two of a courier; those of its dead predecessor may just be read"
    world.check(jobs)


@claim("P11")
@pytest.mark.parametrize("place", PLACES)
def test_a_courier_killed_around_the_post_leads_to_another_under_the_same_id(world: World, receiver: Start, place: str) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    jobs = world.end(url_of(server), 3)
    before = fields_of(world.conn, jobs[0])
    killed = world.process(allowing(server), FUSION_FAILPOINTS=f"{place}=kill@2")
    assert killed.wait() == -signal.SIGKILL
    world.process(allowing(server))
    world.settled(finished=3)
    assert set(endpoint.ids) == set(world.deliveries())
    assert endpoint.jobs.keys() == set(jobs)
    if place == "callback.after_post":
        assert len(endpoint.posts) > 3
    assert fields_of(world.conn, jobs[0]) == before
    world.check(jobs)


@pytest.mark.long
@pytest.mark.timeout(180)
def test_a_thousand_failed_jobs_are_a_thousand_callbacks(world: World, receiver: Start, workers: Workers) -> None:
    """With a real worker, and a courier that is killed in between."""
    endpoint = Endpoint()
    server = receiver(endpoint)
    queue, url = Queue("q", world.conn), url_of(server)
    jobs = queue.enqueue_many([queue.prepare_data("tests.jobs.basic.boom", failed_task_handler=url) for _ in range(1000)])
    settings = allowing(server)
    courier = world.process(settings)
    workers.start("q", "--slots", "4")
    eventually(lambda: len(endpoint.posts) > 100, 30)
    courier.kill()
    world.process(settings)
    world.settled(120, finished=1000)
    ids = [job.id for job in jobs]
    assert {status_of(world.conn, job_id) for job_id in ids} == {"failed"}
    assert endpoint.jobs.keys() == set(ids)
    assert len(set(endpoint.ids)) == 1000
    assert {post.data["error"] for post in endpoint.posts} == {"builtins.ValueError"}
    world.check(ids)


@pytest.mark.long
def test_a_courier_that_froze_longer_than_its_lease_is_not_believed(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    endpoint.gate.clear()
    (job,) = world.end(url_of(server))
    frozen = world.process(allowing(server))
    eventually(lambda: endpoint.posts)
    frozen.process.send_signal(signal.SIGSTOP)
    eventually(lambda: psutil.Process(frozen.process.pid).status() == psutil.STATUS_STOPPED)
    endpoint.gate.set()
    world.process(allowing(server))
    world.settled(finished=1)
    (delivery,) = world.deliveries()
    execution = world.fields()["execution_id"]
    frozen.process.send_signal(signal.SIGCONT)
    eventually(lambda: "not accepted: another execution has it" in frozen.output)
    assert endpoint.ids == [delivery] * 2
    assert world.fields()["execution_id"] == execution
    world.check([job])


@pytest.mark.long
def test_a_delivery_longer_than_the_lease_stays_with_its_courier(world: World, receiver: Start) -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    server = receiver(endpoint)
    (job,) = world.end(url_of(server))
    settings = allowing(server, lease=0.5, reap_interval=0.05)
    world.courier(settings)
    eventually(lambda: endpoint.posts)
    world.process(settings)
    eventually(lambda: len(registered(world.conn)) == 2)
    (delivery,), leases = world.deliveries(), set[float | None]()

    def renewed() -> bool:
        leases.add(world.conn.zscore("rq:wip:_callbacks", delivery))
        return len(leases) > 12

    eventually(renewed, why="the lease was renewed for four times its length")
    endpoint.gate.set()
    world.settled(finished=1)
    assert endpoint.ids == [delivery]
    world.check([job])


def test_a_courier_whose_entry_is_gone_makes_another(world: World, receiver: Start) -> None:
    server = receiver(Endpoint())
    courier = world.courier(allowing(server))
    eventually(lambda: registered(world.conn))
    world.conn.delete(f"rq:worker:{courier.name}", "rq:workers")
    world.end(url_of(server))
    world.settled(finished=1)
    eventually(lambda: registered(world.conn) == [courier.name])


@pytest.fixture
def private(server_binary: ServerBinary, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRedis]:
    import shutil
    import tempfile

    home = tempfile.mkdtemp(prefix="fus", dir="/tmp")
    server = PrivateRedis(home, server_binary)
    yield server
    server.close()
    shutil.rmtree(home, ignore_errors=True)


def test_a_delivery_is_committed_after_redis_died_during_the_post(
    private: PrivateRedis, world: World, receiver: Start, tmp_path: Path
) -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    server = receiver(endpoint)
    other = World(private.conn, private.url, tmp_path)
    try:
        jobs = other.end(url_of(server), 2)
        courier = other.courier(allowing(server, lease=30.0, socket_timeout=0.3))
        eventually(lambda: len(endpoint.posts) == 2)
        eventually(lambda: private.conn.info("persistence")["aof_pending_bio_fsync"] == 0)
        private.kill()
        endpoint.gate.set()
        eventually(lambda: courier._link.away_since is not None)
        private.revive()
        eventually(lambda: _answers(private.conn))
        other.settled(finished=2)
        assert len(endpoint.posts) == 2, "nothing was sent again"
        other.check(jobs)
    finally:
        other.close()


def test_a_redis_that_goes_right_behind_the_bell_is_waited_for(
    private: PrivateRedis, world: World, receiver: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bell's connection breaks first; the courier, with something to ask, then finds Redis gone, before it cared for the bell."""
    endpoint = Endpoint()
    server = receiver(endpoint)
    other = World(private.conn, private.url, tmp_path)
    hear = Doorbell.receive
    broken: list[float] = []

    def hear_and_lose_redis(bell: Doorbell) -> str | bool | None:
        heard = hear(bell)
        if bell.fileno() is None:
            if not broken:
                private.kill()
            broken.append(time.monotonic())
            courier._consumer.request_turn()
        return heard

    monkeypatch.setattr(Doorbell, "receive", hear_and_lose_redis)
    try:
        courier = other.courier(allowing(server, socket_timeout=0.3))
        eventually(lambda: _waits_at_the_bell(private.conn))
        (waiting,) = _waits_at_the_bell(private.conn)
        # The courier may have killed the server before it answers this.
        with suppress(redis.ConnectionError):
            private.conn.client_kill_filter(_id=waiting)
        eventually(lambda: courier._link.away_since is not None)
        private.revive()
        eventually(lambda: _answers(private.conn))
        jobs = other.end(url_of(server), 1)
        other.settled(finished=1)
        other.check(jobs)
        assert courier.is_alive()
        assert len(broken) == 1, "the loop called a bell that is gone"
    finally:
        other.close()


def _waits_at_the_bell(conn: redis.Redis) -> list[str]:
    return [client["id"] for client in conn.client_list() if client["cmd"] == "blpop"]


def test_a_redis_that_is_not_there_yet_is_waited_for(private: PrivateRedis, receiver: Start, tmp_path: Path) -> None:
    server = receiver(Endpoint())
    private.kill()
    other = World(private.conn, private.url, tmp_path)
    try:
        courier = other.courier(allowing(server, socket_timeout=0.3))
        eventually(lambda: courier._link.away_since is not None)
        private.revive()
        eventually(lambda: _answers(private.conn))
        eventually(lambda: registered(private.conn) == [courier.name])
        began = time.monotonic()
        private.kill()
        assert courier.stop(0.5)
        assert time.monotonic() - began < 10
    finally:
        other.close()


def _answers(conn: redis.Redis) -> bool:
    try:
        return bool(conn.ping())
    except (redis.RedisError, OSError):
        return False
