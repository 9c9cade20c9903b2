"""Lists of a million jobs: `python -m benchmarks.million` fills a Redis of its own (about 2 GB) and times every page that people ask for.

For people, like the other figures: p95 of the reader's calls, of HTTP requests and of the dashboard's pages, and calls that held the server up for
over 5 ms. Each of those is asked again until it shows what it costs: on a machine with other work most of that time was somebody else's.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import redis

from benchmarks.million_dashboard import LOOK, REDIS, Looks
from fusion import Queue
from fusion.kernel.scope import Scope
from fusion.settings import Settings
from fusion.store.client.connections import connect
from fusion.store.layout.records import Commit, TurnRequest
from fusion.store.query.grammar import Query
from fusion.store.read.failure_inspector import FailureInspector
from fusion.store.read.search_inspector import SearchInspector
from fusion.store.redis_server.instance import EmbeddedRedis
from fusion.store.write.broker import Broker

QUEUES, GROUPS, CHUNK = 20, 40, 2000
#: Milliseconds: what 19 of 20 pages take at most, and any call of the server's.
PAGE, CALL = 150.0, 5.0
#: How often a call that took longer is asked again; its cost is the median.
AGAIN = 21
#: Copies one job this many times: into its queue's set at later places, or among the failed ones of its group.
_CLONE = """
local flat, kind, from, count = redis.call('HGETALL', KEYS[1]), ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local field = {}
for i = 1, #flat, 2 do field[flat[i]] = flat[i + 1] end
local score = redis.call('ZSCORE', KEYS[2], ARGV[4])
for n = from, from + count - 1 do
  local id = ARGV[4] .. '-' .. n
  redis.call('HSET', 'rq:job:' .. id, unpack(flat))
  if kind == 'queued' then
    redis.call('ZADD', KEYS[2], score - n * 0.001, id)
  else
    redis.call('ZADD', KEYS[2], score - n, id)
    redis.call('ZADD', 'rq:failure:' .. field.failure_group .. ':jobs', score - n, id)
  end
end
return count
"""


def fill(conn: redis.Redis, queued: int, failed: int) -> None:
    """A job of each queue and a failed one of each group by the usual way, and copies of them by a script of this benchmark."""
    broker, clone = Broker(conn), conn.register_script(_CLONE)
    for n in range(GROUPS):
        Queue(f"q{n % QUEUES}", conn).enqueue(f"shop.tasks.f{n}", n, to=f"user{n}", job_id=f"failed{n}")
    queues = [f"q{n}" for n in range(QUEUES)]
    broker.register("filler.1", "one", 300.0, 420, {"queues": ",".join(queues), "pid": 1, "hostname": "filler"})
    jobs = broker.turn(TurnRequest("filler.1", "one", 1, (), queues, [0] * GROUPS, 300.0, 420)).jobs
    commits = []
    for n, job in enumerate(jobs):
        kind = f"builtins.{('ValueError', 'TimeoutError', 'KeyError', 'ConnectionError')[n % 4]}"
        told = {"error_class": kind, "error_frame": f"shop.tasks:f{n}", "error_bases": "builtins.Exception"}
        commits.append(Commit("failed", job.id, job.execution_id, reason=f"{kind}: number {n}", fields=told))
    broker.turn(TurnRequest("filler.1", "one", 2, commits, queues, [], 300.0, 420))
    broker.deregister("filler.1", "one")
    for queue in queues:
        Queue(queue, conn).enqueue("shop.tasks.send", queue, job_id=f"waits-{queue}", description=f"send to {queue}")
    conn.hset("rq:clean", "grouped", 1)  # as maintenance has it once it has looked at all
    for names, key_of, total, kind in (
        ([f"waits-{queue}" for queue in queues], lambda name: f"rq:queue:{name[6:]}", queued, "queued"),
        ([job.id for job in jobs], lambda name: "rq:queue:failed", failed, "failed"),
    ):
        each = total // len(names)
        for name in names:
            for first in range(1, each, CHUNK):
                clone(keys=[f"rq:job:{name}", key_of(name)], args=[kind, first, min(CHUNK, each - first), name])


def pages(conn: redis.Redis) -> Iterator[tuple[str, Callable[[], object]]]:
    """Name and call of everything that is listed by the readers that commands and HTTP share."""
    search, failures = SearchInspector(conn), FailureInspector(conn)
    (largest, *_), _, _ = failures.largest()
    texts = (
        "", "state:queued", "state:failed", "queue:q3", "state:failed queue:q3", "error:Timeout", "error:Timeout queue:q7", f"group:{largest.id}",
        "func:shop.tasks.f7", "func:shop.*", "id:waits-q3-17", "newer:1h", "older:1s state:queued", "-queue:q1 state:failed", "user7", "nobody",
    )  # fmt: skip
    for text in texts:
        yield f"jobs {text}", lambda text=text: search.page(Query.parse(text))
    for text in ("state:queued", "state:failed", f"group:{largest.id}", "nobody", "error:None queue:q3"):
        cursor = [""]

        def on(text: str = text, cursor: list[str] = cursor) -> None:
            cursor[0] = search.page(Query.parse(text), after=cursor[0]).after

        yield f"jobs {text}, page after page", on
    for queue, text in (("q3", ""), ("q3", "nobody"), ("elsewhere", "state:failed")):
        yield f"jobs {text}, for {queue} alone", lambda queue=queue, text=text: search.page(Query.parse(text), Scope((queue,)))
    yield "failures", failures.groups
    yield "failures, by size", failures.largest
    yield "failures GROUP", lambda: failures.group(largest.id)
    yield "jobs of a group, the 900th page", lambda: failures.jobs(largest.id, offset=900, limit=50)


def p95(call: Callable[[], object], times: int) -> float:
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        call()
        took.append(1000 * (time.perf_counter() - begun))
    return sorted(took)[times * 95 // 100]


def main() -> None:
    """Fill, measure, print the table; exit code 1 if a page or a call took longer than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queued", type=int, default=1_000_000)
    parser.add_argument("--failed", type=int, default=200_000)
    parser.add_argument("--times", type=int, default=40)
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="fus", dir="/tmp"))
    server = EmbeddedRedis(str(home), persistent=False)
    try:
        server.start()
        os.environ["FUSION_REDIS_URL"] = server.url
        conn = connect(Settings(redis_url=server.url))  # as commands and the HTTP service ask
        begun = time.monotonic()
        fill(conn, given.queued, given.failed)
        Looks.furnish(conn)
        memory = conn.info("memory")["used_memory_human"]
        print(f"{conn.dbsize():,} keys, {memory}, filled in {time.monotonic() - begun:.0f} s", flush=True)
        raise SystemExit(measure(conn, server.url, given.times, home))
    finally:
        server.stop()
        shutil.rmtree(home, ignore_errors=True)


