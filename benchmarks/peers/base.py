"""A contender as the measurements see it: its producer, its workers and its promises."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from fusion import __version__

#: The server, for contenders whose worker imports a module that has to know it.
URL = os.environ.get("BENCH_REDIS_URL", "redis://127.0.0.1:6379/0")


class Producer(Protocol):
    """A connected producer. `task` is a function's name in `benchmarks.tasks` or `benchmarks.heavy_tasks`."""

    def one(self, task: str, *args: object) -> None:
        """Enqueue a call in the ordinary way."""

    def many(self, task: str, calls: Sequence[tuple[object, ...]]) -> bool:
        """Enqueue them with the library's own bulk call; False if it has none (then nothing was sent)."""

    def close(self) -> None:
        """Disconnect."""


@dataclass(frozen=True)
class Peer:
    """A library in one of the ways to run it.

    - `commands`: argument lists, after the interpreter, of the workers that run so many jobs at a time, each in a process of its own.
    - `isolates`: every job has a process to itself.
    - `keeps`: a job whose worker is SIGKILLed runs again without further set-up.
    - `env`: environment of its workers besides ours.
    """

    name: str
    package: str
    isolates: bool
    keeps: bool
    producer: Callable[[str], Producer]
    commands: Callable[[int, str], list[list[str]]]
    env: tuple[tuple[str, str], ...] = ()

    @property
    def version(self) -> str:
        """As installed."""
        try:
            return version(self.package)
        except PackageNotFoundError:  # Fusion itself, run from a checkout
            return __version__


def script(name: str) -> str:
    """The console script of a package, beside the interpreter."""
    return os.path.join(os.path.dirname(sys.executable), name)
