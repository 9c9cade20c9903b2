"""The rows of the table, their sections, and what some runs of them have found together."""

from __future__ import annotations

import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from benchmarks.ab.checkouts import revision
from benchmarks.contestant import ROOT
from benchmarks.figures import backlog, bundled, crowds, drains, duties, enqueues, limits, starts
from benchmarks.figures.figure import Effort, Found, Row, Section
from benchmarks.race import Lap
from benchmarks.server import Server

#: Sections by their names: each is measured in one go.
SECTIONS: dict[str, Section] = {
    "fork": drains.fork,
    "site": drains.site,
    "big": drains.big,
    "high": starts.high,
    "pool": drains.pool,
    "enqueue": enqueues.enqueue,
    "start": starts.idle,
    "backlog": backlog.backlog,
    "limits": limits.limits,
    "bytes": enqueues.stored,
    "scheduler": duties.scheduler,
    "rest": duties.rest,
}

#: What `python -m benchmarks executors` measures.
CROWDS: dict[str, Section] = {
    "waits": crowds.waits,
    "threads": crowds.threads,
    "crowd": crowds.memory,
    "executors": crowds.executors,
    "bundled": bundled.bundled,
}

ROWS = {
    "fork": Row(
        "jobs/s, one process per job, bare task module",
        "at least 10 x (aim: 12 x) RQ's forking worker, and 0.75 x a bare fork loop",
        "one worker, one job at a time, no-ops in a module that imports next to nothing; all log errors alone, and where it says default log, "
        "as much as they do by default",
    ),
    "site": Row(
        "jobs/s, one process per job, default task list",
        "at least 8 x RQ that imports the same in each job",
        "the same, but a no-op and a task that sends one request to a server on this machine, in a module that imports the bundled tasks and "
        "with them requests; preloaded: RQ started by a program that imports the module before it forks",
    ),
    "big": Row(
        "jobs/s, one process per job, 60 MB of modules",
        "at least 0.75 x the bare loop, and ahead of an RQ that imports them before it forks",
        "the same, but no-ops in a module that makes the process 60 MB bigger; all contenders have imported it before they fork",
    ),
    "high": Row(
        "starts of HIGH jobs",
        "p99 at most 20 ms beside 4 LOW jobs of 5 s, 1 slot reserved; amid a LOW drain at most 5 ms later than idle",
        "from the call of enqueue to the task's first line, one HIGH job at a time; 5 slots, one process per job; the drain: no-ops on 1 slot, "
        "and on 2 warm processes",
    ),
    "pool": Row(
        "jobs/s, warm processes",
        "with 2 processes at least 1.5 x Huey's and 5 x Celery prefork; 2 processes 1.25 x 1 on two cores, 1.5 x on four",
        "one worker, no-ops in a bare module, all log errors alone, no process is recycled; as it comes: default log, bundled tasks imported, "
        "horses recycled after 1,000 jobs; Huey does not acknowledge, Celery does before it runs",
    ),
    "trips": Row(
        "Redis in the worker",
        "1 request a job (leases and upkeep add some a second), no new connection",
        "as counted by Redis in the races above",
    ),
    "enqueue": Row(
        "enqueue",
        "1 round trip, at least 0.9 x Huey's rate; enqueue_many at least 40,000 jobs/s",
        "one producer, no worker, a call without arguments, on TCP and on a unix socket; enqueue_many of 2,000",
    ),
    "start": Row(
        "start on an idle worker",
        "p50 at most 1.5 x Huey's with warm processes, 1.8 x with one process per job; p99 at most 10 ms",
        "from the call of enqueue to the task's first line, on TCP, a worker with one process each, idle for 20 ms before",
    ),
    "backlog": Row(
        "long and many queues",
        "claims from 1,000,000 at least 0.9 x those from 1,000; info does not grow; 5,000 names: no script over 5 ms",
        "claims and ends in turns of 8 by one hand without a worker, each queue on a server of its own",
    ),
    "limits": Row(
        "jobs with a concurrency key",
        "a turn takes the server at most 1.2 x the time of one without keys; no-ops of one key run at 0.5 x the rate of others at least",
        "turns that end a job and claim the next by one hand without a worker, each queue on a server of its own; rates: a worker with as many "
        "processes as may run at once, log errors alone",
    ),
    "bytes": Row(
        "bytes in Redis of a queued job",
        "at most 0.8 x RQ's",
        "MEMORY USAGE of the hash, and of the queue's key by its entries, events apart; one argument, random bytes in base64",
    ),
    "scheduler": Row(
        "scheduler",
        "100,000 due jobs at 20,000/s at least; tick lateness p99 at most 50 ms",
        "one scheduler; 20 entries that tick every second",
    ),
    "rest": Row("at rest", "a worker takes less than 0.5 % CPU", "worker, fork server and horses, without jobs"),
}