def measure(conn: redis.Redis, url: str, times: int, home: Path) -> int:
    conn.config_set("slowlog-log-slower-than", int(1000 * CALL))
    conn.config_set("slowlog-max-len", 1000)
    conn.config_resetstat()
    slow = 0
    with Served(url, home) as served:
        looks = Looks(conn)
        for bound, each in ((PAGE, pages(conn)), (PAGE, served.pages()), (LOOK, looks.pages())):
            for name, call in each:
                conn.slowlog_reset()
                took = p95(call, times)
                held_up = conn.slowlog_get(100)
                costs = [cost(conn, entry) for entry in held_up]
                slow += took > bound or any(one > CALL for one in costs)
                print(f"{name:58} p95 {took:7.1f} ms   {told(held_up, costs)}", flush=True)
        for path in looks.addresses():
            used = looks.redis_time(path)
            slow += used > REDIS
            print(f"{path:58} {used:.3f} ms of Redis a look at twenty a second", flush=True)
    stats = conn.info("commandstats").items()
    for name, one in sorted(stats, key=lambda pair: -pair[1]["usec_per_call"])[:8]:
        print(f"{name.removeprefix('cmdstat_'):20} {one['calls']:9,} calls of {one['usec_per_call'] / 1000:.3f} ms")
    return int(slow > 0)


def cost(conn: redis.Redis, entry: dict[str, Any]) -> float:
    """What a call that was slow costs the server, in ms: the median of some repetitions; of one that can't be repeated what it took."""
    words = entry["command"].split(b" ")
    if words[-1].endswith(b"more arguments)") or words[0].upper() in (b"EVALSHA", b"EVAL", b"FCALL"):
        return float(entry["duration"]) / 1000
    conn.config_set("slowlog-log-slower-than", 0)
    conn.slowlog_reset()
    for _ in range(AGAIN):
        conn.execute_command(*words)
    conn.config_set("slowlog-log-slower-than", int(1000 * CALL))
    took = sorted(one["duration"] for one in conn.slowlog_get(2 * AGAIN) if one["command"] == entry["command"])
    # What has spaces in its names can't be distinguished from its words, and was another call.
    return float(took[len(took) // 2] if took else entry["duration"]) / 1000


def told(held_up: list[dict[str, Any]], costs: list[float]) -> str:
    """Calls that held the server up, of what size, and what the dearest of them costs."""
    if not held_up:
        return "no call over 5 ms"
    worst = max(entry["duration"] / 1000 for entry in held_up)
    shapes = sorted({f"{entry['command'].split(b' ')[0].decode()} of {entry['command'].count(b' ')}" for entry in held_up})
    return f"{len(held_up)} calls took up to {worst:.1f} ms and cost up to {max(costs):.2f}: {', '.join(shapes)}"


class Served:
    """The HTTP service as a process of its own."""

    def __init__(self, url: str, home: Path) -> None:
        from tests.web.harness import ServerProcess, Tokens

        self._tokens = Tokens.write(home / "tokens")
        self._server = ServerProcess(url, home / "log", "--tokens", str(self._tokens.path))

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop()

    def pages(self) -> Iterator[tuple[str, Callable[[], object]]]:
        queries = ("", "state:queued", "state:failed", "error:Timeout", "queue:q3", "user7", "state:failed&limit=500")
        paths = [f"/api/v1/jobs?query={query}" for query in queries]
        paths += [
            f"/api/v1/{name}"
            for name in ("failures", "queues", "info", "doctor", "running", "scheduled", "workers", "batches", "keys")
        ]
        paths += ["/api/v1/queues/q3", "/api/v1/jobs/waits-q3-17", "/api/v1/jobs/failed7"]
        for path in paths:
            yield f"GET {path}", lambda path=path: self._ask(path)

    def _ask(self, path: str) -> None:
        answer = self._server.ask("GET", path, token=self._tokens.by_scope["admin"])
        assert answer.status == 200, answer


if __name__ == "__main__":
    main()
