"""Random graphs of up to forty jobs, with failures, retries, stops, cancels and deletes, while horses and workers are killed: each job ends as a
small model says, none runs before those that it needs, and no key is left over."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import redis

from fusion import Dependency, Queue, Retry
from fusion.kernel.nonces import new_nonce
from fusion.store.write.broker import Broker
from tests.faults.kin.graphs import Fate, Node, graph, wrong
from tests.faults.rig.conservation import check_ended, leftovers, memberships, runs_seen
from tests.kit.hands import events_of
from tests.kit.length import soak_case
from tests.kit.promises import promise
from tests.kit.waiting import eventually
from tests.kit.witnesses import field, status_of
from tests.kit.workers import WorkerProcess, Workers

QUEUES = ("a", "b")
ENV = {
    "FUSION_TASKS": "tests.faults.kin.tasks",
    "FUSION_LEASE": "2",
    "FUSION_REAP_INTERVAL": "0.5",
    "FUSION_EVENTS_CAP": "100000",
}
GRAPHS = int(os.environ.get("FUSION_TEST_GRAPHS") or 12)
KILLS = 20
SEEDS = [int(seed) for seed in os.environ.get("SEEDS", "1 2 3").split()]
#: What a job is at rest.
_MOVING = ("queued", "scheduled", "started", "blocked")


class Rig:
    """Some graphs, workers on them, and the person and the monkey that meddle."""

    def __init__(self, conn: redis.Redis, workers: Workers, directory: Path, seed: int, mode: tuple[str, ...]) -> None:
        self.conn, self.broker, self._workers, self._mode = conn, Broker(conn), workers, mode
        self.chance = random.Random(f"{seed}:rig")
        self.seen, self.mended = directory / "seen", directory / "mended"
        self.graphs = [graph(seed, f"g{n}") for n in range(GRAPHS)]
        self.nodes = [node for nodes in self.graphs for node in nodes]
        self.answers: dict[str, str] = {}
        self._due: list[tuple[float, Node]] = []
        self._alive: list[WorkerProcess] = []
        self.kills = 0

    # -- jobs

    def enqueue(self, nodes: list[Node]) -> None:
        """By one call, or by one each, in queues that may differ."""
        together = self.chance.random() < 0.5
        prepared = [self._prepared(node) for node in nodes]
        if together:
            Queue(self.chance.choice(QUEUES), self.conn).enqueue_many(prepared)
        else:
            for data in prepared:
                Queue(self.chance.choice(QUEUES), self.conn).enqueue_many([data])
        self._due += [(time.monotonic() + node.wish_after, node) for node in nodes if node.wish]

    def _prepared(self, node: Node):  # type: ignore[no-untyped-def]
        options = {"retry": Retry(max=3, interval=[0.1])} if node.kind == "flaky" else {}
        depends = [Dependency(parent, on_failure=policy) for parent, policy in node.parents.items()]  # type: ignore[arg-type]
        args = (str(self.seen), node.kind, self.chance.choice((0, 0, 0.02, 0.1)), str(self.mended))
        return Queue.prepare_data("tests.faults.kin.tasks.node", args, job_id=node.id, depends_on=depends or None, **options)

    # -- who meddles

    def keep_up(self) -> None:
        self._alive = [worker for worker in self._alive if worker.process.poll() is None]
        while len(self._alive) < 3:
            self._alive.append(self._workers.start(*QUEUES, *self._mode, ready=False, env=ENV))

    def meddle(self) -> None:
        """A person's wishes that are due; a horse or a worker is killed."""
        self.keep_up()
        for at, node in list(self._due):
            if at <= time.monotonic() and self._act(node):
                self._due.remove((at, node))
        if self.kills < KILLS and self.chance.random() < 0.1:
            self.kills += self._kill()

    def _act(self, node: Node) -> bool:
        if node.wish == "delete":
            (answer,) = self.broker.delete([node.id])
            if answer == "started":
                return False
        else:
            answer = self.broker.stop(node.id) if node.wish == "stop" else self.broker.cancel(node.id)
        self.answers[node.id] = answer
        return True

    def _kill(self) -> bool:
        worker = self.chance.choice(self._alive)
        try:
            below = psutil.Process(worker.pid).children(recursive=True)
            victim = self.chance.choice([psutil.Process(worker.pid), *below, *below])
            victim.kill()
        except psutil.NoSuchProcess:
            return False
        return True

    @property
    def is_done(self) -> bool:
        return not self._due and self.kills >= KILLS

    # -- what happened to them

    def rest(self, why: str, seconds: float = 120) -> None:
        """Until nothing moves any more."""

        def at_rest() -> bool:
            self.keep_up()
            return not self.conn.zcard("rq:releasing") and not any(
                status_of(self.conn, node.id) in _MOVING for node in self.nodes
            )

        eventually(lambda: at_rest() and at_rest(), seconds, 0.1, why)

    def fates(self) -> dict[str, Fate]:
        ended = runs_seen(self.seen, word="end")
        found = {}
        for node in self.nodes:
            status = status_of(self.conn, node.id)
            status = "deleted" if status == "missing" and self.answers.get(node.id) == "deleted" else status
            reason = field(self.conn, node.id, "reason")
            found[node.id] = Fate(status, reason, self.answers.get(node.id, ""), bool(ended[node.id]))
        return found

    @promise("P4", "P10")
    def check_order(self) -> None:
        """No run began before those that it needs had ended, by the tasks' own words; nor was it claimed before, by the events."""
        begun: dict[str, int] = {}
        ended: dict[str, int] = {}
        for n, line in enumerate(self.seen.read_text().splitlines()):
            what, job_id, _ = line.split()
            (begun if what == "begin" else ended).setdefault(job_id, n)
        over: set[str] = set()
        early = []
        parents = {node.id: node.parents for node in self.nodes}
        for event in events_of(self.conn):
            job_id = event["job_id"]
            if event["event"] in ("completed", "failed", "canceled", "stopped"):
                over.add(job_id)
            if event["event"] == "processing":
                early += [f"{job_id} before {p}" for p in parents[job_id] if p not in over and self.answers.get(p) != "deleted"]
        for node in self.nodes:
            for parent, policy in node.parents.items():
                if policy != "ignore" and node.id in begun and begun[node.id] < ended.get(parent, 1 << 31):
                    early.append(f"{node.id} began before the end of {parent}")
        assert not early, early[:20]


