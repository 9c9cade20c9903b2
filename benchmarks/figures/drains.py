"""Rates of workers with more jobs than they can run, their CPU and their requests: races in which all contenders meet the same conditions."""

from __future__ import annotations

import os
from dataclasses import replace

from benchmarks.figures.figure import SPENT, Effort, Figure, Found
from benchmarks.peers.base import Conditions
from benchmarks.race import Field, Lap, race

#: The default task list; `benchmarks.site_tasks` is where its tasks are.
_SITE = ("tasks", "benchmarks.site_tasks")
_BARE = Conditions()
_NOOP = Conditions(task="benchmarks.site_tasks.noop", modules=_SITE)
_FETCH = replace(_NOOP, task="benchmarks.site_tasks.fetch")
_BIG = Conditions(task="benchmarks.big_tasks.noop", modules=("benchmarks.big_tasks",))


def _loud(asked: Conditions) -> Conditions:
    return replace(asked, quiet=False)


def fork(effort: Effort) -> Found:
    """One process per job, with a task module that imports next to nothing."""
    entered = {
        "Fusion": ("fusion", _BARE),
        "RQ": ("rq", _BARE),
        "bare loop": ("bare", _BARE),
        "Fusion, default log": ("fusion", _loud(_BARE)),
        "RQ, default log": ("rq", _loud(_BARE)),
    }
    found = raced("fork", entered, effort)
    laps = found.races["fork"]
    found.figures += [
        *ratio("fork", laps, "Fusion", "RQ", at_least=10.0),
        *ratio("fork", laps, "Fusion", "bare loop", at_least=0.75),
        *ratio("fork", laps, "Fusion, default log", "RQ, default log"),
        *_trips("one process per job", laps["Fusion"]),
    ]
    return found


def site(effort: Effort) -> Found:
    """The default task list, with a no-op and with a task that sends one request."""
    found = Found()
    for race_name, title, asked in (("site", "no-op", _NOOP), ("fetch", "one request", _FETCH)):
        entered = {
            "Fusion": ("fusion", asked),
            "RQ": ("rq", asked),
            "RQ, preloaded": ("rq-preloaded", asked),
            "bare loop": ("bare", asked),
            "Fusion, default log": ("fusion", _loud(asked)),
            "RQ, default log": ("rq", _loud(asked)),
        }
        part = raced(race_name, entered, effort)
        laps = part.races[race_name]
        part.figures += [
            *ratio("site", laps, "Fusion", "RQ", at_least=8.0, title=title),
            *ratio("site", laps, "Fusion", "RQ, preloaded", title=title),
            *ratio("site", laps, "Fusion", "bare loop", title=title),
            *ratio("site", laps, "Fusion, default log", "RQ, default log", title=title),
        ]
        found.add(part)
    return found


def big(effort: Effort) -> Found:
    """A stack of 60 MB."""
    entered = {"Fusion": ("fusion", _BIG), "bare loop": ("bare", _BIG), "RQ, preloaded": ("rq-preloaded", _BIG)}
    found = raced("big", entered, effort)
    laps = found.races["big"]
    found.figures += [
        *ratio("big", laps, "Fusion", "bare loop", at_least=0.75),
        *ratio("big", laps, "Fusion", "RQ, preloaded", at_least=1.0),
    ]
    return found


def pool(effort: Effort) -> Found:
    """Warm processes, one and two."""
    two = replace(_BARE, processes=2)
    shipped = replace(_loud(two), modules=("tasks", "benchmarks.tasks"))
    entered = {
        "Fusion, 2 processes": ("fusion-pool", two),
        "Huey, 2 processes": ("huey", two),
        "Celery, 2 processes": ("celery", two),
        "Celery, 2 processes, prefetch 64": ("celery-ahead", two),
        "Fusion, 1 process": ("fusion-pool", _BARE),
        "Huey, 1 process": ("huey", _BARE),
        "Fusion as it comes, 2 processes": ("fusion-pool-shipped", shipped),
        "Huey, 2 processes, default log": ("huey", _loud(two)),
        "Celery, 2 processes, default log": ("celery", _loud(two)),
    }
    found = raced("pool", entered, effort)
    laps = found.races["pool"]
    found.figures += [
        *ratio("pool", laps, "Fusion, 2 processes", "Huey, 2 processes", at_least=1.5),
        *ratio("pool", laps, "Fusion, 2 processes", "Celery, 2 processes", at_least=5.0),
        *ratio("pool", laps, "Fusion, 2 processes", "Celery, 2 processes, prefetch 64"),
        *ratio("pool", laps, "Fusion, 2 processes", "Fusion, 1 process", at_least=1.5 if (os.cpu_count() or 1) >= 4 else 1.25),
        *ratio("pool", laps, "Fusion, 1 process", "Huey, 1 process"),
        *ratio("pool", laps, "Fusion as it comes, 2 processes", "Huey, 2 processes, default log"),
        *ratio("pool", laps, "Fusion as it comes, 2 processes", "Celery, 2 processes, default log"),
        *_trips("2 warm processes", laps["Fusion, 2 processes"]),
    ]
    return found


def raced(name: str, entered: Field, effort: Effort) -> Found:
    """A race of this name, and the rates in it."""
    laps = race(entered, effort.slices, effort.seconds)
    return Found([Figure("rates", f"{name}: {who}", lap.rate, "jobs/s") for who, lap in laps.items()], {name: laps})


def ratio(row: str, laps: dict[str, Lap], ours: str, theirs: str, at_least: float | None = None, title: str = "") -> list[Figure]:
    """The ratio of the rates, with its bound, and that of the CPU per job; nothing if either was left out."""
    if ours not in laps or theirs not in laps:
        return []
    what = f"{f'{title}: ' if title else ''}{ours} / {theirs}"
    a, b = laps[ours], laps[theirs]
    return [Figure(row, what, a.rate / b.rate, at_least=at_least), Figure(row, what + SPENT, a.spent / b.spent)]


def _trips(mode: str, lap: Lap) -> list[Figure]:
    """One request in steady state; beside jobs a worker renews leases and looks after the fleet, some requests a second."""
    return [
        Figure("trips", f"requests a job, {mode}", lap.requests, "", at_most=1.05),
        Figure("trips", f"new connections a job, {mode}", lap.connections, "", at_most=0.005),
    ]
