"""SIGKILL of a relay, its courier included, at each of its places: the next one delivers what is left, repetitions under the same id."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from fusion.settings import Settings, use_settings
from fusion.store.read.event_inspector import EventInspector
from fusion.store.write.broker import Broker
from tests.courier.harness import EVERY_PORT, HERE, Endpoint, World, allowing, answers
from tests.courier.test_kills import url_of
from tests.faults.rig.conservation import leftovers
from tests.kit.receivers import Receiver
from tests.kit.relays import Relays
from tests.kit.waiting import eventually
from tests.relay.harness import documents_in, emit, ids_in, is_delivered

#: Struck one after the other.
PAIRS = (
    ("relay_beat.before", "relay_beat.after"),
    ("events_trim.before", "events_trim.after"),
    ("events_read.before", "events_read.after"),
    ("relay.before_write", "relay.after_write"),
    ("events_ack.before", "events_ack.after"),
    ("relay_leave.before", "relay_leave.after"),
)
COURIER = ("endpoint_gone.before", "endpoint_gone.after")
EVENTS = 50


@pytest.fixture
def world(conn: redis.Redis, redis_url: str, tmp_path: Path) -> Iterator[World]:
    use_settings(Settings.load(callback_allow_http=True, callback_ports=EVERY_PORT, callback_allowed_hosts=HERE))
    found = World(conn, redis_url, tmp_path)
    yield found
    found.close()


@pytest.fixture
def receiver() -> Iterator[Callable[[Any], Receiver]]:
    started: list[Receiver] = []

    def start(endpoint: Endpoint) -> Receiver:
        started.append(Receiver(endpoint))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.mark.gate
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].partition(".")[0])
def test_a_relay_killed_around(pair: tuple[str, str], relays: Relays, conn: redis.Redis, tmp_path: Path) -> None:
    path, inspector = tmp_path / "events.jsonl", EventInspector(conn)
    emit(Broker(conn), EVENTS)
    for place in pair:
        leaving = place.startswith("relay_leave")
        dies = relays.start("--events-file", str(path), env={"FUSION_FAILPOINTS": f"{place}=kill"}, ready=leaving)
        if leaving:
            dies.signal(signal.SIGTERM)
        assert dies.wait() == -signal.SIGKILL, dies.output
    relays.start("--events-file", str(path))
    eventually(lambda: is_delivered(inspector), 20, why="what the dead left is delivered")
    emit(Broker(conn), 2, "new")
    eventually(lambda: is_delivered(inspector), 20, why="what is new is delivered")
    numbers = sorted({int(found.partition("-")[2]) for found in ids_in(path)})
    assert numbers == list(range(1, EVENTS + 3))
    assert len({(str(found["id"]), str(found["job_id"])) for found in documents_in(path)}) == EVENTS + 2
    assert len(ids_in(path)) <= (EVENTS + 2) * 3, "at most once more for each of the dead"
    assert leftovers(conn) == []


@pytest.mark.gate
@pytest.mark.parametrize("pair", [COURIER], ids=["endpoint_gone"])
def test_a_courier_killed_around_its_word_that_an_endpoint_is_gone(
    world: World, receiver: Callable[[Any], Receiver], pair: tuple[str, str]
) -> None:
    endpoint = Endpoint(answers(410))
    server = receiver(endpoint)
    jobs = world.end(url_of(server), 3)
    for place in pair:
        killed = world.process(allowing(server), FUSION_FAILPOINTS=f"{place}=kill")
        assert killed.wait() == -signal.SIGKILL, killed.output
    world.process(allowing(server))
    world.settled(20, failed=3)
    assert world.broker.gone([url_of(server)]) == [True]
    assert set(endpoint.ids) <= set(world.deliveries())
    world.check(jobs)
    assert leftovers(world.conn) == []
