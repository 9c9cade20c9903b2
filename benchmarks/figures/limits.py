"""`python -m benchmarks.figures.limits`: the cost of concurrency keys. Claims beside many blocked jobs and many keys, and the rate of no-ops that
share a key."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from itertools import count
from typing import Any

from benchmarks.contestant import ROOT
from benchmarks.figures.figure import Effort, Figure, Found
from benchmarks.server import Server
from fusion import Queue
from fusion.kernel.timeutil import from_iso
from fusion.store.client.connections import connect
from fusion.store.layout.records import Commit, TurnRequest
from fusion.store.write.broker import Broker
from fusion.store.write.limit_broker import LimitBroker

_NOOP = "benchmarks.tasks.quiet"
#: Turns of each kind of queue, before the others have theirs.
_TURNS = 200
#: Jobs that share a key, and how many of them may run at once.
_RUNS = ((1_000, 5), (10_000, 10))


class Keyed:
    """A queue of this many jobs on a server of its own, and a hand that ends one and claims the next in each turn. `key`: of each job, `{}` in
    it stands for its number; none without. `beside`: a key that blocks as many jobs more, in the same queue."""

    def __init__(self, server: Server, jobs: int, key: str, beside: str = "") -> None:
        self._conn, self._numbers, self._tokens = connect(server.url), count(), count(1)
        self._broker = Broker(self._conn)
        self._broker.register("bench", "b" * 16, 30, 420, {})
        if beside:
            self._key = beside
            self._add(jobs)
            LimitBroker(self._conn).pause_limit(beside)
        self._key = key
        self._add(jobs)

    def turn(self) -> float:
        """The server's microseconds for a turn, of some hundred; afterwards as many jobs are there as before."""
        self._conn.config_resetstat()
        commits: list[Commit] = []
        for _ in range(_TURNS):
            turn = self._broker.turn(TurnRequest("bench", "b" * 16, next(self._tokens), commits, ["default"], [0], 30, 420))
            commits = [Commit("finished", job.id, job.execution_id, 0.0, 0.0, 0.0, "", {}, None) for job in turn.jobs]
        spent = self._conn.info("commandstats")["cmdstat_evalsha"]["usec"] / _TURNS
        self._broker.turn(TurnRequest("bench", "b" * 16, next(self._tokens), commits, ["default"], [], 30, 420))
        self._add(_TURNS)
        return float(spent)

    def _add(self, jobs: int) -> None:
        queue = Queue("default", self._conn)
        options: dict[str, Any] = {"max_concurrent": 1} if self._key else {}
        for _ in range(jobs // 100):
            keys = [self._key.format(next(self._numbers)) for _ in range(100)]
            queue.enqueue_many(Queue.prepare_data(_NOOP, **options, **({"concurrency_key": key} if key else {})) for key in keys)


def limits(effort: Effort) -> Found:
    """Turns beside those of jobs without a key, and rates of a worker with warm processes."""
    jobs = max(100, effort.backlog // 10)
    kinds = {
        "no key": ("",),
        "no key, beside as many that one key blocks": ("", "one"),
        "one key, all but one blocked": ("one",),
        "a key each": ("key-{}",),
    }
    with ExitStack() as stack:
        queues = [Keyed(stack.enter_context(Server()), jobs, *key) for key in kinds.values()]
        rounds = [[queue.turn() for queue in queues] for _ in range(effort.rounds)]
    spent = {name: statistics.median(values) for name, values in zip(kinds, zip(*rounds, strict=True), strict=True)}
    title = f"{jobs:,} jobs"
    found = Found([Figure("rates", f"turn, {title}, {name}", us, "us") for name, us in spent.items()])
    for nth, name in enumerate(list(kinds)[1:], 1):
        ratio = statistics.median(one[nth] / one[0] for one in rounds)
        found.figures.append(Figure("limits", f"server time of a turn, {title}: {name} / no key", ratio, at_most=1.2))
    for kind, flag in (("one process per job", "--slots"), ("warm processes", "--horses")):
        for number, at_once in _RUNS:
            number = min(number, jobs)
            workers = [flag, str(at_once)]
            pairs = [
                (_rate(number, workers, {}), _rate(number, workers, {"concurrency_key": "k", "max_concurrent": at_once}))
                for _ in range(1 if number > 1_000 or effort.rounds < 3 else 3)
            ]
            what = f"rate of {number:,} no-ops, {at_once} at once of one key / without a key, {kind}"
            found.figures.append(Figure("limits", what, statistics.median(b / a for a, b in pairs), at_least=0.5))
    return found


def _rate(jobs: int, workers: list[str], options: dict[str, Any]) -> float:
    """Jobs/s from the first start to the last end, of a worker with these flags that finds all of them waiting."""
    with Server() as server:
        conn = connect(server.url)
        queue = Queue("default", conn)
        ids = [job.id for job in queue.enqueue_many([Queue.prepare_data(_NOOP, **options) for _ in range(jobs)])]
        command = [sys.executable, "run_worker.py", "worker", "default", "--url", server.url, *workers, "--burst", "--quiet"]
        env = {**os.environ, "FUSION_TASKS": "benchmarks.tasks"}
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env)
        pipe = conn.pipeline(transaction=False)
        for job_id in ids:
            pipe.hmget(f"rq:job:{job_id}", "started_at", "ended_at", "status")
        rows = pipe.execute()
        conn.close()
    if any(status != b"finished" for _, _, status in rows):
        raise RuntimeError("not all jobs have finished")
    starts, ends = (sorted(row[nth] for row in rows) for nth in (0, 1))
    began, ended = from_iso(starts[0]), from_iso(ends[-1])
    assert began and ended
    return jobs / (ended - began).total_seconds()


def main() -> None:
    """Print the figures. They measure for about five minutes."""
    for one in limits(Effort()).figures:
        bound = f"at most {one.at_most:g}" if one.at_most else f"at least {one.at_least:g}" if one.at_least else ""
        print(f"{one.what:90} {one.value:10,.3f} {one.unit:8} {bound}")


if __name__ == "__main__":
    main()
