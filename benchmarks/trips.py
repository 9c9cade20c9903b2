"""`python -m benchmarks trips`: how far one call goes through the code: the files it enters, the functions it calls, its moves between files.

A reader who follows the call opens that many files and turns to another one that often. Counted by sys.setprofile in real calls: only calls of
functions in `fusion/`; a move is a call from a function in one file of it to a function in another.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import redis

from benchmarks.server import Server

ROOT = str(Path(__file__).resolve().parents[1] / "fusion") + os.sep
TASK = "benchmarks.trips.noop"
#: Jobs that a worker runs, of which the last is followed: before it, everything that is made once is there.
WARM_JOBS = 3
FIELDS = ("files", "functions", "moves")


@dataclass
class Trip:
    """What one call went through."""

    files: Counter[str] = field(default_factory=Counter)
    functions: set[tuple[str, int]] = field(default_factory=set)
    moves: int = 0
    _stack: list[str] = field(default_factory=list)

    def follow(self, call: Callable[[], Any]) -> Any:
        """Make the call, and count."""
        sys.setprofile(self._note)
        try:
            return call()
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, arg: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT):
            self.files[name.removeprefix(ROOT)] += 1
            self.functions.add((name, frame.f_code.co_firstlineno))
            self.moves += bool(self._stack) and self._stack[-1] != name
            self._stack.append(name)
        elif event == "return" and name.startswith(ROOT) and self._stack:
            self._stack.pop()

    def row(self) -> tuple[int, int, int]:
        """Files, functions, moves."""
        return len(self.files), len(self.functions), self.moves


def noop() -> None:
    """The task of these jobs."""


def of_enqueue(url: str) -> Trip:
    """`Queue.enqueue` of a plain job, as a producer makes it for the hundredth time."""
    from fusion import Queue

    queue, trip = Queue("trips", redis.Redis.from_url(url)), Trip()
    for _ in range(3):
        queue.enqueue(TASK)
    trip.follow(lambda: queue.enqueue(TASK))
    queue.empty()
    return trip


def of_worker(url: str) -> Trip:
    """A worker at rest: a doorbell rings, it claims a plain job, has it run and commits its outcome. What its processes do is not counted."""
    from fusion import Queue
    from fusion.settings import Settings
    from fusion.worker.worker import Worker

    queue, trip = Queue("trips", redis.Redis.from_url(url)), Trip()

    class Watched(Worker):
        done = 0

        def _round(self) -> bool:
            sys.setprofile(None)  # what this looks up is not the worker's
            at_rest = self.executors.server.pid is not None and not self.executors.busy and self.outbox.flushed
            if at_rest and not queue.count:
                if self.done == WARM_JOBS:
                    self.drain("")
                    return super()._round()
                self.done += 1
                queue.enqueue(TASK)
            if self.done == WARM_JOBS:
                sys.setprofile(trip._note)
            return super()._round()

    settings = Settings.load(redis_url=url, tasks=["benchmarks.trips"])
    logging.getLogger("fusion").setLevel(logging.ERROR)
    try:
        Watched(settings, ["trips"]).run()
    finally:
        sys.setprofile(None)
    return trip


def of_get(url: str) -> Trip:
    """`GET /api/v1/queues/trips`, from the WSGI call to its last byte."""
    from wsgiref.util import setup_testing_defaults

    from fusion import Queue
    from fusion.web.api import Api
    from fusion.web.app import App
    from fusion.web.auth import no_auth
    from fusion.web.hosts import Hosts

    conn = redis.Redis.from_url(url)
    Queue("trips", conn).enqueue(TASK)
    app = App(Api(conn, ["benchmarks.trips"]).routes(), no_auth, hosts=Hosts(["127.0.0.1"]))

    def get() -> bytes:
        given: dict[str, Any] = {"PATH_INFO": "/api/v1/queues/trips"}
        setup_testing_defaults(given)
        return b"".join(app(given, lambda status, headers, exc_info=None: lambda data: None))

    trip = Trip()
    assert b'"trips"' in get()
    trip.follow(get)
    return trip


#: What is followed, and the words for it.
TRIPS: dict[str, Callable[[str], Trip]] = {
    "enqueue a job": of_enqueue,
    "claim, run and commit one, in the worker": of_worker,
    "GET of a queue": of_get,
}


def measure(only: Sequence[str] = ()) -> dict[str, Trip]:
    """Follow each call on a server of its own."""
    found = {}
    for name, follow in TRIPS.items():
        if not only or name.split()[0].rstrip(",").lower() in only:
            with Server() as server:
                found[name] = follow(server.url)
    return found


def main(arguments: Sequence[str]) -> int:
    """Print the table. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks trips", description="Count files, functions and moves of one call."
    )
    parser.add_argument("only", nargs="*", help="enqueue, claim, get")
    parser.add_argument("--files", action="store_true", help="each file with the calls of its functions")
    options = parser.parse_args(arguments)
    for name, trip in measure(options.only).items():
        print(f"{name:<42} {' / '.join(map(str, trip.row()))}  ({' / '.join(FIELDS)})")
        for path, calls in trip.files.most_common() if options.files else ():
            print(f"  {calls:>5}  {path}")
    return 0
