"""Who runs it: a relay with or without sinks, which a worker alone starts when callbacks wait."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from fusion import Queue
from tests.courier.harness import Endpoint, World, allowing, env_of, registered
from tests.kit.hands import status_of
from tests.kit.receivers import Receiver
from tests.kit.waiting import eventually
from tests.kit.witnesses import alive, arguments_of
from tests.kit.workers import WorkerProcess, Workers

Start = Callable[..., Receiver]


def url_of(receiver: Receiver) -> str:
    return f"http://127.0.0.1:{receiver.port}/hook"


def relays_of(worker: WorkerProcess) -> list[int]:
    return [child.pid for child in psutil.Process(worker.pid).children() if "relay" in arguments_of(child)]


@pytest.mark.long
def test_a_worker_alone_delivers(world: World, receiver: Start, workers: Workers) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    worker = workers.start("q", env=env_of(allowing(server)))
    assert relays_of(worker) == []
    job = Queue("q", world.conn).enqueue("tests.jobs.basic.echo", {"callback": 1, "callback_url": url_of(server)})
    world.settled(20, finished=1)
    assert endpoint.jobs.keys() == {job.id}
    (relay,) = relays_of(worker)
    assert "callbacks wait, and there is no relay: " in worker.output
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert not alive(relay)
    assert registered(world.conn) == []


@pytest.mark.long
def test_one_killed_in_the_act_is_replaced_and_the_id_stays(world: World, receiver: Start, workers: Workers) -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    server = receiver(endpoint)
    worker = workers.start("q", env=env_of(allowing(server)))
    Queue("q", world.conn).enqueue("tests.jobs.basic.noop", callback_url=url_of(server))
    eventually(lambda: endpoint.posts, 20)
    (relay,) = relays_of(worker)
    psutil.Process(relay).kill()
    endpoint.gate.set()
    world.settled(30, finished=1)
    assert len(endpoint.posts) == 2
    assert set(endpoint.ids) == set(world.deliveries())


@pytest.mark.long
def test_a_worker_without_a_relay_leaves_callbacks_to_others(world: World, receiver: Start, workers: Workers) -> None:
    endpoint = Endpoint()
    server = receiver(endpoint)
    worker = workers.start("q", "--no-relay", env=env_of(allowing(server)))
    Queue("q", world.conn).enqueue("tests.jobs.basic.noop", callback_url=url_of(server))
    eventually(lambda: world.states() == {"queued": 1})
    name = f"rq:worker:{next(iter(world.conn.smembers('rq:workers'))).decode().removeprefix('rq:worker:')}"
    for _ in range(20):  # beats of a third of a second each: longer than any look takes to come
        before = world.conn.hget(name, "last_heartbeat")
        eventually(lambda before=before: world.conn.hget(name, "last_heartbeat") != before)  # type: ignore[misc]
    assert relays_of(worker) == []
    assert endpoint.posts == []
    world.process(allowing(server))
    world.settled(20, finished=1)
    assert relays_of(worker) == []


def test_a_relay_brings_events_and_delivers_callbacks_side_by_side(world: World, receiver: Start, tmp_path: Path) -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    server = receiver(endpoint)
    jobs = world.end(url_of(server), 3)
    events = tmp_path / "events.jsonl"
    relay = world.process(allowing(server, events_file=str(events)))
    eventually(lambda: events.exists() and len(events.read_text().splitlines()) == 9, 20)
    eventually(lambda: len(endpoint.posts) == 2)
    relay.process.send_signal(signal.SIGTERM)
    eventually(lambda: world.conn.zcard("rq:queue:_callbacks") == 1)
    endpoint.gate.set()
    assert relay.wait() == 0, relay.output
    assert world.states() == {"finished": 2, "queued": 1}
    documents = [json.loads(line) for line in events.read_text().splitlines()]
    assert {document["job_id"] for document in documents} == set(jobs), "deliveries are no events"


@pytest.mark.long
def test_workers_of_all_queues_never_run_a_delivery(world: World, receiver: Start, workers: Workers) -> None:
    server = receiver(Endpoint())
    url = url_of(server)
    workers.start("--customq", "all", "--no-relay", env=env_of(allowing(server)))
    workers.start("*", "_*", "--no-relay", env=env_of(allowing(server)))
    queue = Queue("q", world.conn)
    jobs = queue.enqueue_many([queue.prepare_data("tests.jobs.basic.noop", callback_url=url) for _ in range(50)])
    eventually(lambda: {status_of(world.conn, job.id) for job in jobs} == {"finished"}, 20)
    assert world.states() == {"queued": 50}
    assert not any("deliveries" in world.fields(one) for one in world.deliveries()), "nobody has claimed one"
    world.check(job.id for job in jobs)