def _until(check: Callable[[], bool], do: Callable[[], None], seconds: float) -> None:
    def step() -> bool:
        do()
        return check()

    eventually(step, seconds, 0.05)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("seed", "mode"),
    [
        case(SEEDS[n // 2], mode, id=f"{SEEDS[n // 2]}-{name}")
        for n, (mode, name) in enumerate([(("--slots", "2"), "fork"), (("--horses", "2"), "warm")] * len(SEEDS))
        for case in [pytest.param if n < 2 else soak_case]
    ],
)
def test_jobs_of_a_graph_end_as_their_parents_did_whatever_is_killed(
    conn: redis.Redis, workers: Workers, tmp_path: Path, seed: int, mode: tuple[str, ...]
) -> None:
    rig = Rig(conn, workers, tmp_path, seed, mode)
    rig.keep_up()
    for nodes in rig.graphs:
        rig.enqueue(nodes)
        rig.meddle()
    _until(lambda: rig.is_done, rig.meddle, 120)
    rig.rest("all has ended, or waits for what has failed")
    first = rig.fates()
    with promise("P4", "P5"):
        assert not (found := wrong(rig.nodes, first, mended=False)), "\n".join(found[:10])
    rig.check_order()

    rig.mended.touch()
    broken = [node.id for node in rig.nodes if node.kind == "broken" and first[node.id].status == "failed"]
    broken = [job_id for job_id in broken if not first[job_id].reason.startswith("its parent ")]
    assert set(rig.broker.requeue(broken, new_nonce())) <= {"ok"} if broken else True
    rig.rest("what was put back has ended, and those that waited for it")
    again = rig.fates()
    kept = {job_id for job_id, fate in first.items() if fate.status != "deferred" and job_id not in broken}
    assert {job_id: first[job_id].status for job_id in kept} == {job_id: again[job_id].status for job_id in kept}
    late = [node for node in rig.nodes if node.id not in kept]
    with promise("P4", "P5"):
        assert not (found := wrong(late, again, mended=True)), "\n".join(found[:10])

    for node in rig.nodes:  # those whose parents nobody puts back
        if again[node.id].status == "deferred":
            assert rig.broker.cancel(node.id) in ("canceled", "failed")
    rig.rest("no job is left")
    check_ended(rig.conn, memberships(rig.conn), runs_seen(rig.seen, word="begin"))
    eventually(lambda: not rig.conn.exists("rq:releasing", "rq:pinned"), 20, why="nobody is kept for others")
    kin = [key for key in rig.conn.scan_iter("rq:job:*:*") if not key.endswith(b":dependents")]  # that stays with its record
    assert not kin, kin
    eventually(lambda: not leftovers(rig.conn), 20, why=f"no key is left over: {leftovers(rig.conn)}")
