"""Workers on other hosts: their connection is cut for longer than a lease, or the whole host dies."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Queue
from fusion.store.redis_server.binary import ServerBinary
from tests.faults.rig.conservation import check_conservation
from tests.faults.rig.hosts import Hosts, why_not
from tests.jobs import on_hosts
from tests.kit.promises import promise
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import field, losses_of, runs_of, status_of
from tests.kit.workers import EXECUTORS, WorkerProcess, Workers, process_per_job, wait_may_recover

pytestmark = [
    pytest.mark.timeout(300),
    process_per_job("each of these names its executor"),
]

#: Host names. The connection of `cut` fails.
CUT, WELL = "cut-box", "well-box"
SHORT = {"FUSION_LEASE": "3", "FUSION_REAP_INTERVAL": "0.5", "FUSION_SOCKET_TIMEOUT": "0.7", "FUSION_IDLE_WAIT": "1"}
FLAGS = {
    "process": ("--executor", "process", "--slots", "3"),
    "pool": ("--executor", "pool", "--horses", "3"),
    "thread": ("--executor", "thread", "--threads", "3"),
    "asyncio": ("--executor", "asyncio", "--concurrency", "3"),
}


@pytest.fixture
def hosts(server_binary: ServerBinary) -> Iterator[Hosts]:
    if reason := why_not():
        pytest.skip(reason)
    found = Hosts(server_binary.path, CUT, WELL)
    yield found
    found.close()


@pytest.fixture
def fleet(hosts: Hosts, tmp_path: Path) -> Iterator[Workers]:
    found = Workers(hosts.server.url, tmp_path)
    yield found
    hosts.mend()
    found.stop()


class Work:
    """The enqueued jobs, and what the tests check of them."""

    def __init__(self, conn: redis.Redis, directory: Path) -> None:
        self.conn, self._directory, self._queue = conn, directory, Queue("q", conn)
        self.ids: list[str] = []
        self.gates = {host: on_hosts.make_gate(directory, host) for host in (CUT, WELL)}

    def add(self, task: object, count: int) -> list[str]:
        added = [self._queue.enqueue(task, str(self._directory)).id for _ in range(count)]
        self.ids += added
        return added

    def runs(self, job_id: str, host: str, word: str = "began") -> int:
        return len(runs_of(self._directory / "seen", f"{word}-{host}", job_id))

    def begun(self, job_ids: list[str], host: str, timeout: float = 30.0) -> None:
        eventually(lambda: all(self.runs(job_id, host) for job_id in job_ids), unhurried(timeout), why=f"{job_ids} run on {host}")

    def finished(self, job_ids: list[str], timeout: float = 30.0) -> None:
        eventually(
            lambda: all(status_of(self.conn, job_id) == "finished" for job_id in job_ids),
            unhurried(timeout),
            why="all have finished",
        )

    def leases(self) -> dict[str, float]:
        """Return when the lease of each running job ends, in milliseconds of the server's clock."""
        return {raw.decode(): score for raw, score in self.conn.zrange("rq:wip:q", 0, -1, withscores=True)}

    def now(self) -> float:
        seconds, micros = self.conn.time()
        return float(seconds * 1000 + micros / 1000)

    def sound(self) -> None:
        """Check that no job is lost, and that each ran once, and once more for each lease that it lost."""
        assert set(check_conservation(self.conn, self.ids).values()) == {"finished"}
        with promise("P5"):
            for job_id in self.ids:
                assert self.runs(job_id, CUT) + self.runs(job_id, WELL) == 1 + losses_of(self.conn, job_id), job_id


@pytest.fixture
def work(hosts: Hosts, tmp_path: Path) -> Work:
    return Work(hosts.client(), tmp_path)


def start(fleet: Workers, hosts: Hosts, host: str, *flags: str, **env: str) -> WorkerProcess:
    program = hosts[host].program("run_worker.py", "worker")
    return fleet.start("q", *flags, url=hosts.url(host), program=program, env={"FUSION_TASKS": "tests.jobs.on_hosts", **env})


def taken_over(work: Work, held: list[str], lease: float, reap: float) -> None:
    """Check that the other host's worker takes the jobs over when their leases end, not before and not much later."""
    ends = {job_id: at for job_id, at in work.leases().items() if job_id in held}
    assert set(ends) == set(held), "they still run on the host that is cut off"
    while work.now() < min(ends.values()):
        taken = [job_id for job_id in held if work.runs(job_id, WELL)]
        with promise("P5"):
            assert not taken or work.now() >= min(ends.values()), "taken from a worker whose lease is not over"
        time.sleep(0.02)
    work.begun(held, WELL, lease + reap + 5)
    with promise("P7"):
        assert work.now() - max(ends.values()) < unhurried(1000 * (reap + 2)), "it came late"


