"""The command line of `python -m benchmarks pages`: what each page of the dashboard costs, and what its viewers cost Redis."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from http.client import HTTPResponse
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from redis import Redis

from benchmarks import cpu
from benchmarks.guard import guarded_home
from benchmarks.million_dashboard import Looks
from benchmarks.server import Server
from fusion import Batch, Queue
from fusion.enqueue.build import JobData
from fusion.jobs.layers import MOST
from fusion.store.layout.records import Claimed, Commit
from fusion.store.read.failure_inspector import FailureInspector
from fusion.store.write.broker import Broker
from tests.browser.house import addresses
from tests.browser.staged import NAMES
from tests.kit.hands import Hand, outcome
from tests.web.harness import ServerProcess, Tokens

QUEUES, GROUPS = 20, 40
#: Of all jobs, those of each kind; the rest is queued.
_PARTS = {
    "finished": 0.15,
    "failed": 0.15,
    "retry": 0.02,
    "started": 0.01,
    "scheduled": 0.08,
    "deferred": 0.05,
    "blocked": 0.03,
    "canceled": 0.03,
    "stopped": 0.01,
    "deleted": 0.01,
}
#: Jobs of a call, jobs that a worker takes at once, seconds of a lease: longer than all of it takes.
_CHUNK, _AT_ONCE, _LEASE = 2000, 50, 3600.0
#: Milliseconds of a page: from the request to the answer, and of the server's CPU.
WALL, CPU = 150.0, 100.0
#: Percent of a core that Redis may need for all viewers; seconds between two looks of a page that refreshes itself.
REDIS, EVERY = 5.0, 2.0
#: What is looked at besides the page of each route: lists that are narrowed.
_LISTS = ("state:queued", "state:failed", "error:Timeout", "queue:q3", "state:failed queue:q3", "id:waits-3-3", "nobody")
#: And: a job for which another waits, one with a graph of 300, a search for everything.
_MORE = ("/jobs/waits-3-3", "/jobs/graph-3-0", "/find?q=f3")


@dataclass
class Cost:
    """What a page costs. `wall`, `cpu`: milliseconds of each request, and of the server's CPU for it; `calls`: round trips to Redis."""

    path: str
    wall: list[float]
    cpu: list[float]
    calls: list[int]
    size: int

    @property
    def is_over(self) -> bool:
        """True if it takes longer than a page may."""
        return p(95, self.wall) >= WALL or p(95, self.cpu) >= CPU

    def __str__(self) -> str:
        figures = (p(50, self.wall), p(95, self.wall), p(50, self.cpu), p(95, self.cpu))
        mark = "  OVER" if self.is_over else ""
        return (
            f"{self.path[:52]:52}{''.join(f'{one:8.1f}' for one in figures)}{p(50, self.calls):7.0f}{self.size / 1024:8.1f}{mark}"
        )


@dataclass
class Watched:
    """What viewers cost. `redis`, `alone`: percent of a core of Redis, with and without them; `server`: of the dashboard's server."""

    viewers: int
    seconds: float
    redis: float = 0.0
    alone: float = 0.0
    server: float = 0.0
    answers: dict[int, int] = field(default_factory=dict)
    longest: float = 0.0

    @property
    def is_over(self) -> bool:
        """True if Redis takes more than it may, or if an answer was none of a page."""
        return self.redis >= REDIS or bool(set(self.answers) - {200, 304})

    def __str__(self) -> str:
        answers = ", ".join(f"{count:,} x {status}" for status, count in sorted(self.answers.items()))
        return (
            f"{self.viewers} viewers, {self.seconds:.0f} s, each page anew every {EVERY:.0f} s: Redis {self.redis:.2f} % of a core (alone "
            f"{self.alone:.2f} %), server {self.server:.1f} %; {answers}; the slowest answer {self.longest:.0f} ms"
            f"{'  OVER' if self.is_over else ''}"
        )


