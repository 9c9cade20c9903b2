"""Sentinel promotes a replica while jobs are enqueued and run: everybody carries on by himself, and what is lost is what was said."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fusion import AsyncQueue, Queue, StoreUnavailable
from fusion.doctor.look import Look
from fusion.doctor.verdict import CHECKS, examine
from fusion.settings import Settings
from fusion.store.client.async_connections import twin
from fusion.store.client.connections import connect
from fusion.store.redis_server.binary import ServerBinary
from tests.faults.rig.conservation import check_conservation, runs_seen
from tests.faults.rig.replicas import Pair
from tests.faults.rig.sentinels import Trio
from tests.jobs import basic
from tests.kit.waiting import eventually
from tests.kit.workers import Workers

ENV = {"FUSION_LEASE": "3", "FUSION_REAP_INTERVAL": "0.5", "FUSION_SOCKET_TIMEOUT": "1", "FUSION_IDLE_WAIT": "0.5"}


@pytest.fixture
def trio(server_binary: ServerBinary) -> Iterator[Trio]:
    pair = Pair(server_binary.path)
    found = Trio(server_binary.path, pair)
    yield found
    found.close()
    pair.close()


@pytest.fixture
def fleet(trio: Trio, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(trio.url, tmp_path)
    yield found
    found.stop()


class Producer(threading.Thread):
    """Enqueues a job every few milliseconds until `stop`. A call that raises is repeated until it does not."""

    def __init__(self, url: str, witness: Path, **options: object) -> None:
        super().__init__(daemon=True)
        self._queue = Queue("q", connect(url, settings=Settings.load(socket_timeout=1)))
        self._witness, self._options = witness, options
        self._over = threading.Event()
        #: Held during each call: its holder knows that no call is under way.
        self.standstill = threading.Lock()
        #: Ids in the order in which they were accepted; those of which a call raised before that, by the kind of its error.
        self.accepted: list[str] = []
        self.warned: dict[str, set[str]] = {}
        self.trouble: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over.wait(0.02):
                with self.standstill:
                    self._one()
        except BaseException as error:  # the test looks at it
            self.trouble = error

    def _one(self) -> None:
        try:
            job = self._queue.enqueue(basic.witness, str(self._witness), "ran", **self._options)
        except StoreUnavailable as error:
            again = error
        else:
            self.accepted.append(job.id)
            return
        while True:
            self.warned.setdefault(again.job_id, set()).add(type(again).__name__)
            self._over.wait(0.05)
            try:
                self.accepted.append(again.repeat().id)
                return
            except StoreUnavailable as error:
                again = error

    def more(self, count: int = 20) -> None:
        """This many more are accepted."""
        wanted = len(self.accepted) + count
        eventually(
            lambda: len(self.accepted) >= wanted or self.trouble,
            timeout=40,
            why=f"{count} more jobs ({self._options or 'plain'})",
        )
        assert self.trouble is None, repr(self.trouble)

    def end(self) -> None:
        self._over.set()
        self.join(30)
        assert not self.is_alive()
        assert self.trouble is None, repr(self.trouble)


async def from_a_coroutine(url: str, witness: Path) -> str:
    """It finds the primary as the others do."""
    client = twin(connect(url))
    try:
        return (await AsyncQueue("q", client).enqueue(basic.witness, str(witness), "ran")).id
    finally:
        await client.aclose()


@pytest.mark.timeout(180)
def test_a_primary_killed_and_another_demoted_under_load(trio: Trio, fleet: Workers, tmp_path: Path) -> None:
    pair, witness = trio.pair, tmp_path / "witness"
    workers = [fleet.start("q", env=ENV) for _ in range(2)]
    plain = Producer(trio.url, witness)
    sure = Producer(trio.url, witness, durability="replicated", replicas_timeout=0.3)
    both = (plain, sure)
    for producer in both:
        producer.start()
    for producer in both:
        producer.more()

    # the primary dies
    pair.primary.process.kill()
    killed = {producer: len(producer.accepted) for producer in both}
    trio.wait_for_primary(pair.ports[1])
    plain.more()
    assert any("StoreUnavailable" in kinds for kinds in plain.warned.values()), "the outage was felt"
    # there is no replica any more, and a call that wants one raises that
    eventually(lambda: any("NotReplicated" in kinds for kinds in sure.warned.values()), timeout=40, why="not replicated")

    # it comes back, as a replica
    pair.primary.close()
    pair.primary = pair.start(0, primary=1)
    for producer in both:
        producer.more()

    # and takes over again: the one that is demoted is alive, and so are the connections to it, which are refused from then on
    trio.hand_over()
    trio.wait_for_primary(pair.ports[0])
    pair.replica.client().replicaof("127.0.0.1", str(pair.ports[0]))  # Sentinel would, after ten seconds
    for producer in both:
        producer.more()
    for producer in both:
        producer.end()

    there = pair.client(0)
    sure.accepted.append(asyncio.run(from_a_coroutine(trio.url, witness)))
    eventually(
        lambda: not (there.zcard("rq:queue:q") or there.zcard("rq:wip:q") or there.zcard("rq:scheduler:scheduled_jobs")),
        timeout=60,
        interval=0.1,
        why="all that there is has run",
    )
    states = check_conservation(there, sure.accepted)
    assert set(states.values()) == {"finished"}, "each that was acknowledged with a replica's word"
    lost = [job_id for job_id in plain.accepted if not there.exists(f"rq:job:{job_id}")]
    assert set(check_conservation(there, set(plain.accepted) - set(lost)).values()) == {"finished"}
    ran = runs_seen(witness)
    assert all(ran[job_id] for job_id in (*sure.accepted, *(set(plain.accepted) - set(lost)))), "and has run"
    assert all(worker.process.poll() is None for worker in workers)
    again = sum(count - 1 for count in ran.values())
    print(
        f"\n{len(sure.accepted)} replicated, {len(plain.accepted)} plain; "
        f"lost of the plain ones {len(lost)} (before the kill: {len(set(lost) & set(plain.accepted[: killed[plain]]))}); runs again {again}"
    )


def findings(trio: Trio) -> set[str]:
    """Return the codes of the failover risks that `doctor` finds."""
    checks = [check for check in CHECKS if check.name == "failover"]
    return {one.code for one in examine(Look(connect(trio.url), Settings()), checks)}


def run_out(conn: redis.Redis) -> None:
    eventually(
        lambda: not (conn.zcard("rq:queue:q") or conn.zcard("rq:wip:q") or conn.zcard("rq:scheduler:scheduled_jobs")),
        timeout=60,
        interval=0.1,
        why="all that there is has run",
    )


@pytest.mark.timeout(180)
@pytest.mark.parametrize("flags", [(), ("--horses", "2")], ids=["process", "pool"])
def test_nothing_is_lost_with_a_replica_in_sync(trio: Trio, fleet: Workers, tmp_path: Path, flags: tuple[str, ...]) -> None:
    """doctor finds nothing, the primary is killed while workers run jobs, and each accepted job is still there. The producer pauses for the
    kill, as `primary` does not promise to keep what was accepted in the last milliseconds."""
    pair, witness = trio.pair, tmp_path / "witness"
    pair.client(0).config_set("min-replicas-to-write", "1")
    backlog = [
        job.id
        for job in Queue("q", connect(trio.url)).enqueue_many(
            [Queue.prepare_data(basic.witness, (str(witness), "ran")) for _ in range(300)]
        )
    ]
    workers = [fleet.start("q", *flags, env=ENV) for _ in range(2)]
    producer = Producer(trio.url, witness)
    producer.start()
    producer.more()
    assert findings(trio) == set()
    assert not any("FUS-444" in worker.output for worker in workers)
    with producer.standstill:
        pair.primary.process.kill()
    trio.wait_for_primary(pair.ports[1])
    producer.more()
    producer.end()
    there = pair.client(1)
    run_out(there)
    assert set(check_conservation(there, [*backlog, *producer.accepted]).values()) == {"finished"}
    ran = runs_seen(witness)
    assert all(ran[job_id] for job_id in (*backlog, *producer.accepted))


@pytest.mark.timeout(180)
def test_a_replica_that_is_not_in_sync_is_reported_before_the_primary_dies(trio: Trio, fleet: Workers, tmp_path: Path) -> None:
    """With no replica in sync, all accepted jobs are lost, as the finding says."""
    pair, witness = trio.pair, tmp_path / "witness"
    pair.lose_step()
    queue = Queue("q", connect(trio.url))
    lost = [queue.enqueue(basic.witness, str(witness), "ran").id for _ in range(20)]
    worker = fleet.start("elsewhere", env=ENV)
    worker.says("failover: no replica is in sync with this Redis")
    assert findings(trio) == {"FUS-444", "FUS-445"}
    pair.primary.process.kill()
    trio.wait_for_primary(pair.ports[1])
    there = pair.client(1)
    assert [job_id for job_id in lost if there.exists(f"rq:job:{job_id}")] == []
    # It reads the risks again after the outage: the new primary has no replica.
    worker.says("failover: no replica is connected to this Redis", timeout=60)
    assert findings(trio) == {"FUS-443"}


@pytest.mark.timeout(180)
def test_replicated_loses_nothing_when_no_replica_is_in_sync(trio: Trio, tmp_path: Path) -> None:
    """No job is accepted while no replica is in sync: each call raises NotReplicated."""
    pair, witness = trio.pair, tmp_path / "witness"
    sure = Producer(trio.url, witness, durability="replicated", replicas_timeout=0.3)
    sure.start()
    sure.more()
    with sure.standstill:
        before = list(sure.accepted)
        pair.halt_replica()
    eventually(lambda: any("NotReplicated" in kinds for kinds in sure.warned.values()), timeout=40, why="not replicated")
    assert sure.accepted == before
    eventually(lambda: "FUS-444" in findings(trio), timeout=40, why="the replica is silent")
    pair.primary.process.kill()
    pair.release_replica()
    trio.wait_for_primary(pair.ports[1])
    there = pair.client(1)
    assert all(there.exists(f"rq:job:{job_id}") for job_id in before), "each that was accepted"
    third = pair.start(0, primary=1)
    pair.primary.close()
    pair.primary = third
    sure.more()
    sure.end()
    assert set(check_conservation(there, sure.accepted).values()) == {"queued"}
