"""A worker alone is a complete service: it starts a relay if nobody serves the sinks, replaces it, and ends it."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest
import redis

from fusion.store.read.event_inspector import EventInspector, RelayInfo
from fusion.store.scripting.constants import FleetConstants
from fusion.store.write.broker import Broker
from tests.kit import guarded
from tests.kit.hands import put
from tests.kit.relays import Relays
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import alive, arguments_of
from tests.kit.workers import WorkerProcess, Workers
from tests.relay.harness import ids_in, is_delivered

JOB = b'["tests.jobs.basic.add", null, [20, 22], {}]'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


@pytest.fixture
def env(path: Path) -> dict[str, str]:
    return {"FUSION_EVENTS_FILE": str(path), "FUSION_LEASE": "1"}


def _living(inspector: EventInspector) -> list[RelayInfo]:
    return [relay for relay in inspector.relays() if relay.alive]


def _relay(inspector: EventInspector, *, other_than: int = 0) -> RelayInfo:
    """The one that lives."""

    def one() -> RelayInfo | None:
        found = [relay for relay in _living(inspector) if relay.pid != other_than]
        return found[0] if found else None

    found = eventually(one, unhurried(20), why="a relay is there")
    assert found is not None
    return found


def _children(worker: WorkerProcess) -> list[psutil.Process]:
    return [child for child in psutil.Process(worker.pid).children() if "relay" in arguments_of(child)]


def test_a_relay_starts_and_ends_with_its_worker(
    workers: Workers, broker: Broker, inspector: EventInspector, path: Path, env: dict[str, str]
) -> None:
    worker = workers.start(env=env)
    relay = _relay(inspector)
    assert [child.pid for child in _children(worker)] == [relay.pid]
    put(broker, "default", "j1", data=JOB)
    eventually(lambda: is_delivered(inspector) and len(ids_in(path)) == 3)
    put(broker, "default", "j2", data=JOB)
    eventually(lambda: broker.connection.hget("rq:job:j2", "status") == b"finished")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert not alive(relay.pid)
    assert len(ids_in(path)) == 6, "what was there is delivered first"


@pytest.mark.long
def test_a_relay_that_dies_is_replaced(workers: Workers, inspector: EventInspector, env: dict[str, str]) -> None:
    worker = workers.start(env=env)
    relay = _relay(inspector)
    psutil.Process(relay.pid).kill()
    other = _relay(inspector, other_than=relay.pid)
    assert [child.pid for child in _children(worker)] == [other.pid]
    assert "ProcessExitError: relay" in worker.output


@pytest.mark.long
def test_a_relay_that_hangs_is_replaced(workers: Workers, inspector: EventInspector, env: dict[str, str]) -> None:
    worker = workers.start(env={**env, "FUSION_HANG_TIMEOUT": str(unhurried(2))})
    relay = _relay(inspector)
    psutil.Process(relay.pid).suspend()
    assert _relay(inspector, other_than=relay.pid).pid != relay.pid
    assert not alive(relay.pid)
    assert "gave no sign of life" in worker.output


@pytest.mark.long
def test_one_whose_worker_is_killed_ends_as_well(
    workers: Workers, broker: Broker, inspector: EventInspector, env: dict[str, str]
) -> None:
    worker = workers.start(env=env)
    relay = _relay(inspector)
    worker.kill()
    eventually(lambda: not alive(relay.pid))
    assert _living(inspector) == []


def test_where_a_relay_runs_a_worker_starts_none(
    workers: Workers, relays: Relays, broker: Broker, inspector: EventInspector, env: dict[str, str], path: Path
) -> None:
    relay = relays.start(env={**env, "FUSION_LEASE": "15"})
    worker = workers.start(env={**env, "FUSION_LEASE": "15"})
    put(broker, "default", "j1", data=JOB)
    eventually(lambda: is_delivered(inspector) and len(ids_in(path)) == 3)
    eventually(lambda: broker.connection.info("commandstats").get("cmdstat_hget", {}).get("calls", 0) > 0, why="it has looked")
    assert _children(worker) == []
    assert [found.pid for found in inspector.relays()] == [relay.pid]


@pytest.mark.long
def test_a_relay_for_another_sink_is_not_enough(
    workers: Workers, relays: Relays, inspector: EventInspector, env: dict[str, str]
) -> None:
    relays.start("--events-log", env={"FUSION_LEASE": "15"})
    worker = workers.start(env=env)
    eventually(lambda: _children(worker), 20)
    eventually(lambda: sorted(sink for relay in _living(inspector) for sink in relay.sinks) == ["file", "log"])


@pytest.mark.long
def test_none_if_not_wanted_and_none_without_a_sink(
    workers: Workers, conn: redis.Redis, inspector: EventInspector, env: dict[str, str]
) -> None:
    unwanted, plain = workers.start("--no-relay", env=env), workers.start(env={"FUSION_LEASE": "1"})
    # a second later than any look would have come: both have renewed their leases by then
    for worker in (unwanted, plain):
        names = [key.decode() for key in conn.smembers("rq:workers") if key.decode().endswith(str(worker.pid))]
        before = conn.hget(names[0], "last_heartbeat")
        for _ in range(4):
            eventually(lambda before=before, name=names[0]: conn.hget(name, "last_heartbeat") != before)  # type: ignore[misc]
            before = conn.hget(names[0], "last_heartbeat")
        assert _children(worker) == []
    assert inspector.relays() == []


@pytest.mark.long
def test_it_has_the_workers_own_settings(workers: Workers, conn: redis.Redis, tmp_path: Path, env: dict[str, str]) -> None:
    guarded.allow_prefix(conn, "app:")
    (tmp_path / "sinks_of_mine.py").write_text(f"EVENTS_FILE = {str(tmp_path / 'mine.jsonl')!r}\nLEASE = 1\n")
    worker = workers.start("-c", "sinks_of_mine", "-P", str(tmp_path), "--prefix", "app:", env={})
    inspector = EventInspector(conn, prefix="app:")
    assert _relay(inspector).sinks == ("file",)
    Broker(conn, FleetConstants(prefix="app:")).delete(["nothing"])
    (child,) = _children(worker)
    assert child.cmdline()[-7:] == ["relay", "--config", "sinks_of_mine", "--prefix", "app:", "--path", str(tmp_path)]


@pytest.mark.long
def test_a_relay_that_cannot_run_is_restarted_with_growing_pauses(
    workers: Workers, broker: Broker, conn: redis.Redis, env: dict[str, str]
) -> None:
    """Its jobs do not notice."""
    worker = workers.start(env={**env, "FUSION_ELASTICSEARCH_URL": "nonsense", "FUSION_LEASE": "30"})
    eventually(lambda: worker.output.count("ProcessExitError: relay") >= 2, 20)
    put(broker, "default", "j1", data=JOB)
    eventually(lambda: conn.hget("rq:job:j1", "status") == b"finished")
    pauses = [float(line.split(" in ")[1].split(" s")[0]) for line in worker.output.splitlines() if "another starts in" in line]
    assert pauses == sorted(pauses)
    assert pauses[0] < pauses[-1]


@pytest.mark.long
def test_under_a_supervisor_one_relay_serves_all(
    workers: Workers, broker: Broker, inspector: EventInspector, path: Path, env: dict[str, str]
) -> None:
    service = workers.start("-n", "2", env={**env, "FUSION_LEASE": "15"}, program=("run_worker.py", "start"), ready=False)
    eventually(lambda: "relay 1 (pid" in service.output and service.output.count("is ready") >= 4)
    put(broker, "default", "j1", data=JOB)
    eventually(lambda: is_delivered(inspector) and len(ids_in(path)) >= 3)
    assert len(inspector.relays()) == 1
    relay = _relay(inspector)
    assert psutil.Process(relay.pid).ppid() == service.pid
    service.signal(signal.SIGTERM)
    assert service.wait(20) == 0
    assert not alive(relay.pid)
