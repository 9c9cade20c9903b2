"""The demo's chaos: workers, fork servers and Redis are killed at random moments, and whatever dies, by whomever, is replaced and counted."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import TypeVar

from fusion.exceptions import ConfigurationError, StoreUnavailable
from fusion.kernel.linux import Children, become_subreaper, processes
from fusion.store.redis_server.instance import EmbeddedRedis
from tools.demo.parts import end

T = TypeVar("T")

#: What is killed in a round, in an order that chance decides anew for each.
_ROUND = ("worker", "worker", "fork server", "fork server", "Redis")
#: The smallest and largest share of all jobs that ends between two kills. By jobs, not by time: on a slow machine nothing else would happen.
_SHARE = (0.04, 0.12)
#: Seconds between two looks, and for which a process must have been there to be killed.
_LOOK, _GROWN = 0.05, 1.0
_PLURAL = {"worker": "workers", "fork server": "fork servers", "relay": "relays", "supervisor": "supervisors", "Redis": "Redis"}


@dataclass(frozen=True)
class Toll:
    """Who was killed, by kind: by the demo, and by others (the reader)."""

    struck: Counter[str]
    others: Counter[str]

    @property
    def whole(self) -> bool:
        """True if the demo killed one of each kind."""
        return all(self.struck[kind] for kind in _ROUND)


@dataclass(frozen=True)
class _Member:
    kind: str
    pid: int
    parent: int
    since: float


class Family:
    """The processes below a supervisor: workers and a relay, and below the workers their fork servers."""

    def __init__(self) -> None:
        self.members: dict[int, _Member] = {}
        self._young: set[int] = set()
        self._gone: list[_Member] = []
        self._dead: set[int] = set()
        #: Parents of fork servers.
        self._begun: set[int] = set()

    def look(self, supervisor: int, now: float) -> list[_Member]:
        """Read the process table. Returns those that died since, unless they followed the process above them.

        The process that died is reported one look later: only then it is sure what happened to the process above.
        """
        table = {pid: (parent, session) for pid, parent, session in processes()}
        told = [member for member in self._gone if member.parent not in self._dead]
        self._gone = [member for pid, member in self.members.items() if pid not in table or not _words(pid)]
        for member in self._gone:
            del self.members[member.pid]
            self._dead.add(member.pid)
        # A job's process whose fork server died is the worker's for a moment, but leads no session as fork servers do.
        found = {
            pid: parent
            for pid, (parent, session) in table.items()
            if parent == supervisor or (self._is_worker(parent) and session == pid)
        }
        for pid in found.keys() & self._young - self.members.keys() - self._dead:
            if kind := _kind(_words(pid), of_worker=found[pid] != supervisor):
                self.members[pid] = _Member(kind, pid, found[pid], now)
                if kind == "fork server":
                    self._begun.add(found[pid])
        self._young = set(
            found
        )  # at its first sight a process may be a copy of its parent that has yet to become what it will be
        return told

    def had_begun(self, member: _Member) -> bool:
        """Tell if it was more than a start: a worker that finds no Redis ends by itself, before it has a fork server."""
        return member.kind != "worker" or member.pid in self._begun

    def is_whole(self, workers: int) -> bool:
        """Tell if there are this many workers, each with its fork server."""
        served = {member.parent for member in self.members.values() if member.kind == "fork server"}
        there = {member.pid for member in self.members.values() if member.kind == "worker"}
        return len(there) == workers and there <= served

    def forget(self, supervisor: int) -> None:
        """Stop looking at what is below a supervisor that died: it ends by itself, warm."""
        self._dead |= {supervisor, *self.members}
        self.members.clear()
        self._gone.clear()

    def _is_worker(self, pid: int) -> bool:
        return pid in self.members and self.members[pid].kind == "worker"


def counts(kinds: Counter[str]) -> str:
    """Word who was killed: `3 workers, 1 Redis`."""
    found = [f"{kinds[kind]} {kind if kinds[kind] == 1 else many}" for kind, many in _PLURAL.items() if kinds[kind]]
    return ", ".join(found) or "nobody"


def _words(pid: int) -> list[bytes]:
    """Its command line; none for one that is no more, or is dead and not yet collected."""
    try:
        return [word for word in re.split(rb"[\0 ]", Path(f"/proc/{pid}/cmdline").read_bytes()) if word]
    except OSError:
        return []


def _kind(words: list[bytes], *, of_worker: bool) -> str:
    """Empty for what comes and goes by itself: the worker beside a worker for jobs that run alone."""
    if of_worker:
        return "" if b"worker" in words else "fork server"
    return next((kind for kind in ("worker", "relay") if kind.encode() in words), "")


class Chaos(threading.Thread):
    """Keeps a Redis and a supervisor (made by `start`) running, and kills, from `begin()` to `calm()`, some of what it keeps.

    A thread of its own, so that whoever waits for Redis meanwhile finds it again. Used as a context: at its end the supervisor and all that
    came from it are gone, and Redis still runs.
    """

    def __init__(self, redis: EmbeddedRedis, start: Callable[[], subprocess.Popen[bytes]], workers: int) -> None:
        super().__init__(name="chaos", daemon=True)
        self.toll = Toll(Counter(), Counter())
        self._redis, self._start_supervisor, self._workers = redis, start, workers
        self._shown = ""
        self._family, self._bag = Family(), list[str]()
        self._struck: set[int] = set()
        self._jobs, self._ended, self._strike_at = 0, 0, float("inf")
        self._news: SimpleQueue[str] = SimpleQueue()
        self._over = threading.Event()
        self._error: Exception | None = None

    def __enter__(self) -> Chaos:
        become_subreaper()  # what a killed supervisor leaves behind is still ours to end
        self._children = Children()
        self._others = frozenset(self._children.pids())
        self._supervisor = self._start_supervisor()
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        self.join()
        end(self._supervisor)
        mine = {self._redis.process.pid} if self._redis.process else set[int]()
        while left := [pid for pid in self._children.pids() if pid not in self._others | mine]:
            for pid in left:
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)

    # -- for the thread that works meanwhile

    def begin(self, jobs: int) -> None:
        """Kill something now and then, while this many jobs run."""
        self._jobs = jobs
        self._plan()

    def ended(self, count: int) -> None:
        """Hear how many of them have ended."""
        self._ended = count

    def calm(self) -> None:
        """Kill no more; what others kill is replaced all the same."""
        self._strike_at = float("inf")

    def news(self) -> list[str]:
        """What happened since the last call, a line each. ConfigurationError if what died can't be replaced."""
        if self._error is not None:
            raise ConfigurationError(str(self._error))
        found = list[str]()
        with suppress(Empty):
            while True:
                found.append(self._news.get_nowait())
        return found

    def patiently(self, call: Callable[[], T], *, repeat: bool = False) -> T:
        """Call until Redis answers. `repeat`: an enqueue, of which it may not be known whether it was accepted."""
        again = call
        while True:
            try:
                return again()
            except StoreUnavailable as error:
                if self._error is not None:
                    raise ConfigurationError(str(self._error)) from None
                if repeat:
                    again = error.repeat
                time.sleep(_LOOK)

    # -- the thread

    def run(self) -> None:
        """Look, replace, kill, until the end."""
        try:
            while not self._over.wait(_LOOK):
                self._look(time.monotonic())
        except Exception as error:
            self._error = error

    def _look(self, now: float) -> None:
        if self._redis.process is not None and self._redis.process.poll() is not None:
            pid = self._redis.process.pid
            self._redis.start()
            self._died("Redis", pid, f"it is back as {self._redis.process.pid}, with all that it had acknowledged")
        if self._supervisor.poll() is not None:
            pid = self._supervisor.pid
            self._family.forget(pid)
            self._supervisor = self._start_supervisor()
            self._died("supervisor", pid, f"another one, {self._supervisor.pid}, took over")
        for member in self._family.look(self._supervisor.pid, now):
            if member.pid in self._struck or self._family.had_begun(member):
                self._died(member.kind, member.pid, "it is replaced")
        if self._family.is_whole(self._workers) and (game := self._fair_game()) != self._shown:
            self._shown = game
            self._news.put(f"yours to `kill -9`: {game}")
        if self._ended >= self._strike_at and self._strike(now):
            self._plan()

    def _fair_game(self) -> str:
        """Name the processes that the reader may kill."""
        pids: dict[str, list[int]] = {}
        for member in self._family.members.values():
            pids.setdefault(member.kind, []).append(member.pid)
        pids["supervisor"] = [self._supervisor.pid]
        pids["Redis"] = [self._redis.process.pid] if self._redis.process else []
        named = ((kind if len(pids.get(kind, ())) < 2 else _PLURAL[kind], pids.get(kind, ())) for kind in _PLURAL)
        return ", ".join(f"{name} {' '.join(map(str, sorted(some)))}" for name, some in named if some)

    def _died(self, kind: str, pid: int, then: str) -> None:
        if pid in self._struck:
            self._news.put(f"killed {kind} {pid}: {then}")
        else:
            self.toll.others[kind] += 1
            self._news.put(f"{kind} {pid} died, and not by the demo: {then}")

    def _plan(self) -> None:
        self._strike_at = self._ended + max(1.0, self._jobs * random.uniform(*_SHARE))

    def _strike(self, now: float) -> bool:
        """Kill one, if one is there that is old enough."""
        if not self._bag:
            self._bag = random.sample(_ROUND, len(_ROUND))
        kind = self._bag[-1]
        pids = [member.pid for member in self._family.members.values() if member.kind == kind and now > member.since + _GROWN]
        if kind == "Redis" and self._redis.process is not None:
            pids = [self._redis.process.pid]
        if not pids:
            return False
        pid = random.choice(pids)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self._struck.add(pid)
            self.toll.struck[kind] += 1
            self._bag.pop()
        return True