def main(arguments: Sequence[str]) -> int:
    """Measure and print. Returns 1 if a page or Redis takes more than it may."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks pages",
        description="Measure what each page of the dashboard costs, and what its viewers cost Redis, with many jobs in all states.",
        epilog=f"Bounds: p95 of a page {WALL:.0f} ms, of the server's CPU for it {CPU:.0f} ms; Redis {REDIS:.0f} % of a core for all viewers.",
    )
    parser.add_argument("--jobs", type=int, default=200_000, help="[%(default)s]")
    parser.add_argument("--times", type=int, default=20, help="that each page is asked for [%(default)s]")
    parser.add_argument("--viewers", type=int, default=20, help="[%(default)s]")
    parser.add_argument("--seconds", type=float, default=30.0, help="for which they look [%(default)s]")
    parser.add_argument("--json", action="store_true", help="print JSON in place of the table")
    options = parser.parse_args(arguments)
    with Server() as server, tempfile.TemporaryDirectory(dir=guarded_home()) as home:
        os.environ["FUSION_REDIS_URL"] = server.url
        began = time.monotonic()
        Looks.furnish(server.conn)
        states = fill(server.conn, options.jobs)
        out = sys.stderr if options.json else sys.stdout
        memory = server.conn.info("memory")["used_memory_human"]
        listed = ", ".join(f"{count:,} {kind}" for kind, count in states.items())
        print(f"{server.name}; {listed}; {memory}, filled in {time.monotonic() - began:.0f} s", file=out, flush=True)
        tokens = Tokens.write(Path(home, "tokens"))
        served = ServerProcess(server.url, Path(home, "log"), "--dashboard", "--tokens", str(tokens.path))
        try:
            token = tokens.by_scope["admin"]
            paths = [*addresses(names(server.conn)), *_MORE, *(f"/jobs?{urlencode({'q': text})}" for text in _LISTS)]
            print(
                f"{'ms, and round trips to Redis':52}{'p50':>8}{'p95':>8}{'CPU p50':>8}{'p95':>8}{'calls':>7}{'KB':>8}", file=out
            )
            viewer, costs = Viewer(served, token), list[Cost]()
            for path in paths:
                costs.append(measure(server, served, viewer, path, options.times))
                print(costs[-1], file=out, flush=True)
            watched = watch(server, served, [Viewer(served, token) for _ in range(options.viewers)], paths, options.seconds)
        finally:
            served.stop()
        load = os.getloadavg()
        conditions = f"{server.name}, {os.cpu_count()} CPUs, load {load[0]:.1f}, Python {sys.version.split()[0]}"
    if options.json:
        found = {"states": states, "pages": [asdict(one) for one in costs], "viewers": asdict(watched)}
        print(json.dumps({"conditions": conditions, **found}))
    else:
        print(f"{watched}\n{conditions}")
    return int(watched.is_over or any(one.is_over for one in costs))


def measure(server: Server, served: ServerProcess, viewer: Viewer, path: str, times: int) -> Cost:
    """Ask for a page, each time as if nobody had looked for some seconds."""
    cost = Cost(path, [], [], [], 0)
    for _ in range(times):
        viewer.forget()
        calls, used, began = server.counters()[0], cpu.own(served.pid), time.perf_counter()
        status, body = viewer.get(path)
        cost.wall.append(1000 * (time.perf_counter() - began))
        cost.cpu.append(1000 * (cpu.own(served.pid) - used))
        cost.calls.append(server.counters()[0] - calls - 1)
        if status != 200:
            raise RuntimeError(f"{path} was answered {status}: {body[:300]!r}")
        cost.size = len(body)
    return cost


def watch(server: Server, served: ServerProcess, viewers: Sequence[Viewer], paths: Sequence[str], seconds: float) -> Watched:
    """Have each viewer look at a page of its own for some time, as the script of the pages does."""
    watched = Watched(len(viewers), seconds)
    watched.alone, _ = _used(server, served, lambda: time.sleep(min(seconds, 3.0)))
    looks = [
        threading.Thread(target=viewer.look, args=(paths[nth % len(paths)], nth * EVERY / len(viewers), seconds))
        for nth, viewer in enumerate(viewers)
    ]

    def look() -> None:
        for one in looks:
            one.start()
        for one in looks:
            one.join()

    watched.redis, watched.server = _used(server, served, look)
    watched.answers = dict(Counter(status for viewer in viewers for status in viewer.answers))
    watched.longest = max(viewer.longest for viewer in viewers)
    return watched


def _used(server: Server, served: ServerProcess, do: Callable[[], object]) -> tuple[float, float]:
    """Return the percent of a core that Redis and the dashboard's server take meanwhile."""
    pids = (server.process, served.pid)
    before, began = [cpu.own(pid) for pid in pids], time.monotonic()
    do()
    took = time.monotonic() - began
    redis, dashboard = (100 * (cpu.own(pid) - used) / took for pid, used in zip(pids, before, strict=True))
    return redis, dashboard


