"""The cost of a long queue, and of many."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import count

from benchmarks.contestant import ROOT, Contestant
from benchmarks.figures.figure import Effort, Figure, Found
from benchmarks.peers.base import Conditions
from benchmarks.server import Server
from fusion import Queue
from fusion.store.client.connections import connect
from fusion.store.layout.records import Commit, TurnRequest
from fusion.store.write.broker import Broker

_NOOP = "benchmarks.tasks.noop"
#: Jobs of the short queue, and those that are claimed from each before the other has its turn.
_SHORT, _CLAIMED = 1_000, 400


class Waiting:
    """A queue of this many jobs on a server of its own, and a hand that claims and finishes them in turns of 8, without a worker."""

    def __init__(self, server: Server, jobs: int) -> None:
        self.server, self.conn = server, connect(server.url)
        self._broker, self._queue, self._tokens = Broker(self.conn), Queue("default", self.conn), count(1)
        self._broker.register("bench", "b" * 16, 30, 420, {})
        self._add(jobs)

    def claim(self, jobs: int) -> float:
        """Jobs/s; afterwards as many wait as before."""
        commits: list[Commit] = []
        done, began = 0, time.perf_counter()
        while done < jobs:
            turn = self._broker.turn(TurnRequest("bench", "b" * 16, next(self._tokens), commits, ["default"], [0] * 8, 30, 420))
            commits = [Commit("finished", job.id, job.execution_id, 0.0, 0.0, 0.0, "", {}, None) for job in turn.jobs]
            done += len(turn.jobs)
        rate = done / (time.perf_counter() - began)
        self._broker.turn(TurnRequest("bench", "b" * 16, next(self._tokens), commits, ["default"], [], 30, 420))
        self._add(done)
        return rate

    def info(self) -> tuple[float, float]:
        """Seconds of the command `info`, start of the interpreter included, and milliseconds of the server for it."""
        self.conn.config_resetstat()
        began = time.perf_counter()
        command = [sys.executable, "run_worker.py", "info", "--url", self.server.url]
        subprocess.run(
            command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "FUSION_TASKS": "benchmarks.tasks"}
        )
        took = time.perf_counter() - began
        return took, sum(figures["usec"] for figures in self.conn.info("commandstats").values()) / 1000

    def _add(self, jobs: int) -> None:
        self._queue.enqueue_many(Queue.prepare_data(_NOOP) for _ in range(jobs))


def backlog(effort: Effort) -> Found:
    """Claims from a long queue beside those from a short one, `info`, and the slowest script with many queues."""
    with ExitStack() as stack:
        short, long = (Waiting(stack.enter_context(Server()), jobs) for jobs in (_SHORT, effort.backlog))
        pairs = [(short.claim(_CLAIMED), long.claim(_CLAIMED)) for _ in range(effort.rounds)]
        infos = [(short.info(), long.info()) for _ in range(3)]
    title = f"{effort.backlog:,} queued"
    rates = [statistics.median(values) for values in zip(*pairs, strict=True)]
    ms = [statistics.median(one[1] for one in which) for which in zip(*infos, strict=True)]
    names, slowest = _slowest(effort)
    return Found(
        [
            Figure(
                "backlog", f"claim rate, {title} / {_SHORT:,} queued", statistics.median(b / a for a, b in pairs), at_least=0.9
            ),
            Figure("rates", f"claims and ends in turns of 8, {_SHORT:,} queued", rates[0], "jobs/s"),
            Figure("rates", f"claims and ends in turns of 8, {title}", rates[1], "jobs/s"),
            Figure("backlog", f"server time of `info`, {title} / {_SHORT:,} queued", ms[1] / ms[0], at_most=1.5),
            Figure("backlog", f"`info`, {title}", statistics.median(b[0] for _, b in infos), "s"),
            Figure("backlog", f"slowest script, {names:,} queue names, a worker of `*`", slowest, "ms", at_most=5.0),
        ]
    )


def _slowest(effort: Effort) -> tuple[int, float]:
    """The number of names, and milliseconds of the longest script call while a worker of all queues runs a job of each."""
    asked = Conditions(flags=("*",))
    with Contestant("fusion-pool", asked) as one:
        conn = connect(one.url)
        before = one.jobs
        conn.config_set("slowlog-max-len", 100)
        conn.config_set("slowlog-log-slower-than", 300)
        conn.slowlog_reset()
        for n in range(effort.names):
            Queue(f"tenant-{n}", conn).enqueue(_NOOP)
        one.until(lambda: one.jobs >= before + effort.names)
        conn.config_set("slowlog-log-slower-than", -1)
        slow = [entry["duration"] for entry in conn.slowlog_get(100) if entry["command"].startswith(b"EVALSHA")]
        conn.close()
    return effort.names, max(slow, default=300) / 1000
