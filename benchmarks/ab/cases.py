"""The cases, and one slice of each: for a fraction of a second one version alone is at work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.ab.side import Reading, Side


@dataclass(frozen=True)
class Slice:
    """`value`: jobs a second, or milliseconds. `work`: what was done for it."""

    value: float
    work: Reading

    @property
    def cpu(self) -> float:
        """CPU milliseconds a job, of all processes."""
        return 1000 * sum(self.work.cpu.values()) / self.work.jobs


@dataclass(frozen=True)
class Case:
    """A kind of work.

    - `worker`: flags of the worker, None where there is none.
    - `backlog`: jobs that wait at the start of a slice, for each second of it.
    - `counted`: the order of a producer whose instructions are counted, where there is no worker.
    """

    title: str
    unit: str
    more_is_better: bool
    worker: Sequence[str] | None
    backlog: int
    run: Callable[[Side, float], Slice]
    counted: str = ""

    def slice(self, side: Side, seconds: float) -> Slice:
        """Let one version work for this long."""
        self.prepare(side, seconds)
        return self.run(side, seconds)

    def prepare(self, side: Side, seconds: float) -> None:
        """Have the backlog wait."""
        if self.backlog:
            side.fill_up(max(200, int(self.backlog * seconds)))


def _drain(side: Side, seconds: float) -> Slice:
    """A worker with more jobs than it can run."""
    before = side.read()
    took = side.run_worker(seconds)
    work = side.read().since(before)
    return Slice(work.jobs / took, work)


def _enqueue(order: str) -> Callable[[Side, float], Slice]:
    """A producer without a worker, on an empty Redis."""

    def enqueue(side: Side, seconds: float) -> Slice:
        side.server.conn.flushall()
        before = side.read()
        answer = side.order(order, seconds)
        work = side.read().since(before)
        work.jobs = answer["jobs"]
        return Slice(answer["jobs"] / answer["seconds"], work)

    return enqueue


def _start(side: Side, seconds: float) -> Slice:
    """One job at a time on a worker that waits for it. The producer polls for the start, so its CPU says nothing."""
    before = side.read()
    side.let_run()
    answer = side.order("start", seconds)
    side.hold()
    work = side.read().since(before)
    work.jobs = answer["jobs"]
    del work.cpu["producer"]
    return Slice(answer["median"], work)


_POOL = ["--horses", "2", "--max-jobs-per-horse", "0"]

CASES = {
    "fork": Case("one process per job", "jobs/s", True, ["--quiet"], 4_000, _drain),
    "pool": Case("--horses 2", "jobs/s", True, ["--quiet", *_POOL], 40_000, _drain),
    "pool-logs": Case("--horses 2, with the lines that a worker logs of each job", "jobs/s", True, _POOL, 40_000, _drain),
    "enqueue": Case("enqueue, one by one", "jobs/s", True, None, 0, _enqueue("one"), "each"),
    "many": Case("enqueue_many", "jobs/s", True, None, 0, _enqueue("many"), "fill"),
    "start": Case("from enqueue to the start on an idle worker", "ms, p50", False, ["--quiet"], 0, _start),
}