def p(percent: int, values: Sequence[float]) -> float:
    """Return the value that this percentage of them do not exceed: of 20 values p95 is the second largest."""
    return sorted(values)[math.ceil(percent * len(values) / 100) - 1]


class Viewer:
    """Somebody who has logged in, with a browser's cache: an unchanged page is answered 304."""

    def __init__(self, served: ServerProcess, token: str) -> None:
        self._connection = served.connect()
        self._headers = {"Origin": served.url, "Host": served.url.partition("://")[2]}
        self._tag = ""
        self.answers, self.longest = list[int](), 0.0
        answer = self._post("/login", token=token)
        if answer.status != 303:
            raise RuntimeError(f"the login was answered {answer.status}")
        cookies = SimpleCookie(answer.getheader("Set-Cookie", ""))
        self._headers["Cookie"] = "; ".join(f"{name}={one.value}" for name, one in cookies.items())

    def get(self, path: str, **headers: str) -> tuple[int, bytes]:
        """Ask for a page, on the connection that is open."""
        self._connection.request("GET", path, headers={**self._headers, "Accept-Encoding": "gzip", **headers})
        answer = self._connection.getresponse()
        body = answer.read()
        self._tag = answer.getheader("ETag") or ""
        return answer.status, body

    def forget(self) -> None:
        """Have the server ask Redis anew: after a change, also one that it refuses, it uses no answer again."""
        answer = self._post("/queues/%20/pause", back="/")
        if answer.status != 303:
            raise RuntimeError(f"a change was answered {answer.status}")

    def look(self, path: str, later: float, seconds: float) -> None:
        """Open a page, and refresh it."""
        at, end = time.monotonic() + later, time.monotonic() + seconds
        again: dict[str, str] = {}
        while at < end:
            time.sleep(max(0.0, at - time.monotonic()))
            began = time.perf_counter()
            status, _ = self.get(path, **again)
            self.longest = max(self.longest, 1000 * (time.perf_counter() - began))
            self.answers.append(status)
            again = {"HX-Request": "true", "If-None-Match": self._tag} if again else {"HX-Request": "true"}
            at += EVERY

    def _post(self, path: str, **fields: str) -> HTTPResponse:
        headers = {**self._headers, "Content-Type": "application/x-www-form-urlencoded"}
        self._connection.request("POST", path, urlencode(fields), headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer


# -- what there is to see


def fill(conn: Redis, jobs: int) -> dict[str, int]:
    """Fill 20 queues with jobs of all states, by calls of the product. Returns how many of each kind."""
    counts = {kind: int(part * jobs) for kind, part in _PARTS.items()}
    counts["queued"] = jobs - sum(counts.values())
    broker, queues = Broker(conn), [Queue(f"q{n}", conn) for n in range(QUEUES)]
    _send(queues, "runs", sum(counts[kind] for kind in ("finished", "failed", "retry", "started")))
    _run(broker, counts)
    _send(queues, "waits", counts["queued"])
    _send(queues, "later", counts["scheduled"], lambda queue, number: {"enqueue_in": 3600 + number})
    _send(queues, "child", counts["deferred"], lambda queue, number: {"depends_on": f"waits-{queue}-{number}"})
    _send(queues, "keyed", counts["blocked"], lambda queue, number: {"concurrency_key": f"tenant-{queue}", "max_concurrent": 1})
    going = ("canceled", "stopped", "deleted")
    _send(queues, "goes", sum(counts[kind] for kind in going))
    kinds = [kind for kind in going for _ in range(counts[kind])]
    deleted = []
    for number, kind in enumerate(kinds):
        job_id = f"goes-{number % QUEUES}-{number}"
        if kind == "deleted":
            deleted.append(job_id)
        else:
            broker.cancel(job_id) if kind == "canceled" else broker.stop(job_id)
    for first in range(0, len(deleted), _AT_ONCE):
        broker.delete_to_trash(deleted[first : first + _AT_ONCE])
    with Batch("nightly", id="nightly", queue=queues[3]) as batch:
        batch.add(queues[3], [_data("member", 3, n, {}) for n in range(max(1, jobs // 100))])
    graph = [_data("graph", 3, n, {"depends_on": f"graph-3-{(n - 1) // 2}"} if n else {}) for n in range(MOST)]
    queues[3].enqueue_many(graph)
    while broker.clean():
        pass
    return counts


def names(conn: Redis) -> dict[str, str]:
    """Return what stands in the address of a page for its names: what is largest of its kind."""
    failures = FailureInspector(conn)
    ((group, *_), _, _) = failures.largest()
    (failed, *_) = failures.jobs(group.id, limit=1)
    own = {
        "queues": "q3",
        "jobs": failed,
        "failures": group.id,
        "workers": "site3.1",
        "batches": "nightly",
        "tasks": "shop.tasks.f3",
    }
    return {**NAMES, **own, **dict.fromkeys(("limit", "limits", "keys"), "tenant-3")}


def _send(
    queues: Sequence[Queue], kind: str, count: int, options: Callable[[int, int], dict[str, Any]] = lambda queue, number: {}
) -> None:
    for nth, queue in enumerate(queues):
        numbers = range(nth, count, QUEUES)
        for first in range(0, len(numbers), _CHUNK):
            queue.enqueue_many([_data(kind, nth, n, options(nth, n)) for n in numbers[first : first + _CHUNK]])


def _data(kind: str, queue: int, number: int, options: dict[str, Any]) -> JobData:
    given = {"job_id": f"{kind}-{queue}-{number}", "description": f"send to user{number}", **options}
    return Queue.prepare_data(f"shop.tasks.f{number % GROUPS}", [number], {"to": f"user{number}"}, **given)


def _run(broker: Broker, counts: Mapping[str, int]) -> None:
    """Have a worker of each queue take its jobs, end most, and run the rest."""
    for nth in range(QUEUES):
        hand = Hand(broker, f"q{nth}", name=f"site{nth}.1", lease=_LEASE)
        kinds = [kind for kind in ("finished", "failed", "retry") for _ in range(nth, counts[kind], QUEUES)]
        while kinds:
            held = hand.claim(min(_AT_ONCE, len(kinds)))
            hand.turn(*(_ended(job, kinds.pop()) for job in held))
        hand.claim(len(range(nth, counts["started"], QUEUES)))
    counted = [(0, f"1:{what}", 3) for what in ("completed", "failed", "w3", "r9")]
    for first in range(0, GROUPS, 10):
        functions = {("function", f"shop.tasks.f{n}"): counted for n in range(first, first + 10)}
        broker.note_history("site0.1", 1 + first, functions)


def _ended(job: Claimed, kind: str) -> Commit:
    number = int(job.id.rpartition("-")[2])
    if kind == "finished":
        return outcome(job, elapsed=0.2)
    error = f"builtins.{('ValueError', 'TimeoutError', 'KeyError', 'ConnectionError')[number % 4]}"
    told = {"error_class": error, "error_frame": f"shop.tasks:f{number % GROUPS}", "error_bases": "builtins.Exception"}
    delay = 3600.0 if kind == "retry" else 0.0
    return outcome(job, kind, fields=told, reason=f"{error}: number {number}", elapsed=0.2, delay=delay)
