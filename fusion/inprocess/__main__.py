"""An example that shows what threads share: `python -m fusion.inprocess`.

A "model" is loaded once. Workers use it to run the rows of a SQLite table, while the example measures the real memory of the process.
"""

from __future__ import annotations

import argparse
import logging
import resource
import sqlite3
import sys
import tempfile
import threading
import time
import zlib
from functools import partial
from pathlib import Path

from fusion.inprocess import JobQueueManager, ManagerSettings, Row, Stats, TablePlan, TableSettings, get_current_job

_MB = 1024**2


class Model:
    """Stands for an object that is slow to load and large. Counts how often it was loaded, and how many threads use it."""

    loaded = 0

    def __init__(self, megabytes: int) -> None:
        Model.loaded += 1
        self._weights = memoryview(bytes(range(256)) * (megabytes * _MB // 256))
        self.users: set[str] = set()

    def score(self, row: Row) -> int:
        """Compute for a part of the time, without the GIL, and wait for the rest, as jobs do that call other services."""
        self.users.add(threading.current_thread().name)
        job = get_current_job()
        total = 0
        for part in range(4):
            if job is not None:
                job.check()
            layer = (row.payload + part) * _MB % len(self._weights)
            total ^= zlib.crc32(self._weights[layer : layer + _MB])
            time.sleep(0.01)
        return total


def resident() -> float:
    """Return the resident megabytes of this process; outside Linux its peak."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most / (_MB if sys.platform == "darwin" else 1024)
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def main(arguments: list[str] | None = None) -> int:
    """Run the example; return 0 if every job finished."""
    options = _parse(arguments)
    if options.log:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    at_start = resident()
    model = Model(options.model_mb)
    with_model = resident()
    print(f'A "model" of {options.model_mb} MB is loaded once. {options.workers} workers, threads of this process, share it.\n')
    print(f"{'':>8}  {'finished':>8}  {'active':>6}  {'queued':>6}  {'memory':>10}")
    print(
        f"{'start':>8}  {'':>8}  {'':>6}  {'':>6}  {at_start:>7.1f} MB\n{'loaded':>8}  {'':>8}  {'':>6}  {'':>6}  {with_model:>7.1f} MB"
    )
    with tempfile.TemporaryDirectory() as folder:
        most, finished, seconds = _run(model, options, Path(folder) / "jobs.db")
    each = max(0.0, most - with_model) / options.workers
    print(f"\n{finished} jobs in {seconds:.1f} s by {len(model.users)} workers; the model was loaded {Model.loaded} time.")
    print(f"{options.workers} workers took {most - with_model:.1f} MB besides the model: {each:.1f} MB each.")
    copies = with_model - at_start
    print(
        f"A model for each of {options.workers} processes would take {options.workers} x {copies:.0f} = {options.workers * copies:.0f} MB."
    )
    return 0 if finished == options.jobs else 1


def _run(model: Model, options: argparse.Namespace, file: Path) -> tuple[float, int, float]:
    """Run the jobs. Return the peak memory meanwhile, the number of finished jobs, and the seconds it took."""
    plan = TablePlan(partial(sqlite3.connect, file), model.score, TableSettings(limit=options.jobs))
    plan.create_table()
    for n in range(options.jobs):
        plan.add(f"score {n}", n)
    settings = ManagerSettings(master_grace_period_seconds=0, worker_stagger_seconds=0, worker_cooldown_seconds=0)
    manager = JobQueueManager(plan, options.workers, settings=settings)
    finished, done = 0, threading.Event()
    lock = threading.Lock()

    @manager.on_event
    def count(event: object) -> None:
        nonlocal finished
        if getattr(event, "kind", "") == "finished":
            with lock:
                finished += 1
            if finished >= options.jobs:
                done.set()

    began, most, told_at = time.monotonic(), 0.0, 0.0
    with manager:
        while not done.wait(0.05) and time.monotonic() < began + 600:
            stats, used, now = manager.stats(), resident(), time.monotonic()
            most = max(most, used)
            if now > told_at + 0.2 and stats.active_jobs:
                told_at = now
                print(_line(now - began, finished, stats, used), flush=True)
    return most, finished, time.monotonic() - began


def _line(seconds: float, finished: int, stats: Stats, used: float) -> str:
    throttled = f"  throttled: {stats.throttled}" if stats.throttled else ""
    return f"{seconds:>6.1f} s  {finished:>8}  {stats.active_jobs:>6}  {stats.queue_size:>6}  {used:>7.1f} MB{throttled}"


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fusion.inprocess", description="A model loaded once, and shared by many workers."
    )
    parser.add_argument("--workers", type=_number, default=10, metavar="N", help="worker threads (10)")
    parser.add_argument("--jobs", type=_number, default=300, metavar="N", help="jobs to run (300)")
    parser.add_argument("--model-mb", type=_number, default=64, metavar="MB", help="size of the model (64)")
    parser.add_argument("--log", action="store_true", help="show the manager's log on stderr")
    return parser.parse_args(arguments)


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 to 100000")
    return int(text)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