#: The rows of `CROWDS`.
CROWD_ROWS = {
    "waits": Row(
        "jobs/s of coroutines",
        "20 ms of I/O per job: at least 1.3 x SAQ and Taskiq; no-ops: 1.5 x Taskiq",
        "one process that runs 200 jobs at once, asyncio.sleep(0.02) or nothing, all log errors alone, asyncio's own loop (uvloop is not installed); "
        "Fusion: --executor asyncio --concurrency 200; SAQ: concurrency 200; Taskiq: streams, which acknowledge, --max-async-tasks 200",
    ),
    "threads": Row(
        "jobs/s of threads",
        "20 ms of I/O per job: at least 1.3 x Dramatiq and Celery",
        "one process with this many threads, time.sleep(0.02), all log errors alone; Fusion: --executor thread --threads N; Dramatiq: --processes 1 "
        "--threads N; Celery: --pool threads --concurrency N, which acknowledges before it runs, prefetch 64, no results, no gossip or mingle",
    ),
    "crowd": Row(
        "memory of workers while jobs wait in them",
        "beside the others'",
        "PSS of all processes of one worker, one contender at a time; Fusion's are a worker, a fork server and what runs the jobs",
    ),
    "bundled": Row(
        "campaign of 1,000 messages by the bundled tasks",
        "in threads or on a loop beside one process per job",
        "a worker of all queues, its log errors alone; HTTP and SMTP to `python -m tasks.sandbox`, which answers each after 20 ms; "
        "from the 50th delivery to the 950th; CPU of the worker's processes, memory (PSS) amid the campaign",
    ),
}


#: Packages whose versions are printed, if they are installed.
_PACKAGES = ("rq", "huey", "celery", "dramatiq", "saq", "taskiq", "taskiq-redis", "uvloop", "redis", "hiredis")


def measure(names: Iterable[str], effort: Effort) -> Found:
    """One run of these sections. One that fails is tried once more: the others' minutes are not to be lost."""
    found = Found()
    for name in names:
        began, section = time.monotonic(), (SECTIONS | CROWDS)[name]
        try:
            part = section(effort)
        except RuntimeError as error:
            print(f"{name} failed and is tried again: {error}", file=sys.stderr)
            part = section(effort)
        found.add(part)
        print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
    return found


def merged(runs: list[Found]) -> dict[str, Any]:
    """Medians of the runs, of each figure with the least and the greatest, and where they were measured."""
    figures = []
    for figure in runs[0].figures:
        values = [one.value for run in runs for one in run.figures if (one.row, one.what) == (figure.row, figure.what)]
        figures.append(
            {
                "row": figure.row,
                "what": figure.what,
                "unit": figure.unit,
                "at_least": figure.at_least,
                "at_most": figure.at_most,
                "median": statistics.median(values),
                "least": min(values),
                "greatest": max(values),
            }
        )
    races = {
        race: {name: _medians([run.races[race][name] for run in runs]) for name in laps} for race, laps in runs[0].races.items()
    }
    return {**conditions(), "runs": len(runs), "figures": figures, "races": races}


def reached(figure: dict[str, Any]) -> bool | None:
    """True if the median keeps its bound; None if it has none."""
    if figure["at_least"] is None and figure["at_most"] is None:
        return None
    low, high = figure["at_least"], figure["at_most"]
    return (low is None or figure["median"] >= low) and (high is None or figure["median"] <= high)


def conditions() -> dict[str, Any]:
    """Where and with what it was measured."""
    with Server() as server:
        name = server.name
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d"),
        "revision": revision(ROOT),
        "server": name,
        "python": platform.python_version(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "versions": {package: found for package in _PACKAGES if (found := _version(package))},
    }


def _medians(laps: list[Lap]) -> dict[str, Any]:
    """Of what one contender did in each run."""
    plain = ("rate", "requests", "connections", "memory")
    cpu = {kind: statistics.median(lap.cpu[kind] for lap in laps) for kind in laps[0].cpu}
    return {**{name: statistics.median(getattr(lap, name) for lap in laps) for name in plain}, "cpu": cpu}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