@pytest.mark.parametrize(
    ("executor", "env", "seconds"),
    [
        *(pytest.param(executor, SHORT, 12.0, id=executor) for executor in EXECUTORS),
        *(pytest.param(executor, {}, 45.0, id=f"{executor}, 45 s") for executor in ("process", "pool")),
    ],
)
def test_a_wire_is_cut_for_longer_than_a_lease(
    hosts: Hosts, fleet: Workers, work: Work, executor: str, env: dict[str, str], seconds: float
) -> None:
    """Its jobs run again elsewhere when their leases end. Redis does not accept later what it finished while cut off. It ends what still runs
    there, and then works as before."""
    lease, reap = float(env.get("FUSION_LEASE", "30")), float(env.get("FUSION_REAP_INTERVAL", "5"))
    held_long = [work.add(on_hosts.hold, 1)[0] for _ in range(2)]
    cut = start(fleet, hosts, CUT, *FLAGS[executor], **env)
    work.begun(held_long, CUT)
    well = start(fleet, hosts, WELL, *FLAGS[executor], **env)
    work.finished(work.add(on_hosts.short, 20))
    wait_may_recover(work.conn)

    hosts[CUT].cut()
    began = time.monotonic()
    during = work.add(on_hosts.short, 20)
    taken_over(work, held_long, lease, reap)
    cut.says("Redis is away", timeout=unhurried(30))
    # One job ends while the host is cut off.
    work.gates[CUT].unlink()
    eventually(lambda: all(work.runs(job_id, CUT, "ended") for job_id in held_long), why="they have ended there")
    during += work.add(on_hosts.short, 5)
    while time.monotonic() - began < seconds:
        time.sleep(0.05)
    hosts[CUT].mend()

    cut.says("Redis is back", timeout=unhurried(30))
    cut.says("not accepted", times=len(held_long), timeout=unhurried(30))
    with promise("P6"):
        assert [status_of(work.conn, job_id) for job_id in held_long] == ["started"] * len(held_long)
    work.gates[WELL].unlink()
    work.finished([*held_long, *during])
    with promise("P6"):
        assert all(WELL in field(work.conn, job_id, "result") for job_id in held_long)
    # Both work as before.
    names = {raw.decode().removeprefix("rq:worker:").split(".")[0] for raw in work.conn.smembers("rq:workers")}
    assert names == {CUT, WELL}
    well.signal(15)
    assert well.wait(unhurried(20)) == 0, well.output
    after = work.add(on_hosts.short, 10)
    work.finished(after)
    assert all(work.runs(job_id, CUT) == 1 for job_id in after)
    work.sound()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_run_that_outlives_the_cut_is_ended(hosts: Hosts, fleet: Workers, work: Work, executor: str) -> None:
    """The worker learns that the job is no longer its own, and kills the run."""
    held = work.add(on_hosts.hold, 2)
    cut = start(fleet, hosts, CUT, *FLAGS[executor], **SHORT)
    work.begun(held, CUT)
    start(fleet, hosts, WELL, *FLAGS[executor], **SHORT)
    wait_may_recover(work.conn)
    hosts[CUT].cut()
    taken_over(work, held, 3, 0.5)
    hosts[CUT].mend()
    cut.says("is no longer this worker's (its lease ran out)", times=2, timeout=unhurried(30))
    work.gates[WELL].unlink()
    work.finished(held)
    work.gates[CUT].unlink()
    work.finished(work.add(on_hosts.short, 10))
    assert not any(work.runs(job_id, CUT, "ended") for job_id in held)
    work.sound()


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_short_cut_takes_no_job_away(hosts: Hosts, fleet: Workers, work: Work, executor: str) -> None:
    env = {**SHORT, "FUSION_LEASE": "9"}
    held = work.add(on_hosts.hold, 2)
    cut = start(fleet, hosts, CUT, *FLAGS[executor], **env)
    work.begun(held, CUT)
    start(fleet, hosts, WELL, *FLAGS[executor], **env)
    wait_may_recover(work.conn)
    hosts[CUT].cut()
    cut.says("Redis is away", timeout=unhurried(10))
    hosts[CUT].mend()
    work.gates[CUT].unlink()
    work.finished(held)
    work.finished(work.add(on_hosts.short, 10))
    assert all(work.runs(job_id, CUT) == 1 for job_id in held)
    work.sound()


@pytest.mark.parametrize("executor", ["process", "pool"])
def test_a_host_that_dies_is_buried_after_its_lease_only(hosts: Hosts, fleet: Workers, work: Work, executor: str) -> None:
    """No other host can see its processes: only the end of a lease shows that it died."""
    held = work.add(on_hosts.hold, 3)
    dead = start(fleet, hosts, CUT, *FLAGS[executor], **SHORT)
    work.begun(held, CUT)
    start(fleet, hosts, WELL, *FLAGS[executor], **SHORT)
    wait_may_recover(work.conn)
    hosts[CUT].cut()
    for process in [psutil.Process(dead.pid), *dead.tree()]:
        with contextlib.suppress(psutil.NoSuchProcess):  # it went with one of the others
            process.kill()
    dead.kill()
    taken_over(work, held, 3, 0.5)
    work.gates[WELL].unlink()
    work.finished(held)
    eventually(partial(alone, work.conn), why="the dead worker is no longer in the list")
    work.sound()


def alone(conn: redis.Redis) -> bool:
    (one, *others) = [raw.decode() for raw in conn.smembers("rq:workers")]
    return not others and WELL in one
