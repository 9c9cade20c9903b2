"""A cluster fails while jobs are enqueued and run: a slot moves, a primary dies or stands still. No more is lost than the docs say."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fusion import Queue
from fusion.settings import use_settings
from fusion.store.client.connections import connect
from fusion.store.layout.keys import Keys
from fusion.store.redis_server.binary import ServerBinary
from tests.faults.rig.conservation import check_conservation, memberships, runs_seen
from tests.faults.trouble.test_failover import ENV, Producer
from tests.jobs import basic
from tests.kit.clusters import PREFIX, SLOT, ClusterOfTests
from tests.kit.waiting import eventually
from tests.kit.workers import Workers

KEYS = Keys(PREFIX)
_SOAK = os.environ.get("FUSION_TEST_SOAK", "") not in ("", "0")
_BACKLOG = 1_000_000 if _SOAK else 50_000
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def town(server_binary: ServerBinary, monkeypatch: pytest.MonkeyPatch) -> Iterator[ClusterOfTests]:
    options = ("--cluster-require-full-coverage", "no")
    with contextlib.closing(ClusterOfTests(server_binary.path, *options, node_timeout=3000)) as cluster:
        monkeypatch.setenv("FUSION_REDIS_URL", cluster.url)
        use_settings(None)
        yield cluster


@pytest.fixture
def fleet(town: ClusterOfTests, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(town.url, tmp_path)
    yield found
    found.stop()


def drained(conn: redis.Redis) -> None:
    """Wait until all jobs have run."""

    def empty() -> bool:
        with contextlib.suppress(redis.RedisError):
            return not (conn.zcard(KEYS.queue("q")) or conn.zcard(KEYS.wip("q")) or conn.zcard(KEYS.scheduled))
        return False

    eventually(empty, timeout=90, interval=0.1, why="all that there is has run")


def lost_of(conn: redis.Redis, producer: Producer) -> list[str]:
    """Return the accepted jobs that are lost. Check that each of the others is finished, and in exactly one set."""
    lost = [job_id for job_id in producer.accepted if not conn.exists(KEYS.job(job_id))]
    states = check_conservation(conn, set(producer.accepted) - set(lost), KEYS)
    assert set(states.values()) == {"finished"}
    return lost


@pytest.mark.long
def test_a_slot_moves_key_by_key_under_load(town: ClusterOfTests, fleet: Workers, tmp_path: Path) -> None:
    witness, conn = tmp_path / "witness", connect()
    workers = [fleet.start("q", env=ENV) for _ in range(2)]
    producer = Producer(town.url, witness)
    producer.start()
    producer.more()
    home = town.owner
    for target in (town.other(home), home):
        began = time.monotonic()
        town.move(target, step=7)
        town.wait_until_served(by=target)
        print(f"\nmoved in {time.monotonic() - began:.1f} s")
        producer.more()
    producer.end()
    drained(conn)
    assert lost_of(conn, producer) == []
    ran = runs_seen(witness)
    assert {ran[job_id] for job_id in producer.accepted} == {1}, "no job ran twice"
    assert all(worker.process.poll() is None for worker in workers)


@pytest.mark.long
def test_a_slot_moves_at_once_under_load(
    town: ClusterOfTests, fleet: Workers, tmp_path: Path, server_binary: ServerBinary
) -> None:
    if server_binary.name != "Valkey" or server_binary.version < (9,):
        pytest.skip(f"{server_binary} moves slots key by key only")
    witness, conn = tmp_path / "witness", connect()
    for _ in range(2):
        fleet.start("q", env=ENV)
    producer = Producer(town.url, witness)
    producer.start()
    producer.more()
    home = town.owner
    for target in (town.other(home), home):
        town.move_at_once(target)
        producer.more()
    producer.end()
    drained(conn)
    assert producer.warned == {}, "no call failed"
    assert lost_of(conn, producer) == []
    assert {runs_seen(witness)[job_id] for job_id in producer.accepted} == {1}


@pytest.mark.long
@pytest.mark.timeout(1800 if _SOAK else 240)
def test_a_slot_with_many_keys_moves_for_three_leases(town: ClusterOfTests, fleet: Workers, tmp_path: Path) -> None:
    """No worker counts as dead, and no job runs again."""
    witness, conn = tmp_path / "witness", connect()
    for node in town.nodes:  # a large queue blocks its node while it moves
        node.client.config_set("cluster-node-timeout", 60_000)
    backlog = [job_id for _ in range(_BACKLOG // 10_000) for job_id in enqueued(conn, witness, 10_000)]
    workers = [fleet.start("q", "backlog", ready=False, env=ENV) for _ in range(2)]
    for worker in workers:
        worker.wait_ready(180)
    producer = Producer(town.url, witness)
    producer.start()
    producer.more()
    eventually(lambda: conn.zcard(KEYS.wip("backlog")), why="the backlog is begun")
    born = {worker: conn.hget(worker, "incarnation") for worker in conn.smembers(KEYS.workers)}
    target = town.other(town.owner)
    began = time.monotonic()
    source = town.begin_move(target)
    count = source.cluster("COUNTKEYSINSLOT", SLOT)
    while keys := source.cluster("GETKEYSINSLOT", SLOT, 100):
        town.move_keys(source, target, keys)
    moved = time.monotonic() - began
    time.sleep(max(0, 3 * float(ENV["FUSION_LEASE"]) - moved))
    town.end_move(target)
    town.wait_until_served(by=target)
    producer.more(1)
    print(
        f"\n{count} keys moved in {moved:.1f} s, {moved / count * 100_000:.1f} s per 100,000;"
        f" {time.monotonic() - began:.1f} s without service; {conn.xlen(KEYS.events)} events"
    )
    producer.more()
    producer.end()
    drained(conn)
    assert {worker: conn.hget(worker, "incarnation") for worker in conn.smembers(KEYS.workers)} == born
    for worker in workers:
        worker.signal(signal.SIGTERM)
    assert [worker.wait(60) for worker in workers] == [0, 0]
    ran = runs_seen(witness)
    assert set(ran.values()) == {1}
    assert ended_or_queued(conn, [*producer.accepted, *backlog]) == set(ran)
    assert set(producer.accepted) <= set(ran)
    assert "dead" not in "".join(worker.output for worker in workers)


def enqueued(conn: redis.Redis, witness: Path, count: int) -> list[str]:
    """Enqueue jobs that no worker needs to run. Return their ids."""
    data = [Queue.prepare_data(basic.witness, (str(witness), "ran")) for _ in range(count)]
    return [job.id for job in Queue("backlog", conn).enqueue_many(data)]


def ended_or_queued(conn: redis.Redis, job_ids: list[str]) -> set[str]:
    """Check that each of these jobs is finished or queued, and in that set alone. Return those that are finished."""
    sets, finished = memberships(conn, KEYS), set[str]()
    for start in range(0, len(job_ids), 10_000):
        some, pipe = job_ids[start : start + 10_000], conn.pipeline(transaction=False)
        for job_id in some:
            pipe.hget(KEYS.job(job_id), "status")
        states = [status.decode() for status in pipe.execute()]
        assert [sets[job_id] for job_id in some] == [[status] for status in states]
        assert set(states) <= {"finished", "queued"}
        finished |= {job_id for job_id, status in zip(some, states, strict=True) if status == "finished"}
    return finished


@pytest.mark.long
def test_a_primary_is_killed_under_load(town: ClusterOfTests, fleet: Workers, tmp_path: Path) -> None:
    """Jobs accepted just before it died may be lost with `primary`, but not with `replicated`."""
    witness, conn = tmp_path / "witness", connect()
    workers = [fleet.start("q", env=ENV) for _ in range(2)]
    plain = Producer(town.url, witness)
    sure = Producer(town.url, witness, durability="replicated", replicas_timeout=0.3)
    for producer in (plain, sure):
        producer.start()
    for producer in (plain, sure):
        producer.more()
    home = town.owner
    replica = town.replica_of(home)
    before = len(plain.accepted)
    home.kill()
    town.wait_until_served(by=replica, timeout=90)
    plain.more()
    plain.end()
    eventually(lambda: any("NotReplicated" in kinds for kinds in sure.warned.values()), timeout=40, why="no replica is left")
    home.server.restart()
    sure.more(5)
    sure.end()
    drained(conn)
    assert lost_of(conn, sure) == []
    lost = lost_of(conn, plain)
    print(
        f"\n{len(plain.accepted)} plain, {before} of them before the kill: {len(lost)} lost; {len(sure.accepted)} replicated: none"
    )
    assert set(lost) <= set(plain.accepted[max(0, before - 20) : before + 1]), "only what was accepted last"
    assert all(worker.process.poll() is None for worker in workers)


@pytest.mark.long
def test_a_primary_stands_still_under_load(town: ClusterOfTests, fleet: Workers, tmp_path: Path) -> None:
    """As in a partition: after it comes back, it still acts as the primary until it learns that another is."""
    witness, conn = tmp_path / "witness", connect()
    workers = [fleet.start("q", env=ENV) for _ in range(2)]
    plain = Producer(town.url, witness)
    sure = Producer(town.url, witness, durability="replicated", replicas_timeout=0.3)
    for producer in (plain, sure):
        producer.start()
    for producer in (plain, sure):
        producer.more()
    home = town.owner
    replica = town.replica_of(home)
    before = len(plain.accepted)
    home.pause()
    town.wait_until_served(by=replica, timeout=90)
    home.resume()
    for producer in (plain, sure):
        producer.more()
    for producer in (plain, sure):
        producer.end()
    drained(conn)
    assert lost_of(conn, sure) == []
    lost = lost_of(conn, plain)
    print(f"\n{len(plain.accepted)} plain: {len(lost)} lost; {len(sure.accepted)} replicated: none")
    assert set(lost) <= set(plain.accepted[max(0, before - 20) : before + 20]), "only what was accepted about then"
    assert all(worker.process.poll() is None for worker in workers)


@pytest.mark.long
@pytest.mark.parametrize("answer", ["no", "yes"])
def test_another_primary_and_its_replica_are_gone(town: ClusterOfTests, fleet: Workers, tmp_path: Path, answer: str) -> None:
    """With `cluster-require-full-coverage no` the slot of Fusion goes on. With `yes` it stops, until the setting is changed."""
    witness, conn = tmp_path / "witness", connect()
    require_all_slots(town, answer)
    workers = [fleet.start("q", env=ENV)]
    producer = Producer(town.url, witness)
    producer.start()
    producer.more()
    gone = town.other(town.owner)
    for node in (town.replica_of(gone), gone):
        node.kill()
    eventually(lambda: town.owner.facts()["cluster_slots_fail"] != "0", timeout=60, why="some slots have no node")
    if answer == "yes":
        eventually(lambda: producer.warned, timeout=60, why="a call failed")
        require_all_slots(town, "no")
        town.wait_until_served()
    producer.more()
    workers.append(fleet.start("q", env=ENV))  # it finds the slot although a node of its url may be gone
    producer.more()
    assert (producer.warned == {}) == (answer == "no"), "with `no`, no call failed"
    producer.end()
    drained(conn)
    assert lost_of(conn, producer) == []
    assert {runs_seen(witness)[job_id] for job_id in producer.accepted} == {1}
    assert all(worker.process.poll() is None for worker in workers)


def require_all_slots(town: ClusterOfTests, answer: str) -> None:
    """Set whether the cluster stops when a slot has no node."""
    for node in town.live():
        node.client.config_set("cluster-require-full-coverage", answer)
