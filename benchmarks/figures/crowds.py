"""Many jobs at once in one process: races with the libraries made for it, what a job takes in memory meanwhile, and the four executors."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.contestant import Contestant
from benchmarks.figures.drains import raced, ratio
from benchmarks.figures.figure import Effort, Figure, Found
from benchmarks.peers.base import Conditions
from benchmarks.race import Field

_COROUTINES = Conditions(at_once=200, task="benchmarks.tasks.nap_async")
_THREADS = Conditions(at_once=25, task="benchmarks.tasks.nap")


def _longer(effort: Effort) -> Effort:
    """Half as many slices, more than twice as long: a process comes to run that many jobs only after a while."""
    return replace(effort, slices=max(1, effort.slices // 2), seconds=2.5 * effort.seconds)


def waits(effort: Effort) -> Found:
    """20 ms of I/O in 200 coroutines, and no-ops in as many."""
    found = Found()
    for name, title, asked, least in (
        ("waits", "20 ms of I/O", _COROUTINES, 1.3),
        ("coroutines", "no-op", replace(_COROUTINES, task="benchmarks.tasks.noop_async"), 1.5),
    ):
        entered = {who: (key, asked) for who, key in (("Fusion", "fusion-asyncio"), ("SAQ", "saq"), ("Taskiq", "taskiq"))}
        part = raced(name, entered, _longer(effort))
        laps = part.races[name]
        part.figures += ratio("waits", laps, "Fusion", "SAQ", at_least=1.3 if name == "waits" else None, title=title)
        part.figures += ratio("waits", laps, "Fusion", "Taskiq", at_least=least, title=title)
        found.add(part)
    return found


def threads(effort: Effort) -> Found:
    """20 ms of I/O in 25 threads, and in 100."""
    found = Found()
    for name, asked in (("threads", _THREADS), ("100 threads", replace(_THREADS, at_once=100))):
        keys = (("Fusion", "fusion-thread"), ("Dramatiq", "dramatiq"), ("Celery", "celery-threads"))
        part = raced(name, {who: (key, asked) for who, key in keys}, _longer(effort))
        for theirs in ("Dramatiq", "Celery"):
            part.figures += ratio("threads", part.races[name], "Fusion", theirs, at_least=1.3, title=f"{asked.at_once} threads")
        found.add(part)
    return found


def executors(effort: Effort) -> Found:
    """The four executors: 20 ms of I/O each as it is meant for it, and CPU work on two processes each."""
    found = Found()
    naps: Field = {
        "process": ("fusion", replace(_THREADS, processes=25, at_once=1)),
        "pool": ("fusion-pool", replace(_THREADS, processes=25, at_once=1)),
        "thread": ("fusion-thread", _THREADS),
        "asyncio": ("fusion-asyncio", _COROUTINES),
    }
    work = Conditions(processes=2, task="benchmarks.tasks.compute")
    computes: Field = {
        "process": ("fusion", work),
        "pool": ("fusion-pool", work),
        "thread": ("fusion-thread", replace(work, at_once=5)),
        "asyncio": ("fusion-asyncio", replace(work, at_once=5, task="benchmarks.tasks.compute_async")),
    }
    for name, entered in (("executors, 20 ms of I/O", naps), ("executors, CPU", computes)):
        found.add(raced(name, entered, _longer(effort)))
    return found


def memory(effort: Effort) -> Found:
    """What workers hold while they run this many jobs, all of which wait."""
    plain, coroutine = "benchmarks.tasks.stay", "benchmarks.tasks.stay_async"
    entered: Field = {
        "Fusion, process": ("fusion", Conditions(processes=25, task=plain)),
        "Fusion, pool": ("fusion-pool", Conditions(processes=25, task=plain)),
        "Fusion, thread": ("fusion-thread", Conditions(at_once=25, task=plain)),
        "Dramatiq": ("dramatiq", Conditions(at_once=25, task=plain)),
        "Celery threads": ("celery-threads", Conditions(at_once=25, task=plain)),
        "Fusion, asyncio": ("fusion-asyncio", Conditions(at_once=200, task=coroutine)),
        "SAQ": ("saq", Conditions(at_once=200, task=coroutine)),
        "Taskiq": ("taskiq", Conditions(at_once=200, task=coroutine)),
    }
    found = Found()
    for who, (key, asked) in entered.items():
        jobs = asked.processes * asked.at_once
        try:
            one = Contestant(key, asked)
        except ImportError:
            continue
        with one:
            one.fill_up(jobs)
            one.until(lambda one=one, jobs=jobs: one.jobs >= jobs)  # type: ignore[misc]
            held = one.memory()
        found.figures += [
            Figure("crowd", f"{who}: {jobs} jobs", held, "MiB"),
            Figure("crowd", f"{who}: a job", held / jobs, "MiB"),
        ]
    return found
