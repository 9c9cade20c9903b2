"""A contender as the measurements see it: its producer, its workers and its promises."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from fusion import __version__

#: The server, for contenders whose worker imports a module that has to know it.
URL = os.environ.get("BENCH_REDIS_URL", "redis://127.0.0.1:6379/0")


class Producer(Protocol):
    """A connected producer. `task` is the path of a function; contenders that isolate jobs know all modules, others `benchmarks.tasks` alone."""

    def one(self, task: str, *args: object) -> None:
        """Enqueue a call in the ordinary way."""

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        """Enqueue them with the library's own bulk call; False if it has none (then nothing was sent)."""

    def close(self) -> None:
        """Disconnect."""


@dataclass(frozen=True)
class Conditions:
    """What is asked of a contender.

    - `processes`: processes that run jobs at a time; `at_once`: jobs that each of them does, where the contender can: in threads, or on a loop.
    - `quiet`: it logs errors alone; otherwise as much as it does by default. Both go to a file.
    - `task`, `size`: the path of the function that runs, and the letters of its argument; 0 for none.
    - `modules`: of the task list, imported before the first fork by those that can.
    - `flags`: for Fusion's worker, besides.
    - `waiting`: jobs that wait at the start of a slice, at least.
    - `unix`: through a unix socket in place of TCP.
    """

    processes: int = 1
    at_once: int = 1
    quiet: bool = True
    task: str = "benchmarks.tasks.noop"
    size: int = 0
    modules: tuple[str, ...] = ("benchmarks.tasks",)
    flags: tuple[str, ...] = ()
    waiting: int = 0
    unix: bool = False


@dataclass(frozen=True)
class Peer:
    """A library in one of the ways to run it.

    - `isolates`: every job has a process to itself.
    - `keeps`: a job whose worker is SIGKILLed runs again without further set-up.
    - `producer`: makes a connected one; None for the loop that needs no jobs.
    - `commands`: argument lists, after the interpreter, of its workers, on the server at an URL.
    - `kinds`: names of its processes, by their distance from the one that was started.
    - `env`: environment of its workers besides ours.
    - `feeds`: what was started hands out the jobs, so that all stand still when it does.
    """

    name: str
    package: str
    isolates: bool
    keeps: bool
    producer: Callable[[str], Producer] | None
    commands: Callable[[Conditions, str], list[list[str]]]
    kinds: tuple[str, ...] = ("main process", "workers")
    env: tuple[tuple[str, str], ...] = ()
    feeds: bool = True

    @property
    def version(self) -> str:
        """As installed."""
        try:
            return version(self.package)
        except PackageNotFoundError:  # Fusion itself, run from a checkout
            return __version__


def function(task: str) -> str:
    """The name of a function without its module."""
    return task.rpartition(".")[2]


def unless(quiet: bool, *flags: str) -> list[str]:
    """These flags if it is to be quiet."""
    return list(flags) if quiet else []
