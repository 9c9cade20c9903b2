"""A stop and the job's own end at the same instant: one verdict, the same everywhere. And how soon all of a job that is stopped is gone."""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from fusion import Job, Queue
from fusion.store.write.broker import Broker
from tests.faults.rig.conservation import check_ended, runs_seen
from tests.kit.hands import events_of
from tests.kit.length import soaked
from tests.kit.waiting import eventually, unhurried
from tests.kit.witnesses import alive, runs_of, status_of
from tests.kit.workers import Workers, alone_in_its_process

MODES, NAMES = [("--slots", "4"), ("--horses", "4")], ["fork", "warm"]
APART = [pytest.param(MODES[0], marks=alone_in_its_process("its process has others, and goes on for them")), MODES[1]]
ROUNDS, AT_ONCE = int(os.environ.get("FUSION_TEST_RACES") or soaked(80, 500)), 3
GRACE, LATE = soaked(0.4, 1.0), 0.1
STOPS = int(os.environ.get("FUSION_TEST_STOPS") or soaked(110, 250))
#: A loop in Python, one in C, a bare except, trees of processes, tasks of asyncio, threads.
KINDS = (
    "stubborn.spin", "stubborn.spins_in_c", "stubborn.swallows", "stubborn.leaves_a_child", "stubborn.child_that_swallows",
    "stubborn.daemon_that_swallows", "stopping.awaits_others", "stopping.blocks_its_loop", "stopping.threads", "stopping.waits_for_a_thread",
)  # fmt: skip


class Aim:
    """When to stop, so that about half of the jobs end of themselves: seconds after the instant at which they are to end."""

    def __init__(self) -> None:
        self._offset, self._step, self._last, self._lock = 0.0, 0.004, True, threading.Lock()

    def learn(self, *, stopped: bool) -> None:
        """Far steps until it is near, small ones then."""
        with self._lock:
            self._step = max(0.0003, self._step * 0.7) if stopped != self._last else min(0.03, self._step * 1.3)
            self._offset, self._last = self._offset + (self._step if stopped else -self._step), stopped

    def until(self, instant: float) -> float:
        return instant + self._offset


def _race(queue: Queue, broker: Broker, path: str, aim: Aim) -> tuple[str, str]:
    """A job, and what its stop was told."""
    instant = time.time() + 0.06
    job = queue.enqueue("tests.jobs.races.ends_at", path, instant, on_success="tests.jobs.races.told")
    eventually(lambda: job.get_status() != "queued", 20, 0.002)
    time.sleep(max(0.0, aim.until(instant) - time.time() - 0.001))
    while time.time() < aim.until(instant):
        pass
    answer = str(broker.stop(job.id))
    status = eventually(lambda: (found := job.get_status()) in ("finished", "failed", "stopped") and str(found), 20, 0.002)
    aim.learn(stopped=status == "stopped")
    return job.id, answer


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", MODES, ids=NAMES)
def test_a_stop_at_the_instant_of_the_end_has_one_verdict(
    workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    worker = workers.start("t", *mode, env={"FUSION_TASKS": "tests.jobs", "FUSION_EVENTS_CAP": "100000"})
    seen, aim, broker = tmp_path / "seen", Aim(), Broker(conn)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(pool.map(lambda _: _race(Queue("t", conn), broker, str(seen), aim), range(ROUNDS)))
    states = check_ended(conn, answers, runs_seen(seen, word="ran"))
    told = runs_seen(seen, word="told")
    wrong = []
    for job_id, answer in answers.items():
        state, events = states[job_id], [event["event"] for event in events_of(conn, job_id)]
        last, outcome = {"finished": ("completed", None), "stopped": ("stopped", "stopped")}.get(state, ("", ""))
        history = Job.fetch(job_id, conn).attempt_history
        if answer not in ("pending", state) or events != ["queued", "processing", last]:
            wrong.append(f"{job_id}: the stop was told {answer}; {state} after {events}")
        if outcome is not None and [attempt.outcome for attempt in history] != [outcome]:
            wrong.append(f"{job_id}: {state}, and its attempts say {history}")
        if told[job_id] != (state == "finished"):
            wrong.append(f"{job_id}: {state}, and its on_success was called {told[job_id]} times")
        if conn.hexists(f"rq:job:{job_id}", "result") != (state == "finished"):
            wrong.append(f"{job_id}: {state}, and there is a result, or none")
    assert not wrong, "\n".join(wrong[:20])
    ends = Counter((states[job_id], answer) for job_id, answer in answers.items())
    print(dict(ends))
    shares = Counter(states.values())
    assert min(shares["finished"], shares["stopped"]) > ROUNDS / 20, f"it is a race: {ends}"
    assert worker.process.poll() is None


def _stop(conn: redis.Redis, tmp_path: Path, kind: str, number: int) -> float:
    """Seconds from the call until the last process is gone."""
    seen = tmp_path / f"{kind}-{number}"
    job = Queue("t", conn).enqueue(f"tests.jobs.{kind}", str(seen), job_timeout=600)
    count = 2 if "leaves" in kind or "child" in kind or "daemon" in kind else 1
    pids = eventually(lambda: len(found := runs_of(seen, "here")) == count and found, 30, why=f"{kind} has begun")
    begun = time.monotonic()
    assert job.stop() == "pending"
    eventually(lambda: not any(map(alive, pids)), GRACE + 10, 0.002, why=f"all of {kind} is gone")
    gone = time.monotonic() - begun
    eventually(lambda: status_of(conn, job.id) == "stopped", why=f"{kind} is stopped")
    return gone


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", APART, ids=NAMES)
def test_all_of_a_job_that_is_stopped_is_gone_in_time(
    workers: Workers, conn: redis.Redis, tmp_path: Path, mode: tuple[str, ...]
) -> None:
    workers.start("t", *mode, env={"FUSION_TASKS": "tests.jobs", "FUSION_TIMEOUT_GRACE": str(GRACE)})
    took: dict[str, list[float]] = defaultdict(list)
    kinds = [KINDS[n % len(KINDS)] for n in range(STOPS)]
    with ThreadPoolExecutor(2) as pool:
        for kind, seconds in zip(
            kinds, pool.map(lambda one: _stop(conn, tmp_path, one[1], one[0]), enumerate(kinds)), strict=True
        ):
            took[kind].append(seconds)
    every = sorted(seconds for some in took.values() for seconds in some)
    for kind, some in took.items():
        some.sort()
        print(f"{kind}: median {some[len(some) // 2] * 1000:.0f} ms, worst {some[-1] * 1000:.0f} ms of {len(some)}")
    late = every[min(len(every) - 1, len(every) * 99 // 100)]
    print(
        f"p99 {late * 1000:.0f} ms, worst {every[-1] * 1000:.0f} ms, of {len(every)} stops with a grace of {GRACE * 1000:.0f} ms"
    )
    assert late <= GRACE + unhurried(LATE)
